"""Step: downloads the sources of the training text. `python -m train.text.sources W` unpacks them under W/debian

The table of sources: their Debian packages, their licences, and how many sentences are used. Only weights are
distributed, none of these texts.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from . import frequent, readers


@dataclass(frozen=True, slots=True)
class TextSource:
    """A source of text; `max_sentences` limits the share of its style."""

    name: str
    packages: tuple[str, ...]
    licence: str
    max_sentences: int
    paragraphs: Callable[[Path], Iterator[str]]


_WESNOTH = tuple(
    f"wesnoth-1.16-{part}"
    for part in "data did dm dw ei httt l low nr sof sota sotbe thot trow tsg ttb utbs".split()  # noqa: SIM905 - a list of strings would be much longer
)

SOURCES = (
    TextSource("wordnet", ("wordnet-base",), "WordNet", 80_000, readers.wordnet),
    TextSource("gcide", ("dict-gcide",), "GPL-2+", 40_000, readers.gcide),
    TextSource("foldoc", ("dict-foldoc",), "GFDL-1.1+", 10_000, partial(readers.dictionary, name="foldoc")),
    TextSource("jargon", ("dict-jargon",), "public domain", 6_000, partial(readers.dictionary, name="jargon")),
    TextSource("elements", ("dict-elements",), "public domain", 1_000, partial(readers.dictionary, name="elements")),
    TextSource("bible", ("bible-kjv", "bible-kjv-text"), "public domain", 9_000, readers.bible),
    TextSource(
        "fortunes",
        ("fortunes", "fortunes-min", "fortune-anarchism", "fortunes-debian-hints"),
        "BSD, GPL, quotations of mixed origin",
        20_000,
        readers.fortunes,
    ),
    TextSource(
        "python",
        ("python3.11-doc",),
        "PSF-2",
        10_000,
        partial(readers.restructured, folder="usr/share/doc/python3.11/html/_sources"),
    ),
    TextSource("perl", ("perl-doc",), "GPL-1+ or Artistic", 8_000, readers.pod),
    TextSource(
        "gnome",
        ("gnome-user-docs",),
        "CC-BY-SA-3.0",
        10_000,
        partial(readers.markup, pattern="usr/share/help/C/**/*.page"),
    ),
    TextSource(
        "office",
        ("libreoffice-help-en-us",),
        "MPL-2.0",
        8_000,
        partial(readers.markup, pattern="usr/share/libreoffice/help/en-US/**/*.html"),
    ),
    TextSource(
        "handbook",
        ("debian-handbook",),
        "GPL-2+ or CC-BY-SA-3.0",
        10_000,
        partial(readers.markup, pattern="usr/share/doc/debian-handbook/html/en-US/*.html"),
    ),
    TextSource(
        "reference",
        ("debian-reference-en",),
        "GPL-2+",
        8_000,
        partial(readers.markup, pattern="usr/share/debian-reference/*.en.html"),
    ),
    TextSource(
        "history",
        ("debian-history",),
        "GPL-2+",
        3_000,
        partial(readers.markup, pattern="usr/share/doc/debian-history/docs/*.en.html"),
    ),
    TextSource(
        "faq",
        ("debian-faq",),
        "copying permitted with its notice",
        3_000,
        partial(readers.markup, pattern="usr/share/doc/debian/FAQ/*.en.html"),
    ),
    TextSource(
        "policy",
        ("debian-policy",),
        "GPL-2+",
        5_000,
        partial(readers.markup, pattern="usr/share/doc/debian-policy/policy.html/*.html"),
    ),
    TextSource(
        "developers",
        ("developers-reference",),
        "GPL-2+",
        5_000,
        partial(readers.markup, pattern="usr/share/developers-reference/*.html"),
    ),
    TextSource(
        "anarchism",
        ("anarchism",),
        "GPL-2+",
        25_000,
        partial(readers.markdown, pattern="usr/share/doc/anarchism/markdown/*.md.gz"),
    ),
    TextSource(
        "endless-sky",
        ("endless-sky-data",),
        "GPL-3+",
        60_000,
        partial(
            readers.game,
            pattern="usr/share/games/endless-sky/data/*.txt",
            string=r"(?m)^\t*(?:\w+ )?[`\"]([^`\n]{20,})[`\"]$",
        ),
    ),
    TextSource(
        "wesnoth",
        _WESNOTH,
        "GPL-2+",
        40_000,
        partial(readers.game, pattern="usr/share/games/wesnoth/1.16/data/**/*.cfg", string=r"_ ?\"([^\"]{15,})\""),
    ),
    TextSource(
        "naev",
        ("naev-data",),
        "GPL-3+",
        40_000,
        partial(
            readers.game, pattern="usr/share/naev/dat/**/*.lua", string=r"_\((?:\"|\[\[)(.{15,}?)(?:(?<!\\)\"|\]\])\)"
        ),
    ),
    TextSource(
        "naev-worlds",
        ("naev-data",),
        "GPL-3+",
        20_000,
        partial(readers.game, pattern="usr/share/naev/dat/**/*.xml", string=r"<(?:description|bar)>(.*?)</"),
    ),
    TextSource("crawl", ("crawl-common",), "GPL-2+", 10_000, readers.described),
)
WORD_LISTS = ("wamerican-large", "wamerican-huge", "iso-codes", "libgweather-4-common")


def packages() -> list[str]:
    """All packages needed, without duplicates."""
    return list(dict.fromkeys([name for source in SOURCES for name in source.packages] + list(WORD_LISTS)))


def fetch(work: Path) -> None:
    """Download the missing packages to `work/debs`, and unpack the texts of all under `work/debian`."""
    downloads, debian = work / "debs", work / "debian"
    for folder in (downloads, debian):
        folder.mkdir(parents=True, exist_ok=True)
    missing = [name for name in packages() if not list(downloads.glob(f"{name}_*.deb"))]
    if missing:
        subprocess.run(["apt-get", "download", *missing], cwd=downloads, check=True, timeout=1200)
    large = [f"--exclude=*.{kind}" for kind in ("png", "jpg", "webp", "ogg", "wav", "pdf", "ttf", "jar")]
    for package in sorted(downloads.glob("*.deb")):
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as archive:
            subprocess.run(["tar", "x", "-C", debian, *large], stdin=archive.stdout, check=True, timeout=600)


if __name__ == "__main__":
    fetch(Path(sys.argv[1]))
    frequent.fetch(Path(sys.argv[1]))
