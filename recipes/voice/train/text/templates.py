"""Sentences from templates: numbers as people write them, names, and phrases of conversations."""

from __future__ import annotations

import random
import re
import string
from collections.abc import Iterator
from pathlib import Path

_TEXT = Path(__file__).parent
_SLOT = re.compile(r"\{(\w+)\}")


class Templates:
    """Fills templates with random values; a `{slot}` is a list of slots.txt, or a kind of number."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._slots: dict[str, list[str]] = {}
        for line in lines("slots.txt"):
            name, _, values = line.partition(": ")
            self._slots[name] = [value.strip() for value in values.split(", ")]

    def sentences(self, file: str, count: int) -> Iterator[str]:
        """Up to `count` different sentences from the templates of a file."""
        """`count` different sentences, or as many as there are."""
        templates = [template for template in lines(file) if _SLOT.search(template)]
        seen: set[str] = set()
        for turn in range(4 * count):
            sentence = self.fill(templates[turn % len(templates)])
            if sentence not in seen:
                seen.add(sentence)
                yield sentence
            if len(seen) == count:
                return

    def fixed(self, file: str) -> list[str]:
        """The templates of a file that have no slot."""
        """The templates that say one thing only."""
        return [template for template in lines(file) if not _SLOT.search(template)]

    def fill(self, template: str) -> str:
        """Fill all slots of a template."""
        while _SLOT.search(template):
            template = _SLOT.sub(lambda match: self.value(match[1]), template)
        template = re.sub(r"\b([Aa]) (?=[aeio])", r"\1n ", template)
        return template[0].upper() + template[1:]

    def value(self, slot: str) -> str:
        """A random value for a slot. Raises KeyError for an unknown one."""
        """A value for a slot; KeyError for one that there is not."""
        if slot in self._slots:
            return self._rng.choice(self._slots[slot])
        if slot not in _MADE:
            raise KeyError(slot)
        return str(getattr(self, "_" + slot)())

    # One method per slot of a kind of number, named _SLOT; see `_MADE`.

    def _digits(self, count: int) -> str:
        return "".join(self._rng.choices(string.digits, k=count))

    def _capitals(self, count: int) -> str:
        return "".join(self._rng.choices(string.ascii_uppercase, k=count))

    def _small(self) -> int:
        return self._rng.randint(2, 99)

    def _two(self) -> int:
        return self._rng.randint(10, 99)

    def _house(self) -> int:
        return self._rng.choice((self._rng.randint(1, 99), self._rng.randint(100, 999), self._rng.randint(100, 999)))

    def _large(self) -> str:
        """Even over the number of digits, and often round."""
        number = self._rng.randint(1, 9) * 10 ** self._rng.randint(2, 8)
        number += self._rng.choice((0, self._rng.randint(0, number), self._rng.randint(0, number)))
        return f"{number:,}" if number >= 10_000 or self._rng.random() < 0.5 else str(number)

    def _decimal(self) -> str:
        return f"{self._rng.uniform(0, self._rng.choice((10, 100))):.{self._rng.randint(1, 3)}f}"

    def _sum(self) -> int:
        return self._rng.randint(4, 198)

    def _product(self) -> int:
        return self._rng.randint(2, 99) * self._rng.randint(2, 99)

    def _percent(self) -> str:
        rng = self._rng
        number = rng.choice((str(rng.randint(1, 100)), str(rng.randint(1, 100)), f"{rng.uniform(0, 20):.1f}"))
        return number + rng.choice(("%", "%", " percent"))

    def _oven(self) -> int:
        return self._rng.randrange(150, 460, 10)

    def _clock(self) -> str:
        rng = self._rng
        minute = rng.choice((0, 15, 30, 45, rng.randint(0, 59), rng.randint(0, 59)))
        kind = rng.random()
        if kind < 0.25:
            return f"{rng.randint(0, 23)}:{minute:02}"
        hour, half = rng.randint(1, 12), rng.choice(("am", "pm", "a.m.", "p.m.", "AM", "PM"))
        if kind < 0.4:
            return f"{hour} {half}" if rng.random() < 0.7 else f"{hour}{half[0].lower()}m"
        if kind < 0.5:
            return rng.choice(
                (f"half past {hour}", f"a quarter to {hour}", f"a quarter past {hour}", f"{hour} o'clock")
            )
        if kind < 0.6:
            return f"{hour}:{minute:02} in the {rng.choice(('morning', 'afternoon', 'evening'))}"
        return f"{hour}:{minute:02}" + ("" if kind < 0.75 else f" {half}")

    def _date(self) -> str:
        rng = self._rng
        month, day = rng.choice(self._slots["month"]), rng.randint(1, 31)
        kind = rng.random()
        if kind < 0.3:
            return f"{month} {day}, {self._year()}"
        if kind < 0.5:
            return f"{month} {_ordinal(day)}"
        if kind < 0.65:
            return f"{rng.choice(self._slots['day'])}, {month} {day}"
        if kind < 0.8:
            return f"the {_ordinal(day)} of {month}"
        return f"{month} {_ordinal(day)}, {self._year()}"

    def _ordinalday(self) -> str:
        return _ordinal(self._rng.randint(1, 31))

    def _isodate(self) -> str:
        return f"{self._rng.randint(1990, 2049)}-{self._rng.randint(1, 12):02}-{self._rng.randint(1, 28):02}"

    def _year(self) -> int:
        rng = self._rng
        return rng.choice((rng.randint(1100, 1899), rng.randint(1900, 1999), rng.randint(2000, 2049)))

    def _decade(self) -> str:
        return self._rng.choice(("{}0s", "'{}0s", "19{}0s")).format(self._rng.randint(2, 9))

    def _ordinal(self) -> str:
        return _ordinal(self._rng.choice((self._rng.randint(1, 20), self._rng.randint(1, 120))))

    def _money(self) -> str:
        rng = self._rng
        whole = rng.choice((rng.randint(0, 20), rng.randint(1, 100), rng.randint(100, 999), rng.randint(1000, 99_999)))
        cents = rng.choice((None, rng.randint(1, 99), rng.choice((50, 99, 95, 25))))
        amount = f"{whole:,}" if cents is None and whole else f"{whole:,}.{cents or 50:02}"
        return rng.choice("$$$$€£") + amount

    def _bigmoney(self) -> str:
        rng = self._rng
        amount = rng.choice((str(rng.randint(2, 900)), f"{rng.uniform(1, 30):.1f}"))
        return f"${amount} {rng.choice(('million', 'million', 'billion'))}"

    def _phone(self) -> str:
        area, exchange, line = self._digits(3), self._digits(3), self._digits(4)
        return self._rng.choice((f"{area}-{exchange}-{line}", f"({area}) {exchange}-{line}", f"{exchange}-{line}"))

    def _code(self) -> str:
        """Digits that are read one by one: ten of them, with a leading zero, or separated by blanks."""
        count = self._rng.randint(3, 7)
        return self._rng.choice((self._digits(10), "0" + self._digits(count), " ".join(self._digits(count))))

    def _lettercode(self) -> str:
        return " ".join(self._capitals(self._rng.randint(1, 3)) + self._digits(self._rng.randint(1, 4)))

    def _spaced(self) -> str:
        return self._rng.choice((" ", " ", ", ")).join(self._digits(self._rng.randint(2, 8)))

    def _threedigits(self) -> str:
        return " ".join(self._digits(3))

    def _fourdigits(self) -> str:
        return " ".join(self._digits(4))

    def _zip(self) -> str:
        return "0" + self._digits(4) if self._rng.random() < 0.3 else " ".join(self._digits(5))

    def _plate(self) -> str:
        return f"{' '.join(self._capitals(self._rng.randint(2, 3)))} {self._digits(self._rng.randint(2, 4))}"

    def _flight(self) -> str:
        return f"{' '.join(self._capitals(2))} {self._rng.randint(10, 9999)}"

    def _gate(self) -> str:
        return self._rng.choice((str(self._small()), f"{self._rng.choice('ABCDEFG')}{self._small()}"))

    def _letter(self) -> str:
        return self._rng.choice(string.ascii_uppercase)

    def _spelled(self) -> str:
        """A name spelled letter by letter."""
        name = self._rng.choice(self._slots["given"] + self._slots["family"])
        return self._rng.choice((" ", ", ", "-")).join(name.upper())

    def _initials(self) -> str:
        """Initials, letter by letter."""
        return " ".join(self._capitals(self._rng.randint(2, 4)))

    def _givenletters(self) -> str:
        return " ".join(self._rng.choice(self._slots["given"]).upper())

    def _familyletters(self) -> str:
        return " ".join(self._rng.choice(self._slots["family"]).upper())

    def _lettercodes(self) -> str:
        """Letters and digits in any order."""
        count = self._rng.randint(3, 8)
        return " ".join(self._rng.choices(string.ascii_uppercase + 2 * string.digits, k=count))

    def _word(self) -> str:
        """A word, name or place as in an address: letters only."""
        rng = self._rng
        slot = rng.choice(("given", "family", "city", "object", "animal", "color", "adjective", "noun"))
        return re.sub("[^a-z ]", "", rng.choice(self._slots[slot]).lower())

    def _letters(self) -> str:
        return " ".join(self._word().replace(" ", "").upper())

    def _host(self) -> str:
        rng = self._rng
        name = rng.choice(("example", "gmail", "outlook", "yahoo", "icloud", "hotmail", self._word(), self._word()))
        return f"{name} dot {rng.choice(('com', 'com', 'com', 'org', 'net', 'edu', 'co dot u k', 'i o', 'd e'))}"

    def _mail(self) -> str:
        """An e-mail address as it is said."""
        rng = self._rng
        given, family = (rng.choice(self._slots[slot]).lower() for slot in ("given", "family"))
        digits = f" {self._small()}" if rng.random() < 0.25 else ""
        user = rng.choice(
            (
                f"{given} dot {family}{digits}",
                f"{given} {family}{digits}",
                f"{given}{digits}",
                f"{given[0]} {family}{digits}",
                f"{given[0]} dot {family}",
                f"{given} underscore {family}{digits}",
                f"{given} dash {self._word()}",
                rng.choice(("info", "support", "office", "sales", "hello", "help", "contact", "jobs")),
            )
        )
        return f"{user} at {self._host()}"

    def _site(self) -> str:
        """A web address as it is said."""
        rng = self._rng
        path = f" slash {self._word()}" if rng.random() < 0.4 else ""
        return f"{rng.choice(('', '', 'w w w dot '))}{self._host()}{path}"

    def _version(self) -> str:
        rng = self._rng
        return ".".join(str(rng.randint(0, 20)) for _ in range(rng.randint(2, 3)))

    def _address(self) -> str:
        return ".".join(str(self._rng.randint(0, 255)) for _ in range(4))


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def lines(file: str) -> list[str]:
    """The lines of a file of templates or slots, without comments."""
    written = (_TEXT / file).read_text("utf-8").splitlines()
    return [line for line in written if line and not line.startswith("#")]


_MADE = frozenset(name[1:] for name in vars(Templates) if re.fullmatch(r"_[a-z]+", name)) - {"digits", "capitals"}
