"""Written forms into spoken words: numbers, dates, money, abbreviations."""
