"""Packed rows have the layout of utterances in use: text, speaker, history and target of every position."""

import numpy as np
import pytest
from train import sizes
from train.store import StoredUtterance
from train.talker.packing import (
    ABSENT,
    END,
    PROMPT,
    PROMPT_TEXT,
    SENTENCES,
    PackedBatch,
    Packer,
    ShuffledPool,
    TokenLines,
    empty_batch,
    with_single_share,
    write_document,
)

LINES = TokenLines.of([[10 + line] * (3 + line % 5) for line in range(60)])


def utterances(voices=("heart",), frames=(20, 31, 47), count=60):
    start, made = 0, []
    for line in range(count):
        length = frames[line % len(frames)]
        made.append(StoredUtterance(voices[line % len(voices)], line, start, length))
        start += length
    return made


def documents(batch: PackedBatch):
    """(row, first position, end) of every document, in order."""
    for row, numbers in enumerate(batch.document):
        starts = [t for t in range(len(numbers)) if numbers[t] >= 0 and (t == 0 or numbers[t] != numbers[t - 1])]
        for start in starts:
            end = start + int(np.sum(numbers == numbers[start]))
            yield row, start, end


def test_document_has_prompt_text_speech_and_end():
    batch = empty_batch(1, 40)
    spoken = [StoredUtterance("heart", 7, 100, 5), StoredUtterance("heart", 3, 30, 4)]
    tokens = np.array([21, 22, 23], np.int16)

    end = write_document(batch, 0, 2, "heart", tokens, spoken)

    speech = 2 + PROMPT
    assert end == speech + 5 + 4 + 1
    assert batch.text[0, 2:speech].tolist() == list(PROMPT_TEXT)
    assert batch.text[0, speech:end].tolist() == [21, 22, 23, sizes.TEXT_EOS] + [sizes.TEXT_PAD] * 6
    assert batch.entry[0, 2:end].tolist() == [
        *[ABSENT] * 3,
        *[sizes.CODEC_NOTHINK, sizes.CODEC_THINK_BOS, sizes.CODEC_THINK_EOS, sizes.SPEAKERS["heart"], sizes.CODEC_PAD],
        sizes.CODEC_BOS,
        *[ABSENT] * 9,
    ]
    frames = [100, 101, 102, 103, 104, 30, 31, 32, 33]
    assert batch.target[0, 2:end].tolist() == [ABSENT] * PROMPT + [*frames, END]
    assert batch.history[0, 2:end].tolist() == [ABSENT] * PROMPT + [ABSENT, *frames]
    assert batch.position[0, 2:end].tolist() == list(range(end - 2))
    assert (batch.target[0, end:] == ABSENT).all()


def test_document_may_have_trailing_silence():
    batch = empty_batch(1, 40)
    end = write_document(
        batch, 0, 0, "heart", np.array([21, 22], np.int16), [StoredUtterance("heart", 7, 100, 3)], trailing_silence=2
    )
    assert end == PROMPT + 3 + 2 + 1
    assert batch.target[0, PROMPT:end].tolist() == [100, 101, 102, 102, 102, END]
    assert batch.history[0, PROMPT + 1 : end].tolist() == [100, 101, 102, 102, 102]


def test_share_of_single_sentences_keeps_proportion_of_others():
    shares = with_single_share(0.6)
    assert shares[0] == 0.6
    assert sum(shares) == pytest.approx(1)
    assert shares[1] / shares[2] == pytest.approx(SENTENCES[1] / SENTENCES[2])


def test_prompt_equals_gateway_prompt(tmp_path):
    import json

    from train.export import generation_config, talker_config
    from train.talker.packing import prompt_entries
    from voxgate.pipeline.checkpoint.checkpoint import load_checkpoint
    from voxgate.pipeline.talker.prompt import custom_voice_prompt

    (tmp_path / "config.json").write_text(json.dumps(talker_config()))
    (tmp_path / "generation_config.json").write_text(json.dumps(generation_config(0.6, 0.6)))
    checkpoint = load_checkpoint(tmp_path)
    for voice in sizes.SPEAKERS:
        prompt = custom_voice_prompt(checkpoint, voice, "auto")
        assert prompt.text == PROMPT_TEXT
        assert prompt.codec(1)[:, 0].tolist() == [*prompt_entries(voice), sizes.CODEC_BOS]


def test_documents_have_one_voice_and_complete_sentences():
    spoken = utterances(tuple(sizes.SPEAKERS))
    by_frame = {part.start + n: part for part in spoken for n in range(part.frames)}
    packer = Packer([LINES], 16, 256, seed=3, trailing_silence=(1.0,))
    packer.add(spoken)
    speaker_of = {row: voice for voice, row in sizes.SPEAKERS.items()}
    voices_met = set()

    batch = packer.batch()

    for row, start, end in documents(batch):
        voice = speaker_of[int(batch.entry[row, start + 6])]
        voices_met.add(voice)
        target = batch.target[row, start + PROMPT : end]
        assert target[-1] == END
        said, at = [], 0
        while at < len(target) - 1:
            part = by_frame[int(target[at])]
            assert part.voice == voice
            assert target[at : at + part.frames].tolist() == list(range(part.start, part.start + part.frames))
            said.append(part)
            at += part.frames
        tokens = np.concatenate([LINES.line(part.line) for part in said]).tolist()
        text = batch.text[row, start + PROMPT : end].tolist()
        assert text[: len(tokens) + 1] == [*tokens, sizes.TEXT_EOS]
        assert set(text[len(tokens) + 1 :]) <= {sizes.TEXT_PAD}
        assert batch.history[row, start + PROMPT + 1 : end].tolist() == target[:-1].tolist()
    assert voices_met == set(sizes.SPEAKERS)


def test_voices_have_their_shares_of_documents():
    spoken = utterances(("heart", "heart", "heart", "heart", "emma"))
    packer = Packer([LINES], 64, 256, seed=3, shares=sizes.voice_shares("2,1,1,1"))
    packer.add(spoken)
    batch = packer.batch()
    entries = [int(batch.entry[row, start + 6]) for row, start, _ in documents(batch)]
    assert set(entries) == {sizes.SPEAKERS["heart"], sizes.SPEAKERS["emma"]}
    # The two voices that are there share the documents as 0.4 to 0.2.
    assert abs(entries.count(sizes.SPEAKERS["emma"]) / len(entries) - 1 / 3) < 0.1


def test_shares_of_voices_are_those_of_the_option():
    shares = sizes.voice_shares("3,1,2,4")
    assert list(shares) == list(sizes.SPEAKERS)
    assert list(shares.values()) == pytest.approx([0.3, 0.1, 0.2, 0.4])
    for wrong in ("1,1,1", "1,1,1,0"):
        with pytest.raises(ValueError, match="4 numbers above 0"):
            sizes.voice_shares(wrong)


def test_rows_are_mostly_filled_and_padding_is_separate():
    packer = Packer([LINES], 8, 320, seed=1)
    packer.add(utterances())
    batch = packer.batch()
    empty = batch.document < 0
    assert empty.mean() < 0.15
    assert (batch.target[empty] == ABSENT).all()
    for row in range(8):
        numbers = batch.document[row][empty[row]]
        assert len(set(numbers.tolist())) == len(numbers)


def test_documents_of_ten_sentences_occur():
    packer = Packer([LINES], 16, 640, seed=2)
    packer.add(utterances(frames=(20, 25)))
    lengths = [end - start - PROMPT - 1 for _ in range(4) for _, start, end in documents(packer.batch())]
    assert max(lengths) >= 200
    assert min(lengths) <= 25


def test_pool_draws_each_utterance_once_per_round():
    deck = ShuffledPool(np.random.default_rng(0))
    deck.add(utterances(count=20))
    dealt = [deck.draw(100) for _ in range(20)]
    assert sorted(part.line for part in dealt) == list(range(20))
    assert deck.draw(100) is not None


def test_new_utterances_join_present_round():
    deck = ShuffledPool(np.random.default_rng(0))
    deck.add(utterances(count=10))
    first = [deck.draw(100) for _ in range(4)]
    deck.add([StoredUtterance("heart", 99, 0, 10)])
    rest = [deck.draw(100) for _ in range(7)]
    assert sorted(part.line for part in [*first, *rest]) == [*range(10), 99]


def test_utterance_that_does_not_fit_stays_in_pool():
    deck = ShuffledPool(np.random.default_rng(0))
    deck.add([StoredUtterance("heart", 0, 0, 50)])
    assert deck.draw(49) is None
    assert deck.draw(50) is not None


def test_a_batch_has_only_its_fields():
    with pytest.raises(AttributeError):
        _ = empty_batch(1, 8).speaker
