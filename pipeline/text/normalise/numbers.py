"""Numbers, years, ordinals and currency names in words, by num2words, and cn2an for Chinese."""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache
from typing import Any

import cn2an
from num2words import CONVERTER_CLASSES, num2words

MAX_DIGITS = 12
"""Longer numbers are read digit by digit."""

_LIBRARY_FRACTIONS = frozenset(("ru", "zh"))
"""Locales whose fractions are left to the library: Russian says "five tenths", and cn2an says every digit."""


class Numbers:
    """Numbers in the language of `locale`; `decimal` is the written mark before the fraction."""

    def __init__(self, locale: str, decimal: str) -> None:
        self._locale = locale[:2]
        self._converter: Any = CONVERTER_CLASSES.get(self._locale)
        group = "," if decimal == "." else "."
        self._grouped = re.compile(rf"\d{{1,3}}(?:[{group}\u00a0\u202f]\d{{3}})+(?:[{decimal}]\d+)?")
        self._plain = re.compile(rf"\d+(?:[{decimal}]\d+)?")
        self._marks = str.maketrans({group: "", "\u00a0": "", "\u202f": "", decimal: "."})

    def parse(self, written: str) -> str | None:
        """A written number as digits with "." before its fraction; None if it is not written as in this language."""
        if self._grouped.fullmatch(written) or self._plain.fullmatch(written):
            return written.translate(self._marks)
        # A point before other than three digits can only be a decimal point.
        return written if re.fullmatch(r"\d+\.(?:\d{1,2}|\d{4,})", written) else None

    def cardinal(self, number: str) -> str:
        """ "342", "3.05" or "007" in words."""
        whole, _, fraction = number.partition(".")
        if len(whole) > MAX_DIGITS or (len(whole) > 1 and whole[0] == "0") or len(fraction) > MAX_DIGITS:
            return self.digits(number)
        if not fraction or self._locale in _LIBRARY_FRACTIONS:
            return _cardinal(self._locale, number)
        # The library omits trailing zeros: 12.50 would become 12.5, and version 3.10 would become 3.1.
        return self._blank.join((self._until_point(whole), self.digits(fraction)))

    def _until_point(self, whole: str) -> str:
        """ "3" as "three point"."""
        return _cardinal(self._locale, f"{whole}.1").removesuffix(_cardinal(self._locale, "1")).rstrip()

    @property
    def _blank(self) -> str:
        return "" if self._locale in ("zh", "ja") else " "

    def digits(self, number: str) -> str:
        """ "007" digit by digit."""
        return self._blank.join(_cardinal(self._locale, digit) for digit in number if digit.isdigit())

    def ordinal(self, number: str) -> str:
        """ "23" as an ordinal, in the gender that days of a date have."""
        gender = {"gender": "n"} if self._locale == "ru" else {}
        ordinal = str(num2words(int(number), lang=self._locale, to="ordinal", **gender))
        return ordinal + "r" if self._locale == "de" else ordinal

    def year(self, number: str) -> str:
        """ "1998" as a year; in Chinese digit by digit."""
        if self._locale == "zh":
            return self.digits(number)
        if self._locale == "en" and number.startswith("200"):
            return self.cardinal(number)
        to = "year" if self._locale in ("en", "de") else "cardinal"
        return str(num2words(int(number), lang=self._locale, to=to))

    def coins(self, currency: str, count: int, *, minor: bool = False) -> str | None:
        """The currency's name, or with `minor` its hundredth's, inflected for `count`; None if it is unknown."""
        forms = _CHINESE_COINS.get(currency) if self._locale == "zh" else self._coin_forms(currency)
        if forms is None or not forms[minor]:
            return None
        form = forms[minor]
        return form if isinstance(form, str) else str(self._converter.pluralize(count, form))

    def _coin_forms(self, currency: str) -> Any:
        if self._locale == "ja":
            return _JAPANESE_COINS.get(currency)
        return self._converter.CURRENCY_FORMS.get(currency)


@lru_cache(maxsize=8192)
def _cardinal(locale: str, number: str) -> str:
    try:
        if locale == "zh":
            return str(cn2an.an2cn(number))
        if "." not in number:
            return str(num2words(int(number), lang=locale))
        # num2words drops the fraction of a Decimal in Italian, and shortens that of a float in Russian.
        return str(num2words(Decimal(number) if locale == "ru" else float(number), lang=locale))
    except Exception:
        # The libraries raise many kinds of errors for what a language lacks; the number then stays as written.
        return number


_CHINESE_COINS = {
    "USD": ("美元", "美分"),
    "EUR": ("欧元", "欧分"),
    "GBP": ("英镑", "便士"),
    "JPY": ("日元", ""),
    "CNY": ("元", "分"),
}
_JAPANESE_COINS = {
    "USD": ("ドル", "セント"),
    "EUR": ("ユーロ", "セント"),
    "GBP": ("ポンド", "ペンス"),
    "JPY": ("円", ""),
}
