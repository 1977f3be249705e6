"""English words for numbers, money, times, symbols, abbreviations and acronyms, for voices trained on spelled-out text.

A voice is trained on exactly these outputs, so they must not change. That is why the rules are not those of
`normalise`, whose words for the same expressions differ ("may first" for "May 1", "three hundred and five" for 305),
and which decides on whole expressions and leaves the rest as written: capitals, signs, and digits within a word. Both
have the same words for numbers and abbreviations.
"""

# ruff: noqa: RUF001, SIM905 - punctuation beyond ASCII and lists of words are the subject here.
from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache

from .normalise.numbers import Numbers
from .normalise.phrases import PHRASES

_PHRASES = PHRASES["english"]
_NUMBERS = Numbers(_PHRASES.locale, _PHRASES.decimal)
MAGNITUDES = _PHRASES.magnitudes
MONEY = re.compile(r"[$€£]\d[\d,]*(?:\.\d+)?")

_PLAIN = str.maketrans(
    {"’": "'", "‘": "'", "“": '"', "”": '"', "–": "-", "‑": "-", "−": "-", "…": "...", "ß": "ss", "æ": "ae"}
    | {"Æ": "AE", "œ": "oe", "Œ": "OE", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "ð": "d", "þ": "th"}
    | {"×": " times ", "÷": " divided by "}
)
_FRACTIONS = {"½": ("a half", "one half"), "¼": ("a quarter", "one quarter"), "¾": ("three quarters",) * 2}
_ABBREVIATIONS = {"a.m.": "a m", "p.m.": "p m"} | {
    written: _PHRASES.abbreviations[written].lower().removesuffix(".")
    for written in ("mr.", "mrs.", "dr.", "prof.", "e.g.", "i.e.", "etc.", "vs.")
}
_ACRONYMS = frozenset(
    "AI API APIS ATM CEO CIA CPU CPUS DIY DNA EU FAQ FBI GPU GPUS HTML IBM IO IP MIT NBA OS RNA UFO UI UK UN"
    " URL USA USB VIP VOIP".split()
)
_TITLES = frozenset(("MR", "MRS", "DR", "ST"))
_UNITS = {
    "km/h": "kilometers per hour",
    "mph": "miles per hour",
    "km": "kilometers",
    "cm": "centimeters",
    "mm": "millimeters",
    "kg": "kilograms",
    "mg": "milligrams",
    "ml": "milliliters",
    "lb": "pounds",
    "lbs": "pounds",
    "ft": "feet",
    "kb": "kilobytes",
    "mb": "megabytes",
    "gb": "gigabytes",
    "tb": "terabytes",
    "hz": "hertz",
    "khz": "kilohertz",
    "mhz": "megahertz",
    "ghz": "gigahertz",
    "am": "a m",
    "pm": "p m",
}
_CURRENCIES = {"$": ("dollar", "cent"), "€": ("euro", "cent"), "£": ("pound", "penny")}
_MONTHS = "january february march april may june july august september october november december".split()
_SCALES = {"k": "thousand", "m": "million", "b": "billion", "bn": "billion"}
_UNIT = "|".join(sorted(map(re.escape, _UNITS), key=len, reverse=True))


def spoken_english(word: str, *, after_number: bool = False, initial: bool = False) -> str:
    """The words for one written word, which has no white space, or for an amount of money with its magnitude.

    `after_number`: the preceding word is a number, so "km" is a unit. `initial`: a single capital with a period is part
    of a name. The result is in lower case; punctuation, and symbols without words, remain in it.
    """
    word = _fold(word)
    if initial and re.fullmatch(r"[A-Z]\.", word):
        return word[0].lower()
    if after_number and word.lower() in _UNITS:
        return _UNITS[word.lower()]
    if match := re.fullmatch(r"(\W*)([A-Z]{2,5})((?:'?s)?\W*)", word):
        word = match[1] + _acronym(match[2]) + (" " if match[3].startswith("s") else "") + match[3]
    word = word.lower()
    if word.isalpha():
        return word
    if after_number:
        word = re.sub(rf"^(?:{_UNIT})(?![a-z])", lambda m: _UNITS[m[0]], word)
    elif _ORDINARY_WORD.fullmatch(word):
        return word
    for pattern, replacement in _RULES:
        word = pattern.sub(replacement, word)
    return word


@lru_cache(maxsize=4096)
def cardinal(number: str) -> str:
    """ "342" as "three hundred forty two"."""
    return _bare(_NUMBERS.cardinal(str(int(number))))


def ordinal(number: str) -> str:
    """ "23" as "twenty third"."""
    return _bare(_NUMBERS.ordinal(number))


def digits(number: str) -> str:
    """ "007" as "zero zero seven"."""
    return " ".join(cardinal(digit) for digit in number if digit.isdigit())


def year(number: str) -> str:
    """ "1998" as "nineteen ninety eight"; years that are read as numbers remain so ("2005")."""
    in_pairs = 1100 <= int(number) <= 1999 or 2010 <= int(number) <= 2099
    return _bare(_NUMBERS.year(number)) if in_pairs else cardinal(number)


def _bare(words: str) -> str:
    """Words of a number without commas, "and" and hyphens."""
    return words.replace(",", "").replace(" and ", " ").replace("-", " ")


def _fold(word: str) -> str:
    """Replace accented Latin letters and typographic signs by ASCII."""
    if word.isascii():
        return word
    for sign, (after, alone) in _FRACTIONS.items():
        word = re.sub(rf"(?<=\d){sign}", f" and {after}", word).replace(sign, f" {alone}")
    return "".join(
        char for char in unicodedata.normalize("NFKD", word.translate(_PLAIN)) if not unicodedata.combining(char)
    )


def _acronym(letters: str) -> str:
    if letters == "OK":
        return "okay"
    if letters in _ACRONYMS or not (set(letters) & set("AEIOUY") or letters in _TITLES):
        return " ".join(letters)
    return letters


def _number(match: re.Match[str]) -> str:
    written = match[0].replace(",", "")
    if "." in written:
        whole, _, part = written.partition(".")
        return f"{cardinal(whole) if len(whole) < 13 else digits(whole)} point {digits(part)}"
    if len(written) == 4 and written[0] in "12" and "," not in match[0]:
        return year(written)
    if len(written) > 9 or (len(written) > 1 and written[0] == "0"):
        return digits(written)
    return cardinal(written)


def _version(match: re.Match[str]) -> str:
    parts = match[0].split(".")
    return " point ".join(digits(part) if len(part) > 2 or part[0] == "0" else cardinal(part) for part in parts)


def _money(match: re.Match[str]) -> str:
    coin, cent = _CURRENCIES[match["sign"]]
    whole, part = match["whole"].replace(",", ""), match["part"] or ""
    scale = match["scale"] and _SCALES.get(match["scale"], match["scale"])
    if scale or len(part) not in (0, 2):
        return f"{whole}.{part} {scale or ''} {coin}s" if part else f"{whole} {scale} {coin}s"
    cents = int(part or 0)
    spoken_cents = f"{cents} {cent if cents == 1 else 'pence' if cent == 'penny' else cent + 's'}"
    spoken = f"{int(whole):,} {coin if whole == '1' else coin + 's'}"  # with commas, it is not read as a year
    if not cents:
        return spoken
    return spoken_cents if not int(whole) else f"{spoken} and {spoken_cents}"


def _time(match: re.Match[str]) -> str:
    hour, minute = match[1], match[2]
    if minute == "00":
        return f"{cardinal(hour)} o'clock"
    return f"{cardinal(hour)} {'oh ' if minute[0] == '0' else ''}{cardinal(minute)}"


def _date(match: re.Match[str]) -> str:
    month = int(match[2])
    if not 1 <= month <= 12:
        return match[0]
    return f"{_MONTHS[month - 1]} {ordinal(match[3])}, {year(match[1])}"


def _decade(match: re.Match[str]) -> str:
    spoken = year(match[1]) if len(match[1]) == 4 else cardinal(match[1])
    return spoken[:-1] + "ies" if spoken.endswith("y") else spoken + "s"


def _mail_address(match: re.Match[str]) -> str:
    local, domain = (part.replace(".", " dot ") for part in match[0].split("@"))
    domain = re.sub(
        r"(?<= dot )([a-z])([a-z])$", lambda m: m[0] if m[0] in _SPOKEN_DOMAINS else f"{m[1]} {m[2]}", domain
    )
    return re.sub(r"[_-]", lambda sign: _ADDRESS_SIGNS[sign[0]], f"{local} at {domain}")


def _symbol(sign: str, spoken: str) -> tuple[re.Pattern[str], str]:
    return re.compile(re.escape(sign)), f" {spoken} "


_ADDRESS_SIGNS = {"_": " underscore ", "-": " dash "}
_SPOKEN_DOMAINS = ("co", "me")
"""Top-level domains of two letters that are not spelled."""
_WHOLE = r"(?P<whole>\d+(?:,\d{3})*)"
_AMOUNT = _WHOLE + r"(?:\.(?P<part>\d+))?(?:\s?(?P<scale>hundred|[tmb][a-z]*illion|thousand|k|m|bn?)\b)?"
_ORDINARY_WORD = re.compile(r"[a-z',;:?!]+")
"""No rule applies to it; trying them all takes longer than the rest of a word's way to its tokens."""
_RULES: list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]] = [
    (re.compile(r"\b(?:mr|mrs|dr|prof|e\.g|i\.e|etc|vs|[ap]\.m)\."), lambda m: _ABBREVIATIONS[m[0]]),
    (re.compile(r"(?<=\d)([ap])m\b"), r" \1 m"),
    (re.compile(r"(?<![a-z.])(?:[a-z]\.){2,}"), lambda m: m[0].replace(".", " ")),
    (re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), _mail_address),
    (re.compile(r"https?://|\bwww\."), ""),
    (re.compile(r"[\w-]+(?:\.[\w-]+)+\.(?:com|org|net|edu|gov|io|dev)\b"), lambda m: m[0].replace(".", " dot ")),
    (re.compile(r"\.(?=(?:com|org|net|edu|gov|io|dev|html|py|txt|json)\b)"), " dot "),
    (re.compile(rf"(?P<sign>[$€£]){_AMOUNT}"), _money),
    (re.compile(_WHOLE + r"(?:\.(?P<part>\d+))?(?P<scale>)(?P<sign>[€£])"), _money),
    (re.compile(r"(?<=\d)%"), " percent"),
    (re.compile(r"°c\b"), " degrees celsius"),
    (re.compile(r"°f\b"), " degrees fahrenheit"),
    (re.compile(r"°"), " degrees "),
    (re.compile(r"(?<![\d:])(\d{1,2}):(\d\d)(?!:?\d)"), _time),
    (re.compile(r"\b(\d{1,9})(?:st|nd|rd|th)\b"), lambda m: ordinal(m[1])),
    (re.compile(r"'?(?<!\d)(\d{1,3}0)s\b"), _decade),
    (re.compile(r"(?<![\d-])(\d{4})-(\d\d)-(\d\d)(?![\d-])"), _date),
    (re.compile(r"(?<![\d-])(?:\d-)?(?:\d{3}-)+\d{4}(?![\d-])"), lambda m: digits(m[0])),
    (re.compile(r"(?<![\d-])(\d+)-(?=\d+(?![\d-]))"), r"\1 to "),
    (re.compile(r"(?<![\w-])-(?=\d)"), "minus "),
    (re.compile(r"#(?=\d)"), "number "),
    (re.compile(r"\d+(?:\.\d+){2,}"), _version),
    (re.compile(r"(?<![\w.])\.(?=\d)"), " point "),
    (re.compile(r"(?<=[a-z])(?=\d)|(?<=\d)(?=[a-z])"), " "),
    (re.compile(rf"(?<=\d )(?:{_UNIT})(?![a-z])"), lambda m: _UNITS[m[0]]),
    (re.compile(r"\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d+)?|\d+(?:\.\d+)?"), _number),
    *(_symbol(*pair) for pair in (("&", "and"), ("+", "plus"), ("=", "equals"), ("@", "at"), ("%", "percent"))),
    (re.compile(r"\.\.+"), ","),
]
"""Applied in this order: each rule matches expressions that later rules would misread."""
