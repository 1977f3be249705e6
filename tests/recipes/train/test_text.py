"""Training text: complete English sentences, in the spoken form that the gateway gives to the voice."""

import gzip
import random
import re
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from tokenizers import Tokenizer
from train.text import corpus, frequent, prose, readers, templates, tokens, words
from train.text.corpus import spoken
from train.text.part import selected
from train.text.sources import SOURCES, TextSource, packages
from train.text.templates import Templates
from voxgate.pipeline.checkpoint.voice_config import load_voice_config
from voxgate.pipeline.text.tokenizer import TextTokenizer, load_tokenizer
from voxgate.pipeline.text.utterance_text import UtteranceText

VOICE = Path(__file__).parents[3] / "voices" / "demo"
KNOWN = frozenset(
    ["the", "dog", "we", "cat", "saw", "and", "it", "was", "a", "very", "long", "day", "so", "they", "went", "home"]
)


@pytest.fixture(scope="module")
def tokenizer() -> TextTokenizer:
    return load_tokenizer(VOICE)


@pytest.mark.parametrize("file", ["replies.txt", "numbers.txt", "lists.txt", "spelled.txt"])
def test_training_text_equals_gateway_text(tokenizer: TextTokenizer, file: str) -> None:
    rules = load_voice_config(VOICE).text
    for written in Templates(random.Random(1)).sentences(file, 200):
        text = UtteranceText(rules, tokenizer, 10_000)
        served = [token.id for token in text.push(written) + text.end()]
        assert tokenizer.tokenizer.encode(spoken(written)).ids == served


@pytest.mark.parametrize(
    ("paragraph", "want"),
    [
        ("It rained. We stayed in!  Why not?", ["It rained.", "We stayed in!", "Why not?"]),
        ("Dr. J. Smith met Mrs. Jones at St. Mary's, e.g. Monday.", None),
        ('He said "No." Then he left.', ['He said "No."', "Then he left."]),
        ("We live at No. 5. It is small.", ["We live at No. 5.", "It is small."]),
        ("It costs 3.50 dollars. 12 people paid.", ["It costs 3.50 dollars.", "12 people paid."]),
        ("The dog (a big one) barked.", ["The dog, a big one, barked."]),
        ("The dog barked (twice).", ["The dog barked, twice."]),
        ("He came -- too late -- and left.", ["He came\u2014too late\u2014and left."]),
        ("No mark at its end", None),
    ],
)
def test_paragraph_is_split_into_sentences(paragraph: str, want: list[str] | None) -> None:
    assert list(prose.sentences(paragraph)) == (want or [paragraph])


@pytest.mark.parametrize(
    ("written", "is_prose"),
    [
        ("The weather is fine today.", True),
        ("We'll see what she's found in 1987.", True),
        ('"Come in," he said.', True),
        ("the middle of a sentence.", False),
        ("No mark at its end", False),
        ("Trailing off...", False),
        ("See https://example.org for more.", False),
        ("Call foo() with two arguments.", False),
        ("The myVariable of the class is set.", False),
        ("The NASA and ESA meet.", False),
        ("An open (parenthesis is a fragment.", False),
        ('An open "quotation is one too.', False),
        ("Too short.", False),
        ("Use <b> for that purpose.", False),
    ],
)
def test_prose_is_complete_plain_sentences(written: str, is_prose: bool) -> None:
    assert prose.is_prose(written) is is_prose


@pytest.mark.parametrize(
    ("said", "readable"),
    [
        ("we'll see what they've done, i'd say.", True),
        ("hmm.", True),
        ("the h t m l page is on the stick.", True),
        ("the xkcd of it.", False),
        ("aaah!", False),
        ("x.", True),
        ("x y z q r s.", False),
        ("", False),
        ("so long " * 30 + ".", False),
    ],
)
def test_unpronounceable_words_are_not_readable(said: str, readable: bool) -> None:
    assert prose.is_readable(said) is readable


def test_other_languages_are_not_english() -> None:
    assert prose.is_english("the dog saw ygraine, and it was a very long day.", KNOWN)
    assert not prose.is_english("der hund sah die katze und lief nach haus.", KNOWN)


@pytest.mark.parametrize("file", ["replies.txt", "numbers.txt", "lists.txt", "spelled.txt"])
def test_every_template_gives_readable_sentences(file: str) -> None:
    filling = Templates(random.Random(2))
    for template in templates.lines(file):
        for _ in range(3):
            written = filling.fill(template)
            said = spoken(written)
            assert not set("{}_") & set(written)
            assert re.fullmatch(r"[a-z][a-z ',.?!;:]*[.?!]", said), written


def test_numbers_are_written_in_digits_and_spoken_in_words() -> None:
    written = list(Templates(random.Random(3)).sentences("numbers.txt", 2000))
    assert len(set(written)) == len(written) == 2000
    assert sum(bool(re.search(r"\d", sentence)) for sentence in written) > 1900


def test_templates_are_deterministic() -> None:
    first, second = (list(Templates(random.Random(4)).sentences("replies.txt", 50)) for _ in range(2))
    assert first == second


def test_unknown_slot_raises_key_error() -> None:
    with pytest.raises(KeyError, match="nonsense"):
        Templates(random.Random(0)).fill("A {nonsense} here.")


def test_every_word_occurs_once() -> None:
    rare = [f"w{'ab'[n % 2]}rd{n}x" for n in range(500)]
    text = " ".join(words.carried(rare, random.Random(5)))
    found = re.findall(r"w[ab]rd\d+x", text.lower())
    assert sorted(found) == sorted(rare)


def test_definitions_become_sentences() -> None:
    (line,) = [
        '00001740 03 n 02 abacus 0 counting_frame 0 000 | a calculator with beads; "she moved the abacus\'s beads"'
    ]
    fields, _, _ = line.partition(" | ")
    assert readers.lemmas(fields) == ["abacus", "counting frame"]
    assert readers.defined("noun", "abacus", "a calculator with beads") == "An abacus is a calculator with beads."
    assert readers.defined("noun", "rowing", "the act of rowing") == "Rowing is the act of rowing."
    for part in ("verb", "adj", "adv", "noun"):
        for word in ("fast", "slow", "even", "odd"):
            assert prose.is_prose(readers.defined(part, word, "calm in manner"))


def fake_source(name: str, max_sentences: int, *paragraphs: str) -> TextSource:
    return TextSource(name, ("package",), "none", max_sentences, lambda _: iter(paragraphs))


def test_corpus_has_no_duplicates_and_no_evaluation_sentences(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(
        corpus,
        "SOURCES",
        (
            fake_source("one", 10, "The dog saw the cat. It was a very long day.", "So they went home."),
            fake_source("two", 10, "The dog saw the cat! The Dog Saw the Cat. We saw it (and so went home)."),
            fake_source("three", 2, "The cat went home. The dog went home. They went home. We went home."),
            fake_source("odd", 10, "Der Hund sah eine dicke Katze."),
        ),
    )
    monkeypatch.setattr(corpus, "REPLIES", 20)
    for name in ("NUMBERS", "SPELLED", "LISTS"):
        monkeypatch.setattr(corpus, name, 20)
    monkeypatch.setattr(words, "sentences", lambda *_: iter(["The word is dog."]))
    monkeypatch.setattr(words, "known", lambda _: KNOWN)
    monkeypatch.setattr(frequent, "from_packages", lambda *_: iter(["A dog and a cat went home."]))
    evaluation = tmp_path / "sentences.txt"
    evaluation.write_text("# held out\n\nSo they went home.\n")

    lines = corpus.collect(tmp_path, corpus.evaluation_sentences(tmp_path))

    found = {name: [said for source, said in lines if source == name] for name in ("one", "two", "three", "odd")}
    assert sorted(found["one"]) == ["it was a very long day.", "the dog saw the cat."]
    assert sorted(found["two"]) == ["the dog saw the cat!", "we saw it, and so went home."]
    assert len(found["three"]) == 2
    assert not found["odd"]
    fixed = [said for source, said in lines if source == "replies" and said == "yes."]
    assert len(fixed) == corpus.FIXED_REPLIES
    assert lines == corpus.collect(tmp_path, corpus.evaluation_sentences(tmp_path))


def test_frequent_words_come_by_their_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frequent, "COPIES", ((2, 6), (4, 3)))
    slots = {"dog": "noun", "cat": "noun", "see": "verb", "rare": "adjective"}
    ranks = ["dog", "fda", "see", "dogs", "cat", "rare"]
    known = frozenset(slots) | {"dogs"}
    frames = ["A {noun} can {verb}.", "The {noun} is {adjective}."]
    made = list(frequent.sentences(ranks, slots, known, random.Random(1), frames))
    said = Counter(re.findall(r"[a-z]+", " ".join(made).lower()))
    # The carrier sentences of some words leave out what does not fill one.
    assert {word: said[word] for word in ("dog", "see", "dogs", "cat")} == {"dog": 6, "see": 6, "dogs": 3, "cat": 3}
    assert not said["fda"], "no word of the list of English"
    assert not said["rare"], "beyond the last rank"


def test_frames_of_frequent_words_have_known_slots() -> None:
    slots = {slot for frame in templates.lines("frequent.txt") for slot in re.findall(r"\{(\w+)\}", frame)}
    assert slots == {"noun", "verb", "adjective", "adverb"}


def test_word_has_the_part_of_speech_with_most_tagged_meanings(tmp_path: Path) -> None:
    folder = tmp_path / "usr" / "share" / "wordnet"
    folder.mkdir(parents=True)
    entries = {
        "noun": "  1 the licence\nrun n 2 3 @ ~ + 2 5 0001 0002\ndog n 1 1 @ 1 4 0003\n",
        "verb": "run v 2 1 @ 2 19 0004 0005\n",
        "adj": "old a 1 0 1 7 0006\n",
        "adv": "",
    }
    for part, text in entries.items():
        (folder / f"index.{part}").write_text(text)
    assert frequent.parts_of_speech(tmp_path) == {"run": "verb", "dog": "noun", "old": "adjective"}


def test_ranked_words_are_those_of_the_list_in_its_order(tmp_path: Path) -> None:
    (tmp_path / "wordfreq").mkdir()
    packed = msgspec.msgpack.encode([{"format": "cB", "version": 1}, [], ["the"], ["of", "to"], [], ["dog"]])
    (tmp_path / "wordfreq" / "small_en.msgpack.gz").write_bytes(gzip.compress(packed))
    assert frequent.ranked(tmp_path) == ["the", "of", "to", "dog"]


def test_four_in_a_thousand_are_held_out_by_hash() -> None:
    held = sum(corpus.is_held_out(f"sentence number {n}.") for n in range(20_000))
    assert 50 < held < 110


def test_evaluation_sentences_are_excluded_in_spoken_form() -> None:
    held_out = corpus.evaluation_sentences(corpus.EVALUATION)
    assert spoken("It is 7:30.") in held_out
    assert len(held_out) > 200
    assert not any(sentence.startswith("#") for sentence in held_out)


def test_tokenizer_has_control_tokens_of_checkpoint(tmp_path: Path) -> None:
    trained = tokens.train([spoken(line) for line in templates.lines("replies.txt") if "{" not in line])
    trained.save(str(tmp_path / "tokenizer.json"))
    shipped = Tokenizer.from_file(str(VOICE / "tokenizer.json"))
    for token in tokens.SPECIAL:
        assert trained.token_to_id(token) == shipped.token_to_id(token) == tokens.SPECIAL.index(token)
    for text in ("Hello, Zoë!", "don't; it's: fine?"):
        assert trained.normalizer.normalize_str(text) == shipped.normalizer.normalize_str(text)
        assert trained.decode(trained.encode(text).ids).strip() == shipped.decode(shipped.encode(text).ids).strip()
    assert load_tokenizer(tmp_path).vocabulary <= tokens.VOCABULARY


def test_every_source_has_packages_and_licence() -> None:
    assert len({source.name for source in SOURCES}) == len(SOURCES)
    assert all(source.packages and source.licence and source.max_sentences for source in SOURCES)
    assert "wordnet-base" in packages()


def test_carrier_sentences_contain_every_name_once() -> None:
    names = [f"N{n:03}x" for n in range(300)]
    sentences = list(words.carried(names, random.Random(3), words.PEOPLE))
    assert sorted(re.findall(r"N\d+x", " ".join(sentences))) == names
    assert all(sentence[-1] in ".!?" for sentence in sentences)


def test_words_may_be_spelled_in_sentences_of_that_source_only() -> None:
    assert prose.is_readable("that's s a m p l e.", spelled=True)
    assert not prose.is_readable("that's s a m p l e.")


def test_parts_of_text_are_disjoint_and_complete() -> None:
    lines = [f"{source}\tline {number}." for number in range(12) for source in ("wordnet", "replies", "lists")]
    parts = [selected(lines, number) for number in range(6)]
    for source, count in (("wordnet", 3), ("replies", 2), ("lists", 1)):
        of_source = [[line for line in chosen if line.startswith(source)] for chosen in parts]
        assert sorted(line for chosen in of_source[:count] for line in chosen) == sorted(
            line for line in lines if line.startswith(source)
        )
        assert of_source[count % 6] == of_source[0]
