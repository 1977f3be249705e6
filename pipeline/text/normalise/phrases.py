"""The words of each language that number and locale data do not have."""

# ruff: noqa: RUF001 - letters of many scripts are the subject here.
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Phrases:
    """One language. `locale` is CLDR's name of it, `decimal` the mark before the fraction of a number."""

    locale: str
    decimal: str
    percent: str
    minus: str
    to: str
    dot: str
    at: str
    slash: str
    dash: str
    times: tuple[str, str, str]
    """A time as "{h}…{m}": on the hour, with one digit of minutes, with two."""
    abbreviations: Mapping[str, str] = field(default_factory=dict)
    """Lower case, as written, to what is said; a period that may end a sentence is kept."""
    magnitudes: tuple[str, ...] = ()
    """What may stand between an amount and its currency, lower case."""
    dates: str = "{day} {month} {year}"
    month_first: bool = False
    """Of a date in numbers, 3/4/2025, the month comes first."""
    pairs_in_years: bool = False
    """1998 is read in pairs of digits even where nothing says that it is a year."""
    blank: str = " "
    """Between words."""
    before_numbers: Mapping[str, str] = field(default_factory=dict)
    """Abbreviations that stand for something only where a digit follows: "No. 5", and not "No. I am not"."""
    before_names: Mapping[str, str] = field(default_factory=dict)
    """What they stand for where a capital follows: "St. Louis", and not "Main St."."""
    clock: str = ""
    """What may be written behind a time and is in `times` already."""


_ENGLISH = Phrases(
    "en",
    ".",
    "percent",
    "minus",
    "to",
    "dot",
    "at",
    "slash",
    "dash",
    ("{h} o'clock", "{h} oh {m}", "{h} {m}"),
    {
        **{"mr.": "Mister", "mrs.": "Missus", "ms.": "Miss", "dr.": "Doctor", "prof.": "Professor", "st.": "Street"},
        **{"e.g.": "for example", "i.e.": "that is", "etc.": "et cetera.", "vs.": "versus", "approx.": "approximately"},
        **{"dept.": "department", "jr.": "Junior", "sr.": "Senior", "ft.": "feet", "&": "and"},
    },
    ("hundred", "thousand", "million", "billion", "trillion"),
    "{month} {day}, {year}",
    month_first=True,
    pairs_in_years=True,
    before_numbers={"no.": "number"},
    before_names={"st.": "Saint"},
)

PHRASES: Mapping[str, Phrases] = {
    "english": _ENGLISH,
    "german": Phrases(
        "de",
        ",",
        "Prozent",
        "minus",
        "bis",
        "Punkt",
        "at",
        "Schrägstrich",
        "Bindestrich",
        ("{h} Uhr", "{h} Uhr {m}", "{h} Uhr {m}"),
        {
            **{"z.b.": "zum Beispiel", "d.h.": "das heißt", "u.a.": "unter anderem", "usw.": "und so weiter."},
            **{"bzw.": "beziehungsweise", "ca.": "circa", "nr.": "Nummer", "dr.": "Doktor", "prof.": "Professor"},
            **{"str.": "Straße", "evtl.": "eventuell", "ggf.": "gegebenenfalls", "inkl.": "inklusive", "&": "und"},
        },
        ("tausend", "million", "millionen", "milliarde", "milliarden", "billionen"),
        pairs_in_years=True,
        clock="Uhr",
    ),
    "french": Phrases(
        "fr",
        ",",
        "pour cent",
        "moins",
        "à",
        "point",
        "arobase",
        "barre oblique",
        "tiret",
        ("{h} heures", "{h} heures {m}", "{h} heures {m}"),
        {
            **{"m.": "Monsieur", "mme": "Madame", "mlle": "Mademoiselle", "dr": "Docteur", "etc.": "et cetera."},
            **{"p.ex.": "par exemple", "c.-à-d.": "c'est-à-dire", "n°": "numéro", "env.": "environ", "&": "et"},
        },
        ("mille", "million", "millions", "milliard", "milliards"),
    ),
    "spanish": Phrases(
        "es",
        ",",
        "por ciento",
        "menos",
        "a",
        "punto",
        "arroba",
        "barra",
        "guion",
        ("{h}", "{h} y {m}", "{h} y {m}"),
        {
            **{"sr.": "señor", "sra.": "señora", "srta.": "señorita", "dr.": "doctor", "dra.": "doctora"},
            **{"ud.": "usted", "uds.": "ustedes", "etc.": "etcétera.", "p.ej.": "por ejemplo", "n.º": "número"},
            **{"aprox.": "aproximadamente", "&": "y"},
        },
        ("mil", "millón", "millones", "billones"),
        "{day} de {month} de {year}",
    ),
    "italian": Phrases(
        "it",
        ",",
        "per cento",
        "meno",
        "a",
        "punto",
        "chiocciola",
        "barra",
        "trattino",
        ("{h}", "{h} e {m}", "{h} e {m}"),
        {
            **{"sig.": "signor", "sig.ra": "signora", "dott.": "dottor", "prof.": "professor", "ecc.": "eccetera."},
            **{"es.": "esempio", "ca.": "circa", "&": "e"},
        },
        ("mila", "milione", "milioni", "miliardo", "miliardi"),
        before_numbers={"n.": "numero"},
    ),
    "portuguese": Phrases(
        "pt",
        ",",
        "por cento",
        "menos",
        "a",
        "ponto",
        "arroba",
        "barra",
        "hífen",
        ("{h} horas", "{h} e {m}", "{h} e {m}"),
        {
            **{"sr.": "senhor", "sra.": "senhora", "dr.": "doutor", "dra.": "doutora", "etc.": "et cetera."},
            **{"p.ex.": "por exemplo", "n.º": "número", "aprox.": "aproximadamente", "&": "e"},
        },
        ("mil", "milhão", "milhões", "bilhão", "bilhões"),
        "{day} de {month} de {year}",
    ),
    "russian": Phrases(
        "ru",
        ",",
        "процентов",
        "минус",
        "до",
        "точка",
        "собака",
        "слэш",
        "дефис",
        ("{h} часов", "{h} часов {m}", "{h} часов {m}"),
        {
            **{"т.е.": "то есть", "т.д.": "так далее.", "т.п.": "тому подобное.", "т.к.": "так как", "г.": "год"},
            **{"ул.": "улица", "руб.": "рублей", "др.": "другие", "напр.": "например", "&": "и", "№": "номер"},
        },
        ("тысяч", "тысячи", "миллион", "миллиона", "миллионов", "миллиард", "миллиарда", "миллиардов"),
        "{day} {month} {year} года",
    ),
    "chinese": Phrases(
        "zh_Hans_CN",
        ".",
        "百分之",
        "负",
        "到",
        "点",
        "艾特",
        "斜杠",
        "杠",
        ("{h}点", "{h}点{m}分", "{h}点{m}分"),
        magnitudes=("万", "亿"),
        dates="{year}年{month}{day}日",
        blank="",
    ),
    "japanese": Phrases(
        "ja",
        ".",
        "パーセント",
        "マイナス",
        "から",
        "ドット",
        "アット",
        "スラッシュ",
        "ハイフン",
        ("{h}時", "{h}時{m}分", "{h}時{m}分"),
        magnitudes=("万", "億"),
        dates="{year}年{month}{day}日",
        blank="",
    ),
    "korean": Phrases(
        "ko",
        ".",
        "퍼센트",
        "마이너스",
        "에서",
        "닷",
        "앳",
        "슬래시",
        "하이픈",
        ("{h}시", "{h}시 {m}분", "{h}시 {m}분"),
        magnitudes=("만", "억"),
        dates="{year}년 {month} {day}일",
    ),
}
