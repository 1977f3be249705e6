"""Text normalisation: words for expressions, text that stays unchanged, and independence of fragments."""

# ruff: noqa: RUF001 - punctuation and letters of many scripts are the subject here.
from __future__ import annotations

import os
import random

import pytest
from voxgate.pipeline.text.normalise.normaliser import MAX_WORD_CHARACTERS, Normaliser, can_normalise
from voxgate.pipeline.text.normalise.phrases import PHRASES
from voxgate.pipeline.text.source_map import SourceMappedText

SENTENCES = {
    "english": """Dr. Smith paid $4.50, → Doctor Smith paid four dollars and fifty cents,
i.e. 50% off. → that is fifty percent off.
On May 12, 2024 at 4:15 pm. → On May twelfth, twenty twenty-four at four fifteen pm.
12 May 2024 → twelfth May twenty twenty-four
It was 12. May I? → It was twelve. May I?
on 2024-05-12 or 3/4/2025 → on May twelfth, twenty twenty-four or March fourth, twenty twenty-five
2024-13-12 → 2024-13-12
9:00, 9:05 and 21:30 → nine o'clock, nine oh five and twenty-one thirty
$5 million, $5 mill, $1, $0.99 → five million dollars, five dollars mill, one dollar, ninety-nine cents
-5 °C and 30°F → minus five degrees Celsius and thirty degrees Fahrenheit
5 km/h, 1 km, 5 kmh → five kilometers per hour, one kilometer, five kmh
5G and 5 g, A4, 4x4, B2B → 5G and five grams, A4, 4x4, B2B
3rd 21st → third twenty-first
10-20 people, 555-1234 → ten to twenty people, five five five, one two three four
1,234,567.89 → one million, two hundred and thirty-four thousand, five hundred and sixty-seven point eight nine
007 1998 2005 → zero zero seven nineteen ninety-eight two thousand and five
1.2.3 → one dot two dot three
See https://www.example.com/a-b. → See example dot com slash a dash b.
Mail a_b1@x.org! → Mail a _ b one at x dot org!
+5%, +12345678 → +five percent, +one two three four five six seven eight
End.Start e.g. → End.Start for example
(5 km) → (five kilometers)
Tea, milk, etc. Then → Tea, milk, et cetera. Then
“$3” → “three dollars”
No. I said no. Room No. 5, no. → No. I said no. Room number five, no.
St. Louis, Main St., 5th St. → Saint Louis, Main Street, fifth Street
Python 3.10, 1.0 and 2.50 m → Python three point one zero, one point zero and two point five zero meters
(555) 123-4567 → (five five five) one two three, four five six seven
1-800-555-1234 → one, eight zero zero, five five five, one two three four
(555) people, (555) → (five hundred and fifty-five) people, (five hundred and fifty-five)""",
    "german": """Am 12. Mai um 16:30 → Am zwölfter Mai um sechzehn Uhr dreißig
1.234,50 € bzw. → eintausendzweihundertvierunddreißig Euro und fünfzig Cent beziehungsweise
3,5 %. → drei Komma fünf Prozent.
Nr. 5 usw. 5 km/h → Nummer fünf und so weiter. fünf Kilometer pro Stunde
Es waren 12. Dann → Es waren zwölf. Dann
1998 → neunzehnhundertachtundneunzig
Um 14:30 Uhr, 9:05 Uhr, 14 Uhr, 10:00. → Um vierzehn Uhr dreißig, neun Uhr fünf, vierzehn Uhr, zehn Uhr.
12,50 und 3,05 → zwölf Komma fünf null und drei Komma null fünf""",
    "french": """Le 1 mai à 16:05, M. Dupont → Le premier mai à seize heures cinq, Monsieur Dupont
12,50 € pour 3 kg → douze euros et cinquante centimes pour trois kilogrammes
soit 50 %. → soit cinquante pour cent.""",
    "spanish": """pagó $5 millones → pagó cinco millones de dólares
12 de mayo → doce de mayo""",
    "italian": """12,5 e n. 3, n. di → dodici virgola cinque e numero tre, n. di
Il sig. Rossi, 12/05/2024 → Il signor Rossi, dodici maggio duemilaventiquattro""",
    "portuguese": """em 12/05/2024 → em doze de maio de dois mil e vinte e quatro""",
    "russian": """12 мая, 21 $ и 5 км. → двенадцатое мая, двадцать один доллар и пять километров.
2 $, 5 $ → два доллара, пять долларов
3,50 → три целых пятьдесят сотых""",
    "chinese": """2024年5月12日，￥100 → 二零二四年五月十二日，一百元
涨了50%，5 km，16:30。 → 涨了百分之五十，五公里，十六点三十分。
￥5万 → 五万元""",
    "japanese": """2024年に$100、50%です。 → 二千二十四年に百ドル、五十パーセントです。""",
    "korean": """5월 12일, 50% → 오월 십이일, 오십 퍼센트""",
}


def mapped(text: str, start: int = 0) -> SourceMappedText:
    return SourceMappedText(text, tuple(range(start + 1, start + len(text) + 1)))


def normalised(language: str, *fragments: str) -> tuple[str, tuple[int, ...]]:
    normaliser, at = Normaliser(language), 0
    parts = []
    for fragment in fragments:
        parts.append(normaliser.push(mapped(fragment, at)))
        at += len(fragment)
    parts.append(normaliser.flush())
    return "".join(part.text for part in parts), tuple(end for part in parts for end in part.ends)


@pytest.mark.parametrize(
    ("language", "line"), [(language, line) for language, lines in SENTENCES.items() for line in lines.splitlines()]
)
def test_expressions_are_spelled_out(language: str, line: str) -> None:
    text, spoken = line.split(" → ")
    assert normalised(language, text)[0] == spoken
    assert normalised(language, *text)[0] == spoken, "character by character"


def test_every_language_is_tested() -> None:
    assert SENTENCES.keys() == PHRASES.keys()


PARTS = [
    *"abTé.,!?;:()\n -–/&@%°$€£¥#1235０½今年万。，한",
    *["$4.50 ", "$3 ", "million", " Mai", "12. ", "May 12, ", "4:15", "1998", "Dr.", "e.g. ", "3rd", " km", "km/h"],
    *[
        "12,345",
        "1.234,5",
        "555-1234",
        "www.a.com",
        "a@b.org",
        "x" * (MAX_WORD_CHARACTERS + 3),
        "“",
        "”",
        "usw.",
        "2024-05-12",
    ],
    *["No.", "St. ", "n. ", "(555) ", "123-4567", "14:30 ", "Uhr", "3.10"],
]


@pytest.mark.parametrize("language", ["auto", *PHRASES])
def test_output_does_not_depend_on_fragments(language: str) -> None:
    rng = random.Random(language)
    for _ in range(int(os.environ.get("VOXGATE_TEST_FUZZ", "4000")) // 10):
        text = "".join(rng.choices(PARTS, k=rng.randint(1, 12)))
        want = normalised(language, text)
        assert list(want[1]) == sorted(want[1])
        assert len(want[0]) == len(want[1])
        places = sorted(rng.choices(range(len(text) + 1), k=rng.randint(1, 5)))
        cuts = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
        assert normalised(language, *cuts) == want, cuts
        assert normalised(language, *text) == want, text


def test_text_without_expressions_is_unchanged() -> None:
    for text in (
        "Hello, how are you?",
        "It’s “fine” — no?",
        "Привет, мир.",
        "你好，世界。",
        "안녕하세요",
        "😀 ok",
        "a\n\nb",
    ):
        for language in PHRASES:
            assert normalised(language, text) == (text, tuple(range(1, len(text) + 1)))


@pytest.mark.parametrize(
    ("text", "out"),
    [
        ("hello", ""),
        ("hello ", "hello "),
        ("hello, ", "hello, "),
        ("it is 3", "it is "),
        ("it is 3,", "it is "),
        ("it is 3, ", "it is three, "),
        ("it is 3 ", "it is "),
        ("it is 3 k", "it is "),
        ("it is 3 kids", "it is three "),
        ("it is 3 km", "it is "),
        ("it is 3 km,", "it is three kilometers"),
        ("it is 3 x", "it is three "),
    ],
)
def test_changeable_text_is_held_back(text: str, out: str) -> None:
    assert Normaliser("english").push(mapped(text)).text == out


def test_words_keep_their_source_offsets() -> None:
    text, ends = normalised("english", "It is $4.50, ok")
    reached = {word: ends[text.index(word) + len(word) - 1] for word in text.split()}
    assert reached["is"] == 5
    assert 6 < reached["four"] < reached["dollars"] < reached["cents,"] == 12
    assert reached["ok"] == 15


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("5 km", "five kilometers"),
        ("5", "five"),
        ("5 км", "пять километров"),
        ("第5", "第五"),
        ("5원, 5%", "오원, 오 퍼센트"),
        ("の5%", "の五パーセント"),
        ("... 5", "... five"),
        ("1" * MAX_WORD_CHARACTERS + "1 км", "1" * MAX_WORD_CHARACTERS + "one kilometer"),
    ],
)
def test_first_letter_selects_language(text: str, spoken: str) -> None:
    assert normalised("auto", text)[0] == spoken
    assert normalised("auto", *text)[0] == spoken


def test_language_is_selected_again_after_flush() -> None:
    normaliser = Normaliser("auto")
    normaliser.push(mapped("да 5"))
    assert normaliser.flush().text == "пять"
    normaliser.push(mapped("yes 5", 4))
    assert normaliser.flush().text == "five"


def test_dialects_are_normalised_as_chinese() -> None:
    assert can_normalise("sichuan_dialect")
    assert can_normalise("auto")
    assert not can_normalise("klingon")
    assert normalised("sichuan_dialect", "5")[0] == "五"


def test_flush_adds_closing_mark() -> None:
    normaliser = Normaliser("english", ".")
    assert normaliser.push(mapped("one 2")).text == "one "
    assert normaliser.flush().text == "two."
    assert normaliser.push(mapped("3!", 5)).text + normaliser.flush().text == "three!"
    assert normaliser.flush().text == ""
