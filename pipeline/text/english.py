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
from .normalise.phrases import PHRASES, table

_PHRASES = PHRASES["english"]
_NUMBERS = Numbers(_PHRASES.locale, _PHRASES.decimal)
MAGNITUDES = _PHRASES.magnitudes

_PLAIN = str.maketrans(
    table(
        """’ '; ‘ '; “ "; ” "; – -; ‐ -; ⁄ /; ≠ !=; ≤ <=; ≥ >=; ß ss; æ ae;
        Æ AE; œ oe; Œ OE; ø o; Ø O; ł l; Ł L; đ d; ð d; þ th"""
    )
)
_ABBREVIATIONS = {"a.m.": "a m", "p.m.": "p m"} | {
    written: _PHRASES.abbreviations[written].lower().removesuffix(".")
    for written in ("mr.", "mrs.", "dr.", "prof.", "e.g.", "i.e.", "etc.", "vs.")
}
_ACRONYMS = frozenset(
    "AI API APIS ATM CEO CIA CPU CPUS DIY DNA EU FAQ FBI GPU GPUS HTML IBM IO IP IV MIT NBA OS RNA UFO UI UK UN"
    " URL USA USB VIP VOIP".split()
)
_ROMAN = "II III IV V VI VII VIII IX".split()
_TITLES = frozenset(("MR", "MRS", "DR", "ST"))
_CURRENCIES = {
    sign: coins.split()
    for sign, coins in table(
        """$ dollar dollars cent cents; € euro euros cent cents; £ pound pounds penny pence; ¥ yen yen sen sen;
        ₹ rupee rupees paisa paise"""
    ).items()
}
CURRENCY_SIGNS = "".join(_CURRENCIES)
MONEY = re.compile(rf"[{CURRENCY_SIGNS}]\d[\d,]*(?:\.\d+)?")
_UNITS = table(
    """km/h kilometers per hour; mph miles per hour; km kilometers; cm centimeters; mm millimeters; kg kilograms;
    mg milligrams; ml milliliters; lb pounds; lbs pounds; ft feet; kb kilobytes; mb megabytes; gb gigabytes;
    tb terabytes; hz hertz; khz kilohertz; mhz megahertz; ghz gigahertz; am a m; pm p m; / slash; * times"""
) | {sign: coin[1] for sign, coin in _CURRENCIES.items()}
_MONTHS = "january february march april may june july august september october november december".split()
_SCALES = table("k thousand; m million; b billion; bn billion")
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
        word = re.sub(rf"^(?:{_UNIT})(?![a-z\d*])", lambda m: _UNITS[m[0]], word)
        word = re.sub(r"^(?=\d/\d(?![\d/]))", "and ", word)
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
    """Replace accented letters and typographic signs by ASCII, and Greek letters by their names."""
    if word.isascii():
        return word
    word = re.sub(r"[²³¹⁰⁴-⁻]+", r"^\g<0>", word.replace("™", "").replace("µ", "micro "))
    word = re.sub(r"(?<=\d)(?=[¼-¾⅐-⅞])", " and ", word)
    word = re.sub(r"[¼-¾⅐-⅞]", r"\g<0> ", word)
    word = unicodedata.normalize("NFKC", word).translate(_PLAIN)
    word = re.sub(r"(?<![Α-ω])[Α-ΡΣ-ω](?![Α-ω])", _letter, word)
    return "".join(char for char in unicodedata.normalize("NFKD", word) if not unicodedata.combining(char))


def _letter(match: re.Match[str]) -> str:
    """ "π" as "pi"."""
    letter = unicodedata.normalize("NFKD", match[0])[0]  # without accent
    return f" {unicodedata.name(letter).split()[-1].lower()} "


def _acronym(letters: str) -> str:
    if letters == "OK":
        return "okay"
    if letters != "IV" and letters in _ROMAN:
        return cardinal(str(_ROMAN.index(letters) + 2))
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
    coin, coins, cent, cents = _CURRENCIES[match["sign"]]
    whole, part = match["whole"].replace(",", ""), match["part"] or ""
    scale = match["scale"] and _SCALES.get(match["scale"], match["scale"])
    if scale or len(part) not in (0, 2):
        return f"{whole}.{part} {scale or ''} {coins}" if part else f"{whole} {scale} {coins}"
    spoken_cents = f"{int(part or 0)} {cent if part == '01' else cents}"
    spoken = f"{int(whole):,} {coin if whole == '1' else coins}"  # with commas, it is not read as a year
    if not int(part or 0):
        return spoken
    return spoken_cents if not int(whole) else f"{spoken} and {spoken_cents}"


def _fraction(match: re.Match[str]) -> str:
    above, below = int(match[2]), int(match[3])
    if not 0 < above < below < 10:
        return f"{match[2]} slash {match[3]}"
    name = {2: "half", 4: "quarter"}.get(below) or ordinal(match[3])
    return f"and a {name}" if match[1] and above == 1 else f"{match[1] or ''}{above} {name}{'s' * (above > 1)}"


def _time(match: re.Match[str]) -> str:
    hour, minute = match[1], match[2]
    if minute == "00":
        return f"{cardinal(hour)} o'clock"
    return f"{cardinal(hour)} {'oh ' if minute[0] == '0' else ''}{cardinal(minute)}"


def _date(match: re.Match[str]) -> str:
    month = int(match["month"])
    if not 1 <= month <= 12:
        return match[0]
    return f"{_MONTHS[month - 1]} {ordinal(match['day'])}, {year(match['year'])}"


def _decade(match: re.Match[str]) -> str:
    spoken = year(match[1]) if len(match[1]) == 4 else cardinal(match[1])
    return spoken[:-1] + "ies" if spoken.endswith("y") else spoken + "s"


def _mail_address(match: re.Match[str]) -> str:
    local, domain = map(_address, match[0].split("@"))
    domain = re.sub(
        r"(?<= dot )([a-z])([a-z])$", lambda m: m[0] if m[0] in _SPOKEN_DOMAINS else f"{m[1]} {m[2]}", domain
    )
    return f"{local} at {domain}"


def _address(address: str) -> str:
    return re.sub(r"[_./?#-](?=\w)", lambda sign: f" {_ADDRESS_SIGNS[sign[0]]} ", address)


_ADDRESS_SIGNS = table("_ underscore; - dash; . dot; / slash; ? question mark; # hash")
_SPOKEN_DOMAINS = ("co", "me")
"""Top-level domains of two letters that are not spelled."""
_SYMBOLS = table(
    """!= is not; <= at most; >= at least; -> to; => to; < less than; > greater than; & and;
    +/- plus or minus; + plus; = equals; @ at; % percent; × times;
    ÷ divided by; → to; ± plus minus; ≈ about; √ root; ∞ infinity; ¢ cents; § section; − minus"""
) | {sign: coin[0] for sign, coin in _CURRENCIES.items()}
_WHOLE = r"(?P<whole>\d+(?:,\d{3})*)"
_AMOUNT = _WHOLE + r"(?:\.(?P<part>\d+))?(?:\s?(?P<scale>hundred|[tmb][a-z]*illion|thousand|k|m|bn?)\b)?"
_ORDINARY_WORD = re.compile(r"[a-z',;:?!]+")
"""No rule applies to it; trying them all takes longer than the rest of a word's way to its tokens."""
_WRITTEN: list[tuple[str, str | Callable[[re.Match[str]], str]]] = [
    (r"\b(?:mr|mrs|dr|prof|e\.g|i\.e|etc|vs|[ap]\.m)\.", lambda m: _ABBREVIATIONS[m[0]]),
    (r"</?([a-z][^<>]*)>|^<(?=[a-z])|(?<=[a-z])>$", r" \1 "),
    (r"(?<=\d)([ap])m\b", r" \1 m"),
    (r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+", _mail_address),
    (
        r"(?:https?://(?:www\.)?|\bwww\.|(?=\b(?:[\w-]+\.)+(?:com|org|net|edu|gov|io|dev)\b))(\S+)",
        lambda m: _address(m[1]),
    ),
    (r"(?<![a-z.])(?:[a-z]\.){2,}", lambda m: m[0].replace(".", " ")),
    (r"\.(?=(?:com|org|net|edu|gov|io|dev|html|py|txt|json)\b)", " dot "),
    (r"(\b\d[\d.,]*[kmb%]?)/(?=[a-z])", r"\1 per "),
    (rf"([{CURRENCY_SIGNS}])([\d,.]+)-\1?(?=\d)", r"\2 to \1"),
    (rf"(?P<sign>[{CURRENCY_SIGNS}]){_AMOUNT}", _money),
    (_WHOLE + rf"(?:\.(?P<part>\d+))?(?P<scale>)(?P<sign>[{CURRENCY_SIGNS}])", _money),
    (r"(:\d\d|\b[ap] m|%)-(?=\d)", r"\1 to "),
    (r"(?<=\d)%", " percent"),
    (r"°c\b", " degrees celsius"),
    (r"°f\b", " degrees fahrenheit"),
    (r"°", " degrees "),
    (r"(?<![\d:])(\d{1,2}):(\d\d)(?!:?\d)", _time),
    (r"\b(\d{1,9})(?:st|nd|rd|th)\b", lambda m: ordinal(m[1])),
    (r"'?(?<!\d)(\d{1,3}0)s\b", _decade),
    (r"(?<![\d-])(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)(?![\d-])", _date),
    (r"(?<![\d/])(?P<month>\d\d?)/(?P<day>\d\d?)/(?P<year>\d{4})(?![\d/])", _date),
    (r"\b(24(?=/7\b)|9(?=/11\b))/", r"\1 "),
    (r"(and )?(?<![\d/])(\d{1,3})/(\d{1,3})(?![\d/])", _fraction),
    (r"(?<![\d-])(?:\d-)?(?:\d{3}-)+\d{4}(?![\d-])", lambda m: digits(m[0])),
    (r"(?<![\d-])(\d+)-(?=\d+(?![\d-]))", r"\1 to "),
    (r"(?:(?<![\w-])|(?<=\de))-(?=\.?\d)", " minus "),
    (r"#(?=\d)", "number "),
    (r"(?<=\b[a-z])#", " sharp "),
    (r"#(?=[a-z])|^#(?=[.,;:?!]?$)", " hash "),
    (r"^\*(?=[.,;:?!]?$)", "star"),
    (r"~(?=\d)", "about "),
    (r"(?<=\d)/(?=\d)", " slash "),
    (r"(?<=\d)\*\*(?=\d)", "^"),
    (r"(?<=\d)\*(?=\w)|(?<=\w)\*(?=\d)", " times "),
    (r"\^2\b", " squared "),
    (r"\^3\b", " cubed "),
    (r"(?<=[\w)])\^(?=[\w( −])", " to the power of "),
    (r"(?<=[a-z])(?=\d)|(?<=\d)(?=[a-z])", " "),
    (r"\d+(?:\.\d+){2,}", _version),
    (r"(?<![\w.])\.(?=\d)", " point "),
    (rf"(?<=\d )(?:{_UNIT})(?![a-z])", lambda m: _UNITS[m[0]]),
    (r"\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d+)?|\d+(?:\.\d+)?", _number),
    (r"/(?=(?:s|sec|min|h|hr|mo|month|year)\b)", " per "),
    ("|".join(map(re.escape, _SYMBOLS)), lambda m: f" {_SYMBOLS[m[0]]} "),
    (r"\.\.+", ","),
]
"""Applied in this order: each rule matches expressions that later rules would misread."""
_RULES = [(re.compile(pattern), replacement) for pattern, replacement in _WRITTEN]
