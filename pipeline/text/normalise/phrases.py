"""Words and conventions of each language that num2words and Babel's locale data lack."""

# ruff: noqa: RUF001 - letters of many scripts are the subject here.
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


def table(pairs: str) -> dict[str, str]:
    """ "km kilometers; cm centimeters" as a dictionary."""
    return dict(pair.split(maxsplit=1) for pair in pairs.split(";"))


@dataclass(frozen=True, slots=True)
class Phrases:
    """One language: the words for signs, and how expressions are composed."""

    locale: str
    """CLDR's identifier."""
    decimal: str
    """The mark before the fraction of a number."""
    percent: str
    minus: str
    to: str
    """Between the ends of a range."""
    dot: str
    at: str
    slash: str
    dash: str
    times: tuple[str, str, str]
    """A time, with {h} and {m}: on the hour, with one digit of minutes, and with two."""
    abbreviations: Mapping[str, str] = field(default_factory=dict)
    """Words for abbreviations, by their lower-case form; a period that may end the sentence is kept."""
    magnitudes: tuple[str, ...] = ()
    """Words that may follow an amount of money, in lower case."""
    dates: str = "{day} {month} {year}"
    month_first: bool = False
    """Whether the month comes first in numeric dates such as 3/4/2025."""
    pairs_in_years: bool = False
    """Whether a number like 1998 is read as a year, in pairs of digits, without context."""
    blank: str = " "
    """Separator between words."""
    before_numbers: Mapping[str, str] = field(default_factory=dict)
    """Words for abbreviations before a digit only: "No. 5", but not "No. I am not"."""
    before_names: Mapping[str, str] = field(default_factory=dict)
    """Words for abbreviations before a capital only: "St. Louis", but not "Main St."."""
    clock: str = ""
    """A word that may follow a written time and is part of `times`."""


PHRASES: Mapping[str, Phrases] = {
    "english": Phrases(
        locale="en",
        decimal=".",
        percent="percent",
        minus="minus",
        to="to",
        dot="dot",
        at="at",
        slash="slash",
        dash="dash",
        times=("{h} o'clock", "{h} oh {m}", "{h} {m}"),
        abbreviations=table("""
            mr. Mister; mrs. Missus; ms. Miss; dr. Doctor; prof. Professor; st. Street; e.g. for example;
            i.e. that is; etc. et cetera.; vs. versus; approx. approximately; dept. department; jr. Junior;
            sr. Senior; ft. feet; & and"""),
        magnitudes=("hundred", "thousand", "million", "billion", "trillion"),
        dates="{month} {day}, {year}",
        month_first=True,
        pairs_in_years=True,
        before_numbers={"no.": "number"},
        before_names={"st.": "Saint"},
    ),
    "german": Phrases(
        locale="de",
        decimal=",",
        percent="Prozent",
        minus="minus",
        to="bis",
        dot="Punkt",
        at="at",
        slash="Schrägstrich",
        dash="Bindestrich",
        times=("{h} Uhr", "{h} Uhr {m}", "{h} Uhr {m}"),
        abbreviations=table("""
            z.b. zum Beispiel; d.h. das heißt; u.a. unter anderem; usw. und so weiter.; bzw. beziehungsweise;
            ca. circa; nr. Nummer; dr. Doktor; prof. Professor; str. Straße; evtl. eventuell; ggf. gegebenenfalls;
            inkl. inklusive; & und"""),
        magnitudes=("tausend", "million", "millionen", "milliarde", "milliarden", "billionen"),
        pairs_in_years=True,
        clock="Uhr",
    ),
    "french": Phrases(
        locale="fr",
        decimal=",",
        percent="pour cent",
        minus="moins",
        to="à",
        dot="point",
        at="arobase",
        slash="barre oblique",
        dash="tiret",
        times=("{h} heures", "{h} heures {m}", "{h} heures {m}"),
        abbreviations=table("""
            m. Monsieur; mme Madame; mlle Mademoiselle; dr Docteur; etc. et cetera.; p.ex. par exemple;
            c.-à-d. c'est-à-dire; n° numéro; env. environ; & et"""),
        magnitudes=("mille", "million", "millions", "milliard", "milliards"),
    ),
    "spanish": Phrases(
        locale="es",
        decimal=",",
        percent="por ciento",
        minus="menos",
        to="a",
        dot="punto",
        at="arroba",
        slash="barra",
        dash="guion",
        times=("{h}", "{h} y {m}", "{h} y {m}"),
        abbreviations=table("""
            sr. señor; sra. señora; srta. señorita; dr. doctor; dra. doctora; ud. usted; uds. ustedes;
            etc. etcétera.; p.ej. por ejemplo; n.º número; aprox. aproximadamente; & y"""),
        magnitudes=("mil", "millón", "millones", "billones"),
        dates="{day} de {month} de {year}",
    ),
    "italian": Phrases(
        locale="it",
        decimal=",",
        percent="per cento",
        minus="meno",
        to="a",
        dot="punto",
        at="chiocciola",
        slash="barra",
        dash="trattino",
        times=("{h}", "{h} e {m}", "{h} e {m}"),
        abbreviations=table("""
            sig. signor; sig.ra signora; dott. dottor; prof. professor; ecc. eccetera.; es. esempio; ca. circa; & e"""),
        magnitudes=("mila", "milione", "milioni", "miliardo", "miliardi"),
        before_numbers={"n.": "numero"},
    ),
    "portuguese": Phrases(
        locale="pt",
        decimal=",",
        percent="por cento",
        minus="menos",
        to="a",
        dot="ponto",
        at="arroba",
        slash="barra",
        dash="hífen",
        times=("{h} horas", "{h} e {m}", "{h} e {m}"),
        abbreviations=table("""
            sr. senhor; sra. senhora; dr. doutor; dra. doutora; etc. et cetera.; p.ex. por exemplo; n.º número;
            aprox. aproximadamente; & e"""),
        magnitudes=("mil", "milhão", "milhões", "bilhão", "bilhões"),
        dates="{day} de {month} de {year}",
    ),
    "russian": Phrases(
        locale="ru",
        decimal=",",
        percent="процентов",
        minus="минус",
        to="до",
        dot="точка",
        at="собака",
        slash="слэш",
        dash="дефис",
        times=("{h} часов", "{h} часов {m}", "{h} часов {m}"),
        abbreviations=table("""
            т.е. то есть; т.д. так далее.; т.п. тому подобное.; т.к. так как; г. год; ул. улица; руб. рублей;
            др. другие; напр. например; & и; № номер"""),
        magnitudes=("тысяч", "тысячи", "миллион", "миллиона", "миллионов", "миллиард", "миллиарда", "миллиардов"),
        dates="{day} {month} {year} года",
    ),
    "chinese": Phrases(
        locale="zh_Hans_CN",
        decimal=".",
        percent="百分之",
        minus="负",
        to="到",
        dot="点",
        at="艾特",
        slash="斜杠",
        dash="杠",
        times=("{h}点", "{h}点{m}分", "{h}点{m}分"),
        magnitudes=("万", "亿"),
        dates="{year}年{month}{day}日",
        blank="",
    ),
    "japanese": Phrases(
        locale="ja",
        decimal=".",
        percent="パーセント",
        minus="マイナス",
        to="から",
        dot="ドット",
        at="アット",
        slash="スラッシュ",
        dash="ハイフン",
        times=("{h}時", "{h}時{m}分", "{h}時{m}分"),
        magnitudes=("万", "億"),
        dates="{year}年{month}{day}日",
        blank="",
    ),
    "korean": Phrases(
        locale="ko",
        decimal=".",
        percent="퍼센트",
        minus="마이너스",
        to="에서",
        dot="닷",
        at="앳",
        slash="슬래시",
        dash="하이픈",
        times=("{h}시", "{h}시 {m}분", "{h}시 {m}분"),
        magnitudes=("만", "억"),
        dates="{year}년 {month} {day}일",
    ),
}
