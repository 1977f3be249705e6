"""Spells out numbers, dates, times, money, units, abbreviations and web addresses in ten languages (docs/text.md)."""
