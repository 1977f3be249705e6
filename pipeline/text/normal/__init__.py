"""Written forms as words: numbers, dates, times, money, units, abbreviations and web addresses, in ten languages."""
