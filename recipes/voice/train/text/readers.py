"""Readers of source files: each yields paragraphs of plain written English; `prose.py` selects sentences from them."""

from __future__ import annotations

import gzip
import html
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path


def _text(path: Path) -> str:
    """A file's text, decompressed if necessary."""
    data = path.read_bytes()
    if path.suffix in (".gz", ".dz"):
        data = gzip.decompress(data)
    return data.decode("utf-8", "ignore")


def _paragraphs(text: str) -> list[str]:
    return re.split(r"\n\s*\n", text)


def wordnet(debian: Path) -> Iterator[str]:
    """Definitions as sentences about their words, and example sentences."""
    for part in ("noun", "verb", "adj", "adv"):
        for line in _text(debian / f"usr/share/wordnet/data.{part}").splitlines():
            fields, bar, gloss = line.partition(" | ")
            if line.startswith("  ") or not bar:
                continue
            gloss = re.sub(r"\([^()]*\)", "", gloss).strip()
            quotes = re.findall(r'"([^"]+)"', gloss)
            meaning = re.split(r"[;:]", re.sub(r'; ".*', "", gloss))[0].strip()
            for word in lemmas(fields):
                if not re.search(r"[A-Z]{2}|[\d.]", word):
                    yield defined(part, word, meaning)
            for quote in quotes:
                said = quote.strip(" ;,")
                yield said[:1].upper() + said[1:] + ("" if said.endswith((".", "?", "!")) else ".")


def lemmas(fields: str) -> list[str]:
    """The words of a WordNet entry."""
    columns = fields.split(" ")
    words = [columns[4 + 2 * n] for n in range(int(columns[3], 16))]
    return [re.sub(r"\(\w+\)$", "", word).replace("_", " ") for word in words]


def defined(part: str, word: str, meaning: str) -> str:
    """A sentence that defines a word; its pattern depends on the word."""
    capital, turn = word[0].upper() + word[1:], sum(map(ord, word))
    if part == "verb":
        return (f"To {word} is to {meaning}.", f"{capital}: to {meaning}.", f"To {word} means to {meaning}.")[turn % 3]
    if part == "noun" and re.match(r"(?:a|an|the|one|some|someone)\b", meaning):
        if word[0].isupper() or meaning.startswith("the ") or re.search(r"(?:ism|ness|ity|ing|tion|ology)$", word):
            return f"{capital} is {meaning}."
        return f"{'An' if word[0] in 'aeiou' else 'A'} {word} is {meaning}."
    if part == "adj":
        frames = (
            f"If it is {word}, it is {meaning}.",
            f"Something {word} is {meaning}.",
            f"{capital}, that is, {meaning}.",
            f"{capital} means {meaning}.",
        )
        return frames[turn % len(frames)]
    return (f"{capital} means {meaning}.", f"{capital}: {meaning}.", f"{capital}, {meaning}.")[turn % 3]


def gcide(debian: Path) -> Iterator[str]:
    """Definitions and quotations of the Collaborative International Dictionary."""
    text = _text(debian / "usr/share/dictd/gcide.dict.dz")
    for _ in range(3):  # brackets are nested
        text = re.sub(r"\[[^\[\]]*\]", "", text)
    for block in _paragraphs(text):
        lines = block.splitlines()
        if lines and not lines[0].startswith(" "):
            lines = lines[1:]  # the word, its pronunciation and its part of speech
        body = re.sub(r"\s--\s?[A-Z][^\n]*$", "", "\n".join(lines)).rstrip()
        quoted = body.startswith(" " * 9)
        body = re.sub(r"\s+", " ", re.sub(r"[{}]", "", body)).strip()
        if quoted:
            yield body
            continue
        body = re.sub(r"^(?:\d+\.|\([a-z]\))\s*|\([A-Z][\w. &]*\)", "", body)
        body = re.sub(r"\s--\s.*|; (?:-- )?(?:called|so called).*|^(?:Syn|Note|See|Same as|Cf)\b.*", "", body)
        yield body.replace("; as,", ", as in") + ("" if body.endswith((".", "?", "!")) else ".")


def dictionary(debian: Path, name: str) -> Iterator[str]:
    """Paragraphs of another dictd dictionary, without marks of cross references, tags and dates."""
    for paragraph in _paragraphs(_text(debian / f"usr/share/dictd/{name}.dict.dz")):
        if not paragraph.strip().startswith(("[", "(")):
            plain = re.sub(r"[{}]|<[^>]*>|\[[^\]]*\]|/[^/\s]+/", "", paragraph)
            yield re.sub(r"\s+", " ", plain).strip()


def bible(debian: Path) -> Iterator[str]:
    """The verses of the King James Bible, extracted by the package's program."""
    library = debian / "usr/lib"
    run = subprocess.run(
        [debian / "usr/bin/bible", "-p", library, "-f"],
        input="Gen1:1-Rev22:21\n",
        cwd=library,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    for line in run.stdout.splitlines():
        if match := re.match(r"\w+:\d+ (.*)", line):
            yield re.sub(r"[:;] (?=[a-z])", ", ", match[1])


def fortunes(debian: Path) -> Iterator[str]:
    """Quotations without their authors."""
    skipped = {"ascii-art", "translate-me", "drugs", "ethnic", "men-women", "zippy", "perl", "linux", "magic", "debian"}
    for path in sorted((debian / "usr/share/games/fortunes").iterdir()):
        if path.is_file() and "." not in path.name and path.name not in skipped:
            for saying in _text(path).split("\n%\n"):
                said = re.sub(r"\n\s+--.*", "", saying, flags=re.DOTALL)
                for paragraph in _paragraphs(said):
                    if not re.search(r"^\s*\w+:\s", paragraph, re.MULTILINE):  # a dialogue's speakers
                        yield re.sub(r"\s+", " ", paragraph)


def restructured(debian: Path, folder: str) -> Iterator[str]:
    """Paragraphs of reStructuredText: no directives, tables, code or headings."""
    for path in sorted((debian / folder).rglob("*.txt")):
        for paragraph in _paragraphs(_text(path)):
            if not re.search(r"^\s*(\.\.|>>>|[+=|~*^-]{3})|::|^\s*[:*#-]", paragraph, re.MULTILINE):
                plain = re.sub(r":[\w:]+:`[~!]?([^`<]*)(?:<[^`]*)?`", r"\1", paragraph)
                yield re.sub(r"\s+", " ", re.sub(r"(?<!\w)\*+|\*+(?!\w)", "", plain))


def pod(debian: Path) -> Iterator[str]:
    """Paragraphs of Perl's documentation."""
    for path in sorted((debian / "usr/share/perl").rglob("*.pod")):
        for paragraph in _paragraphs(_text(path)):
            if not paragraph.startswith(("=", " ", "\t")):
                plain = re.sub(r"[IBF]<([^<>]*)>", r"\1", paragraph)
                yield re.sub(r"\s+", " ", plain)


def markup(debian: Path, pattern: str) -> Iterator[str]:
    """Paragraphs of HTML, DocBook and Mallard pages."""
    for path in sorted(debian.glob(pattern)):
        if not path.is_file():
            continue
        for match in re.finditer(r"<(p|div class=\"para\")(?: [^>]*)?>(.*?)</(?:p|div)>", _text(path), re.DOTALL):
            if not re.search(r"<(?:pre|code|tt|cmd|kbd|input|link)\b", match[2]):
                yield re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", "", match[2]))).strip()


def markdown(debian: Path, pattern: str) -> Iterator[str]:
    """Paragraphs and quotations of Markdown, without headings, lists and tables."""
    for path in sorted(debian.glob(pattern)):
        for paragraph in _paragraphs(_text(path)):
            if not re.match(r"\s*(?:#|\* |- |\||\d+\.)", paragraph):
                plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"^> ?", "", paragraph, flags=re.MULTILINE))
                yield re.sub(r"\s+", " ", re.sub(r"(?<!\w)[*_]+|[*_]+(?!\w)", "", plain)).strip()


def game(debian: Path, pattern: str, string: str) -> Iterator[str]:
    """Stories and dialogues: the matches of the regular expression `string` in a game's files."""
    for path in sorted(debian.glob(pattern)):
        for match in re.finditer(string, _text(path), re.DOTALL):
            for paragraph in re.split(r"\\n|\n\s*\n", match[1]):
                paragraph = paragraph.replace("<first>", "Robin").replace("<last>", "Harper")  # the player
                plain = re.sub(r"</?(?:i|b|big|small|span|bold|italic)\b[^<>]*>", "", paragraph.replace("\\", ""))
                yield re.sub(r"\s+", " ", html.unescape(plain)).strip()


def described(debian: Path) -> Iterator[str]:
    """Descriptions in Dungeon Crawl's database format: entries between lines of `%%%%`, the first line a key."""
    for path in sorted((debian / "usr/share/crawl/dat/descript").glob("*.txt")):
        for entry in re.split(r"%{4}\n", _text(path)):
            for paragraph in _paragraphs(re.sub(r"^#.*\n", "", entry, flags=re.MULTILINE))[1:]:
                yield re.sub(r"\s+", " ", paragraph).strip()
