"""Pronunciation Lexicon Specification (W3C, PLS 1.0): reading and writing the rules that replace text."""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree import ElementTree

from ...errors import BadMessage, UnsupportedOption
from .lexicon import MAX_RULES, PHONEMES_UNSUPPORTED, LexiconRule

_PLS = "http://www.w3.org/2005/01/pronunciation-lexicon"


class _NoDocumentType(ElementTree.TreeBuilder):
    """Refuses a document type before its entities are read, in any encoding of the file."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:  # noqa: ARG002 - the library's signature
        raise BadMessage("a PLS file must have no document type", param="file")


def parse_pls(file: bytes) -> list[LexiconRule]:
    """The rules in a PLS file: each grapheme of a lexeme is spoken as its alias. Raises BadMessage, UnsupportedOption.

    A document type is refused: it could define entities that grow without bound.
    """
    try:
        lexicon = ElementTree.fromstring(file, ElementTree.XMLParser(target=_NoDocumentType()))
    except ElementTree.ParseError as error:
        raise BadMessage(f"file is not XML: {error}", param="file") from None
    names = {"{" + _PLS + "}", ""}
    rules = []
    for lexeme in (element for element in lexicon if element.tag in {f"{name}lexeme" for name in names}):
        texts: dict[str, list[str]] = {}
        for child in lexeme:
            texts.setdefault(child.tag.rpartition("}")[2], []).append("".join(child.itertext()).strip())
        if "alias" not in texts:
            raise UnsupportedOption(PHONEMES_UNSUPPORTED, param="file")
        try:
            rules += [LexiconRule(term, texts["alias"][0], case_sensitive=True) for term in texts.get("grapheme", ())]
        except ValueError as error:
            raise BadMessage(str(error), param="file") from None
        if len(rules) > MAX_RULES:
            raise BadMessage(f"a pronunciation dictionary must have at most {MAX_RULES} rules", param="file")
    return rules


def write_pls(rules: Iterable[LexiconRule]) -> bytes:
    """The rules as a PLS file, which has no place for their options."""
    lexicon = ElementTree.Element("lexicon", {"version": "1.0", "xmlns": _PLS, "alphabet": "ipa"})
    for rule in rules:
        lexeme = ElementTree.SubElement(lexicon, "lexeme")
        ElementTree.SubElement(lexeme, "grapheme").text = rule.term
        ElementTree.SubElement(lexeme, "alias").text = rule.spoken
    file: bytes = ElementTree.tostring(lexicon, encoding="utf-8", xml_declaration=True)
    return file
