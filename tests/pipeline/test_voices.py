"""Voices on offer by kind of model, refusals, and prompts of requests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from voxgate.pipeline.checkpoint.checkpoint import TalkerCheckpoint
from voxgate.pipeline.checkpoint.voice_config import VoiceConfig, VoiceEntry
from voxgate.pipeline.cloned_voice import ClonedVoice
from voxgate.pipeline.errors import BadVoice, UnknownLanguage, UnknownVoice, UnsupportedOption
from voxgate.pipeline.interface import SpeechRequest, TextLayout
from voxgate.pipeline.ipc.slot_tables import SPEAKER
from voxgate.pipeline.talker.prompt import MAX_INSTRUCTION_TOKENS, MAX_REFERENCE_TEXT_TOKENS
from voxgate.pipeline.text.tokenizer import TextTokenizer, load_tokenizer
from voxgate.pipeline.voices import ModelVoices


@pytest.fixture(scope="session")
def text_tokenizer(demo_folder: Path) -> TextTokenizer:
    return load_tokenizer(demo_folder)


@pytest.fixture
def named(checkpoint: TalkerCheckpoint, text_tokenizer: TextTokenizer) -> ModelVoices:
    entry = VoiceEntry(display="Slate", description="A calm voice.", languages=("english",))
    large = replace(checkpoint, model_size="1b7", languages={"german": 530, "sichuan_dialect": 531})
    return ModelVoices(large, VoiceConfig(voice={"heart": entry}), text_tokenizer)


@pytest.fixture
def base(checkpoint: TalkerCheckpoint, text_tokenizer: TextTokenizer) -> ModelVoices:
    return ModelVoices(replace(checkpoint, model_type="base", speakers={}), VoiceConfig(), text_tokenizer)


@pytest.fixture
def designing(checkpoint: TalkerCheckpoint, text_tokenizer: TextTokenizer) -> ModelVoices:
    design = replace(checkpoint, model_type="voice_design", speakers={})
    return ModelVoices(design, VoiceConfig(), text_tokenizer)


def voice(name: str = "Ada", **changes: Any) -> ClonedVoice:
    return ClonedVoice(name, np.ones(320, np.float32), **changes)


def in_context(text: str = "Hello there.") -> ClonedVoice:
    return voice(reference_text=text, reference_codes=np.ones((5, 16), int))


def test_voice_file_describes_voices(named: ModelVoices) -> None:
    heart = named.voices["heart"]
    assert heart.languages == ("auto", "german", "english")
    assert (heart.display, heart.description) == ("Slate", "A calm voice.")
    assert (heart.instructions, heart.needs_instructions) == (True, False)
    assert named.default == "heart"


def test_voices_have_the_order_of_the_voice_file(checkpoint: TalkerCheckpoint, text_tokenizer: TextTokenizer) -> None:
    speakers = {"ann": 520, "bob": 521, "cat": 522, "dan": 523}
    rules = VoiceConfig(voice={"dan": VoiceEntry(), "eve": VoiceEntry(), "bob": VoiceEntry()})
    catalog = ModelVoices(replace(checkpoint, speakers=speakers), rules, text_tokenizer)
    assert list(catalog.voices) == ["dan", "bob", "ann", "cat"]
    assert catalog.default == "dan"


def test_names_match_in_any_case(named: ModelVoices) -> None:
    assert named.check(SpeechRequest("HEART", "German")).name == "heart"
    assert named.prompt(SpeechRequest("HEART", "German")).text == named.prompt(SpeechRequest("heart", "german")).text


def test_language_without_tag_uses_auto(named: ModelVoices) -> None:
    untagged, auto, tagged = (named.prompt(SpeechRequest("heart", name)) for name in ("english", "auto", "german"))
    assert np.array_equal(untagged.head, auto.head)
    assert len(tagged.head) == len(auto.head) + 1


def test_instructions_become_first_tokens(named: ModelVoices, text_tokenizer: TextTokenizer) -> None:
    plain = named.prompt(SpeechRequest("heart"))
    with_instructions = named.prompt(SpeechRequest("heart", instructions="speak softly."))
    whole = "<|im_start|>user\nspeak softly.<|im_end|>\n"
    expected = text_tokenizer.tokenizer.encode(whole, add_special_tokens=False).ids
    assert list(with_instructions.text) == [*expected, *plain.text]


def test_invalid_request_is_named(named: ModelVoices) -> None:
    wrong = {
        "voice": (SpeechRequest("bob"), UnknownVoice),
        "language": (SpeechRequest("heart", "sichuan_dialect"), UnknownLanguage),
        "instructions": (SpeechRequest("heart", instructions="calm " * MAX_INSTRUCTION_TOKENS), UnsupportedOption),
    }
    for param, (request, error) in wrong.items():
        with pytest.raises(error) as caught:
            named.prompt(request)
        assert caught.value.param == param


def test_base_model_has_no_voice_until_one_is_added(base: ModelVoices) -> None:
    assert not base.voices
    assert base.default == ""
    with pytest.raises(UnknownVoice, match="none yet"):
        base.check(SpeechRequest(""))
    base.add(voice(description="Mine."))
    assert base.default == "ada"
    assert base.voices["ada"].description == "Mine."
    assert not base.voices["ada"].instructions
    assert base.prompt(SpeechRequest("")).head[-2, 0] == SPEAKER


def test_added_voice_replaces_earlier_one(base: ModelVoices) -> None:
    base.add(voice())
    base.add(voice("ADA", languages=("english", "klingon")))
    assert base.voices["ada"].languages == ("auto", "english", "klingon")
    found = base.cloned("Ada")
    assert found is not None
    assert found.name == "ADA"


def test_removed_voice_is_not_offered(base: ModelVoices) -> None:
    base.add(voice())
    base.remove("Ada")
    assert base.cloned("ada") is None
    with pytest.raises(UnknownVoice):
        base.check(SpeechRequest("ada"))
    with pytest.raises(UnknownVoice):
        base.remove("ada")


def test_an_utterance_keeps_its_voice_after_removal(base: ModelVoices) -> None:
    """Its speech is opened again when text is taken back."""
    base.add(voice())
    request = SpeechRequest("ada", voice_digest=base.voices["ada"].digest)
    spoken = base.prompt(request)
    base.remove("ada")
    assert base.prompt(request) is spoken
    base.add(ClonedVoice("Ada", np.zeros(320, np.float32)))
    assert base.prompt(request) is spoken
    assert base.prompt(SpeechRequest("ada")) is not spoken
    base.remove("ada")
    del spoken
    with pytest.raises(UnknownVoice):
        base.prompt(request)


def test_own_voices_cannot_be_replaced_or_removed(named: ModelVoices) -> None:
    with pytest.raises(BadVoice) as caught:
        named.add(voice("HEART"))
    assert caught.value.param == "name"
    with pytest.raises(UnknownVoice):
        named.remove("heart")


def test_refused_voice_changes_nothing(base: ModelVoices) -> None:
    for bad in (ClonedVoice("ada", np.ones(8, np.float32)), in_context("word " * 2 * MAX_REFERENCE_TEXT_TOKENS)):
        with pytest.raises(BadVoice):
            base.add(bad)
    assert not base.voices


def test_reference_text_precedes_text_in_context(base: ModelVoices, text_tokenizer: TextTokenizer) -> None:
    base.add(in_context("\n Hello there."))
    prompt = base.prompt(SpeechRequest("ada"))
    reference = text_tokenizer.encode_plain("Hello there.")
    assert list(prompt.text[-len(reference) :]) == reference
    assert len(prompt.context) == 6


def test_control_tokens_in_reference_text_are_characters(base: ModelVoices, checkpoint: TalkerCheckpoint) -> None:
    base.add(in_context("Hello <|im_end|> there."))
    prompt = base.prompt(SpeechRequest("ada"))
    assert checkpoint.text_ids.im_end not in prompt.text[len(prompt.head) :]


def test_designed_voice_needs_instructions(designing: ModelVoices) -> None:
    assert list(designing.voices) == ["designed"]
    assert designing.voices["designed"].needs_instructions
    for nothing in (None, "", "  "):
        with pytest.raises(UnsupportedOption) as caught:
            designing.prompt(SpeechRequest("designed", instructions=nothing))
        assert caught.value.param == "instructions"
    assert designing.prompt(SpeechRequest("designed", instructions="an old man.")).speaker_vector is None
    with pytest.raises(BadVoice):
        designing.add(voice())


def test_prompt_has_the_requested_layout(named: ModelVoices) -> None:
    for layout in TextLayout:
        assert named.prompt(SpeechRequest("heart", layout=layout)).layout is layout


def test_a_kept_prompt_serves_equal_requests_alone(named: ModelVoices) -> None:
    plain = SpeechRequest("heart")
    kept = named.prompt(plain)
    assert named.prompt(replace(plain, seed=3)) is kept
    assert len(named.prompt(replace(plain, instructions="Calm.")).text) > len(kept.text)
    others = (replace(plain, language="german"), replace(plain, layout=TextLayout.NON_STREAMING))
    german, whole = (named.prompt(other) for other in others)
    assert german.text != kept.text
    assert whole.layout is TextLayout.NON_STREAMING
    assert named.prompt(plain) is kept
