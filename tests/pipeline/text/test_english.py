"""English words for numbers, symbols and abbreviations."""

from __future__ import annotations

import pytest
from voxgate.pipeline.text import english
from voxgate.pipeline.text.english import cardinal, ordinal, spoken_english, year


@pytest.mark.parametrize(
    ("number", "want"),
    [
        ("0", "zero"),
        ("21", "twenty one"),
        ("100", "one hundred"),
        ("342", "three hundred forty two"),
        ("1234567", "one million two hundred thirty four thousand five hundred sixty seven"),
    ],
)
def test_cardinals_have_no_and_or_hyphen(number: str, want: str) -> None:
    assert cardinal(number) == want


def test_ordinals_and_years() -> None:
    assert ordinal("23") == "twenty third"
    assert [year(n) for n in ("1066", "1905", "1900", "1998", "2005", "2010")] == [
        "one thousand sixty six",
        "nineteen oh five",
        "nineteen hundred",
        "nineteen ninety eight",
        "two thousand five",
        "twenty ten",
    ]


SPOKEN = """\
Hello, hello,
42 forty two
1,234 one thousand two hundred thirty four
3.14 three point one four
1998. nineteen ninety eight.
007 zero zero seven
12345678901 one two three four five six seven eight nine zero one
1,2,3 one,two,three
3rd third
$1 one dollar
$4.50 four dollars and fifty cents
$4.00 four dollars
$1,299.99 one thousand two hundred ninety nine dollars and ninety nine cents
$0.99 ninety nine cents
$3.5m three point five million dollars
£3.20 three pounds and twenty pence
5€ five euros
50% fifty percent
30°C thirty degrees celsius
4:15 four fifteen
4:05, four oh five,
4:00 four o'clock
1980s nineteen eighties
2024-05-12 may twelfth, twenty twenty four
555-1234 five five five one two three four
1-800-555-1234 one eight zero zero five five five one two three four
10-20 ten to twenty
Dr. doctor
e.g. for example
U.S. u s
FBI f b i
NASA nasa
OK okay
café cafe
2½ two and a half
1.2.3 one point two point three
example.com example dot com
help.example.com help dot example dot com
info@example.com info at example dot com
jo.doe_9@my-shop.co.uk jo dot doe underscore nine at my dash shop dot co dot u k
me@site.me me at site dot me
covid19 covid nineteen
v18.2.1 v eighteen point two point one
100$ one hundred dollars
$5-10 five to ten dollars
$20/hour twenty dollars per hour
¥500 five hundred yen
$ dollar
1/2 one half
2/3 two thirds
-3/4 minus three quarters
9/10 nine slash ten
24/7 twenty four seven
⅓ one third
11/29/2026 november twenty ninth, twenty twenty six
5*3 five times three
2^8 two to the power of eight
10⁻³ ten to the power of minus three
m² m squared
a<b a less than b
<name> name
<name name
/v1/a /v one/a
<3 less than three
x≥5 x at least five
a!=b a is not b
≠ is not
≈5 about five
2π two pi
ά alpha
µg micro g
5÷3 five divided by three
-.5 minus point five
1.5e-3 one point five e minus three
10:30-11 ten thirty to eleven
9am-5pm nine a m to five p m
~5 about five
C# c sharp
#tag hash tag
* star
II two
IV i v
https://a.b.io/c_d?e=1 a dot b dot io slash c underscore d question mark e equals one
my-shop.com my dash shop dot com
"""


@pytest.mark.parametrize("line", SPOKEN.splitlines())
def test_word_is_spelled_out(line: str) -> None:
    word, want = line.split(maxsplit=1)
    assert " ".join(spoken_english(word).split()) == want


def test_units_are_spelled_out_after_number_only() -> None:
    assert spoken_english("km", after_number=True) == "kilometers"
    assert spoken_english("pm.", after_number=True) == "p m."
    assert spoken_english("am") == "am"


def test_single_capital_is_initial_within_name_only() -> None:
    assert spoken_english("F.", initial=True) == "f"
    assert spoken_english("F.") == "f."


@pytest.mark.parametrize("word", ["there,", "don't", "'tis", "am,", "www:", "80s", "etc.", "a-b"])
def test_no_rule_changes_words_that_skip_the_rules(word: str) -> None:
    spoken = word
    for pattern, replacement in english._RULES:
        spoken = pattern.sub(replacement, spoken)
    assert spoken_english(word) == spoken
