"""The words for one written expression in one language: a pattern for each kind of expression, tried in order."""

# ruff: noqa: RUF001 - signs and letters of many scripts are the subject here.
from __future__ import annotations

import re
from collections.abc import Callable

from babel.dates import get_month_names
from babel.units import format_unit

from .numbers import Numbers
from .phrases import PHRASES, Phrases, table

UNITS = table(
    """km length-kilometer; m length-meter; cm length-centimeter; mm length-millimeter; kg mass-kilogram; g mass-gram;
    mg mass-milligram; lb mass-pound; lbs mass-pound; l volume-liter; L volume-liter; ml volume-milliliter;
    mL volume-milliliter; km/h speed-kilometer-per-hour; mph speed-mile-per-hour; mi length-mile; kB digital-kilobyte;
    KB digital-kilobyte; MB digital-megabyte; GB digital-gigabyte; TB digital-terabyte; Hz frequency-hertz;
    kHz frequency-kilohertz; MHz frequency-megahertz; GHz frequency-gigahertz; kW power-kilowatt;
    kWh energy-kilowatt-hour; ms duration-millisecond; км length-kilometer; м length-meter; см length-centimeter;
    кг mass-kilogram; км/ч speed-kilometer-per-hour; °C temperature-celsius; °F temperature-fahrenheit;
    ° angle-degree"""
)
"""Units as written, because case distinguishes them (5 g, 5G), to CLDR's names."""
_CURRENCIES = {"$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY", "￥": "CNY", "₩": "KRW", "₽": "RUB", "₹": "INR"}
_SIGNS = "".join(_CURRENCIES)
_NUMBER = r"\d+(?:[.,\u00a0\u202f]\d+)*"
_MINUS, _SIGN, _AMOUNT = r"(?P<minus>[-−]?)", rf"(?P<sign>[{_SIGNS}])", rf"(?P<amount>{_NUMBER})"
_BLANKS = re.compile(r"[\u00a0\u202f]")
_WEB = re.compile(
    r"(?:https?://)?(?:www\.)?(?P<address>[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
    r"|(?:[\w-]+\.)+(?:com|org|net|edu|gov|io|dev|ai|app|info|eu|uk|de|fr|es|it|pt|br|ru|cn|jp|kr)(?:/[\w./?=&%#~+-]*)?"
    r"|(?<=://)[\w-]+(?:\.[\w-]+)*(?:/[\w./?=&%#~+-]*)?)",
    re.IGNORECASE,
)


class Verbaliser:
    """Spells out written expressions in one language. Raises KeyError for a language that is not in PHRASES."""

    def __init__(self, language: str) -> None:
        self.phrases: Phrases = PHRASES[language]
        self._numbers = Numbers(self.phrases.locale, self.phrases.decimal)
        names = {width: get_month_names(width, locale=self.phrases.locale) for width in ("wide", "abbreviated")}
        self._month_names: dict[int, str] = dict(names["wide"])
        self.months = {name.lower().rstrip("."): name for width in names.values() for name in width.values()}
        """Full month names, by full and short names in lower case without a period."""
        clock = [self.phrases.clock] if self.phrases.clock else []
        self.followers = frozenset((*UNITS, *_CURRENCIES, "%", *clock, *self.phrases.magnitudes, *self.months))
        """Words that form one expression with a preceding number and a blank; words, not units, in lower case."""
        self._rules: list[tuple[re.Pattern[str], Callable[[re.Match[str]], str | None]]] = [
            (re.compile(r"(\d{4})-(\d\d)-(\d\d)"), lambda m: self._date(m[1], m[2], m[3])),
            (re.compile(r"(\d{1,2})[/.](\d{1,2})[/.](\d{4})"), self._short_date),
            (re.compile(rf"([01]?\d|2[0-3]):([0-5]\d)(?: {self.phrases.clock})?"), self._time),
            (re.compile(rf"{_MINUS}{_SIGN}{_AMOUNT}(?: (?P<scale>\w+))?"), self._money),
            (re.compile(rf"{_MINUS}{_AMOUNT}(?P<scale>) ?{_SIGN}"), self._money),
            (re.compile(rf"([-−+]?{_NUMBER}) ?%"), self._percent),
            (re.compile(rf"([-−]?{_NUMBER}) ?({'|'.join(map(re.escape, UNITS))})"), self._unit),
            (re.compile(r"(?:\+?\d{1,3}-)?(?:\(?\d{3}\)?-)+\d{4}|\+\d{7,15}"), self._digits),
            (re.compile(rf"({_NUMBER})[-–]({_NUMBER})"), self._range),
            (re.compile(r"(\d{1,9})(?:st|nd|rd|th|er|ère|e|º|ª|-й|-я|-е)"), self._ordinal),
            (re.compile(r"\d+(?:\.\d+){2,}"), self._version),
            (re.compile(rf"[-−]?{_NUMBER}"), self._number),
        ]

    def say(self, written: str, *, follows_month: bool = False, is_year: bool = False) -> str | None:
        """The words for an expression without surrounding punctuation; None if it stays as written.

        `follows_month`: the preceding word is a month's name, so a small number is a day. `is_year`: the next character
        shows that a number is a year.
        """
        if (abbreviated := self.phrases.abbreviations.get(written.lower())) is not None:
            return abbreviated
        if (address := _WEB.fullmatch(written)) is not None and not written.replace(".", "").isdigit():
            return self._address(address["address"])
        if follows_month and re.fullmatch(r"0?[1-9]|[12]\d|3[01]", written):
            return self._day(written)
        if is_year and re.fullmatch(r"[12]\d{3}", written):
            return self._numbers.year(written)
        if (day := re.fullmatch(r"(0?[1-9]|[12]\d|3[01])\.? (\w+)\.?", written)) and day[2].lower() in self.months:
            return f"{self._day(day[1])} {self._full_month(day[2].lower())}"
        for pattern, rule in self._rules:
            if (match := pattern.fullmatch(written)) is not None and (spoken := rule(match)) is not None:
                return spoken
        return None

    def spell(self, digits: str) -> str:
        """ "555" digit by digit."""
        return self._numbers.digits(digits)

    # The rules, called with the match of their pattern; None means that the pattern matched another kind of expression.

    def _join(self, *words: str) -> str:
        return self.phrases.blank.join(filter(None, words))

    def _full_month(self, name: str) -> str:
        return next((full for full in self._month_names.values() if full.lower().startswith(name)), name)

    def _day(self, number: str) -> str:
        number = str(int(number))
        if self.phrases.locale in ("en", "de", "ru") or (number == "1" and self.phrases.locale != "es"):
            return self._numbers.ordinal(number) if self.phrases.blank else self._numbers.cardinal(number)
        return self._numbers.cardinal(number)

    def _date(self, year: str, month: str, day: str) -> str | None:
        if not 1 <= int(month) <= 12 or not 1 <= int(day) <= 31:
            return None
        numbers = self._numbers
        # Chinese, Japanese and Korean month names contain a number.
        name = self._month_names[int(month)]
        name = re.sub(r"\d+", lambda m: numbers.cardinal(m[0]), name)
        return self.phrases.dates.format(day=self._day(day), month=name, year=numbers.year(year))

    def _short_date(self, match: re.Match[str]) -> str | None:
        first, second, year = match.groups()
        month, day = (first, second) if self.phrases.month_first and "/" in match[0] else (second, first)
        return self._date(year, month, day)

    def _time(self, match: re.Match[str]) -> str:
        hour, minute = match[1], match[2]
        shape = 0 if minute == "00" else 1 if minute[0] == "0" else 2
        say = self._numbers.cardinal
        return self.phrases.times[shape].format(h=say(str(int(hour))), m=say(str(int(minute))))

    def _money(self, match: re.Match[str]) -> str | None:
        currency = _CURRENCIES[match["sign"]]
        if currency == "JPY" and self.phrases.locale.startswith("zh"):
            currency = "CNY"
        amount = self._numbers.parse(match["amount"])
        if amount is None:
            return None
        whole, _, cents = amount.partition(".")
        plural = self._numbers.coins(currency, 5)
        if plural is None:
            return None
        cardinal = self._numbers.cardinal
        minus = self.phrases.minus if match["minus"] else ""
        if scale := match["scale"]:
            of = "de" if self.phrases.locale in ("fr", "es", "pt") and scale.lower() not in ("mil", "mille") else ""
            return self._join(minus, cardinal(amount), scale, of, plural)
        if len(cents) != 2 or (minor := self._numbers.coins(currency, int(cents), minor=True)) is None:
            coin = plural if cents else self._numbers.coins(currency, int(whole)) or plural
            return self._join(minus, cardinal(amount), coin)
        coin = self._numbers.coins(currency, int(whole)) or plural
        parts = [] if not int(whole) and int(cents) else [cardinal(whole), coin]
        if int(cents):
            and_ = self.phrases.abbreviations.get("&", "") if parts else ""
            parts += [and_, cardinal(str(int(cents))), minor]
        return self._join(minus, *parts)

    def _percent(self, match: re.Match[str]) -> str | None:
        number, plus = self._signed(match[1].removeprefix("+")), _plus(match[0])
        if number is None:
            return None
        if self.phrases.locale.startswith("zh"):
            return plus + self.phrases.percent + number
        return plus + self._join(number, self.phrases.percent)

    def _unit(self, match: re.Match[str]) -> str | None:
        spoken, parsed = self._signed(match[1]), self._numbers.parse(match[1].lstrip("-−"))
        if spoken is None or parsed is None:
            return None
        for length in ("long", "short"):
            name = str(format_unit(float(parsed), UNITS[match[2]], length, "0.####", locale=self.phrases.locale))
            written = re.search(r"\d[\d.,]*", name)
            # Where the locale has no words for a unit, Babel returns CLDR's name, which contains a hyphen.
            if written is not None and "-" not in name:
                return _BLANKS.sub(" ", name[: written.start()] + spoken + name[written.end() :])
        return None

    def _range(self, match: re.Match[str]) -> str | None:
        first, last = self._number_of(match[1]), self._number_of(match[2])
        return None if first is None or last is None else self._join(first, self.phrases.to, last)

    def _digits(self, match: re.Match[str]) -> str:
        return _plus(match[0]) + ", ".join(self._numbers.digits(group) for group in re.findall(r"\d+", match[0]))

    def _ordinal(self, match: re.Match[str]) -> str | None:
        return self._numbers.ordinal(match[1]) if self.phrases.blank and self.phrases.locale != "ko" else None

    def _version(self, match: re.Match[str]) -> str | None:
        if (number := self._numbers.parse(match[0])) is not None:
            return self._numbers.cardinal(number)
        dot = f" {self.phrases.dot} " if self.phrases.blank else self.phrases.dot
        return dot.join(map(self._numbers.cardinal, match[0].split(".")))

    def _number(self, match: re.Match[str]) -> str | None:
        return self._signed(match[0])

    def _number_of(self, written: str) -> str | None:
        if self.phrases.pairs_in_years and re.fullmatch(r"1[1-9]\d\d|20[1-9]\d", written):
            return self._numbers.year(written)
        number = self._numbers.parse(written)
        return None if number is None else self._numbers.cardinal(number)

    def _signed(self, written: str) -> str | None:
        number = self._number_of(written.lstrip("-−"))
        if number is None or written[0] not in "-−":
            return number
        return self._join(self.phrases.minus, number)

    def _address(self, address: str) -> str:
        names = {".": self.phrases.dot, "@": self.phrases.at, "/": self.phrases.slash, "-": self.phrases.dash}
        spoken = (f" {names[char]} " if char in names else char for char in address.rstrip("/"))
        words = re.sub(r"[_?=&%#~+]", r" \g<0> ", "".join(spoken))
        return " ".join(re.sub(r"\d+", lambda m: f" {self._numbers.digits(m[0])} ", words).split())


def _plus(written: str) -> str:
    """A plus before the number, which the model reads itself."""
    return "+" * written.startswith("+")
