"""Readers yield the prose of each kind of source file, without markup, code and headings."""

import gzip
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from train.text import readers, words

GCIDE = r"""Arpeggio \Ar*peg"gio\, n. [It., fr. arpeggiare [to harp].] (Mus.)
   The production of the tones of a chord in rapid
   succession; as, a broken chord.
   [1913 Webster]

         The harp sang of itself.         --A. Poet.

   2. See {Chord}.

   (b) A {small} harp; -- called also harplet.
"""
WORDNET = """  1 a line of the licence
00001740 03 n 02 abacus 0 counting_frame 1 001 @ 0001 | a calculator with beads; "she slid the beads"
"""
PYTHON = """Heading
=======

A function returns :ref:`something <that>` for *each* item
of the ``list``.

.. note:: not this

Example::

* an item
"""
POD = "=head1 NAME\n\nThis is I<very> plain.\n\n    code();\n"
PAGE = (
    '<page><p>Press it <em>twice</em>\n &amp; wait.</p><p>Type <cmd>ls</cmd>.</p><div class="para">Fine.</div></page>'
)
ESSAY = '# Heading\n\n> _"It was [so](page.html),\n> "_ he wrote.\n\n  * an item\n'
SCENARIO = 'name= _ "Dark Water City"\n[part]\nstory= _ "In the <b>north</b> lies a bay.\\nIt is cold there."\n'
MISSION = 'on offer\n\t\t`\t"Hello, Captain <last>," she says.`\n\t\tdialog "You paid <payment> to her for it."\n'
DUNGEON = "%%%%\n# a comment\nAgnes\n\nThis spriggan is aged\nand weathered.\n%%%%\n"
JARGON = "free\n\n   <language> A {portable} word\n   [sic] for all.\n\n   (2000-08-06)\n"
SAYINGS = "An apple a day\nkeeps them away.\n\t\t-- A. Doctor\n%\nOne: a joke.\nTwo: why?\n%\n"


@pytest.mark.parametrize(
    ("name", "content", "read", "want"),
    [
        (
            "usr/share/dictd/gcide.dict.dz",
            GCIDE,
            readers.gcide,
            [
                "The production of the tones of a chord in rapid succession, as in a broken chord.",
                "The harp sang of itself.",
                "A small harp.",
            ],
        ),
        (
            "usr/share/wordnet/data.noun",
            WORDNET,
            readers.wordnet,
            [
                "An abacus is a calculator with beads.",
                "A counting frame is a calculator with beads.",
                "She slid the beads.",
            ],
        ),
        (
            "docs/a.txt",
            PYTHON,
            lambda root: readers.restructured(root, "docs"),
            ["A function returns something for each item of the ``list``."],
        ),
        ("usr/share/perl/a.pod", POD, readers.pod, ["This is very plain."]),
        ("help/a.page", PAGE, lambda root: readers.markup(root, "help/*"), ["Press it twice & wait.", "Fine."]),
        ("a/b.md.gz", ESSAY, lambda root: readers.markdown(root, "a/*.gz"), ['"It was so, " he wrote.']),
        (
            "wesnoth/a.cfg",
            SCENARIO,
            lambda root: readers.game(root, "wesnoth/*.cfg", r"_ ?\"([^\"]{15,})\""),
            ["Dark Water City", "In the north lies a bay.", "It is cold there."],
        ),
        (
            "sky/a.txt",
            MISSION,
            lambda root: readers.game(root, "sky/*.txt", r"(?m)^\t*(?:\w+ )?[`\"]([^`\n]{20,})[`\"]$"),
            ['"Hello, Captain Harper," she says.', "You paid <payment> to her for it."],
        ),
        ("usr/share/crawl/dat/descript/a.txt", DUNGEON, readers.described, ["This spriggan is aged and weathered."]),
        (
            "usr/share/dictd/jargon.dict.dz",
            JARGON,
            lambda root: readers.dictionary(root, "jargon"),
            ["free", "A portable word for all."],
        ),
        ("usr/share/games/fortunes/wisdom", SAYINGS, readers.fortunes, ["An apple a day keeps them away."]),
    ],
    ids=lambda value: value if isinstance(value, str) and "/" in value and "\n" not in value else "",
)
def test_reader_yields_prose(
    tmp_path: Path, name: str, content: str, read: Callable[[Path], Iterator[str]], want: list[str]
) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress(content.encode()) if path.suffix in (".dz", ".gz") else content.encode())
    for part in ("noun", "verb", "adj", "adv") if "wordnet" in name else ():
        (path.parent / f"data.{part}").touch()
    found = [paragraph.strip() for paragraph in read(tmp_path) if len(paragraph.strip()) > 1]
    assert found == want


def test_words_names_and_places_are_separate(tmp_path: Path) -> None:
    lists = tmp_path / "usr/share/dict"
    lists.mkdir(parents=True)
    (lists / "american-english-large").write_text("apple\napple's\nBoston\nNASA\nox\ncafé\n")
    (lists / "american-english-huge").write_text("apple\napple's\nBoston\nabaya\n")
    assert words.everyday(tmp_path) == ["apple"]
    assert words.names(tmp_path) == ["Boston"]
    assert words.known(tmp_path) == {"apple", "apple's", "boston", "abaya"}
