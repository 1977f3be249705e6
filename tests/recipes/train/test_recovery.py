"""A tokenizer learnt again from a finished voice: its codes, its decoder, and the checkpoint taken apart."""

import dataclasses
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from train import sizes
from train.checkpoint_weights import checkpoint_weights
from train.codec import recover_tokenizer
from train.codec.decoder import CodecDecoderNetwork
from train.codec.mel_tokenizer import MelTokenizer
from train.codec.recover_tokenizer import CodeLoss, decode_utterances, start_from_decoder
from train.codec.train_decoder import start_from_tokenizer
from train.export import END_FACTOR, HEAD, export, published_talker
from train.run_files import load_weights, save_weights
from train.sizes import CODEBOOKS, CODEC_EOS
from train.talker import spoken_codes
from train.talker.model import TalkerNetwork

CPU = torch.device("cpu")
SMALL = dataclasses.replace(
    sizes.DECODER, transformer=dataclasses.replace(sizes.DECODER.transformer, layers=1), vocoder=32
)


def demo_voice():
    return Path(str(files("voxgate.voices"))) / "demo"


@pytest.fixture
def decoder():
    torch.manual_seed(0)
    decoder = CodecDecoderNetwork(SMALL).eval()
    start_from_tokenizer(decoder, MelTokenizer())
    return decoder


def test_checkpoint_taken_apart_is_what_was_exported(tmp_path):
    torch.manual_seed(0)
    weights = {"talker": TalkerNetwork().state_dict(), "decoder": CodecDecoderNetwork().state_dict()}
    for name, state in weights.items():
        save_weights(tmp_path / "work" / f"{name}.safetensors", state)
    (tmp_path / "tokenizer.json").write_text("{}")
    export(tmp_path / "work", tmp_path / "tokenizer.json", tmp_path / "voice", 0.6, 0.6)

    taken = checkpoint_weights(tmp_path / "voice")

    for name, state in weights.items():
        assert taken[name].keys() == state.keys()
        # The row for the end of speech was multiplied and divided, and so rounded twice.
        end = taken[name].pop(HEAD)[CODEC_EOS] if name == "talker" else None
        assert all(torch.equal(value, state[key].half()) for key, value in taken[name].items())
        if end is not None:
            torch.testing.assert_close(end, state[HEAD][CODEC_EOS].half(), rtol=2e-3, atol=1e-6)


def test_exported_end_of_speech_is_more_likely():
    torch.manual_seed(0)
    head = TalkerNetwork().state_dict()[HEAD]
    published = published_talker({HEAD: head})["talker." + HEAD]
    torch.testing.assert_close(published[CODEC_EOS], (END_FACTOR * head[CODEC_EOS]).half())
    assert torch.equal(published[:CODEC_EOS], head[:CODEC_EOS].half())


def test_utterances_are_decoded_each_without_history(decoder, monkeypatch):
    monkeypatch.setattr(recover_tokenizer, "_FRAMES_AT_ONCE", 8)
    lengths = [2, 5, 3, 4]
    codes = torch.randint(0, 512, (sum(lengths), CODEBOOKS))

    speech = decode_utterances(decoder, codes.short(), lengths, CPU)

    assert len(speech.audio) == 1920 * len(codes)
    audio = {tuple(speech.codes[at].tolist()): speech.audio[1920 * at :] for at in range(len(codes))}
    for utterance in codes.split(lengths):
        with torch.no_grad():
            alone = decoder(utterance.t()[None])[0].clamp(-1, 1) * 32767
        decoded = audio[tuple(utterance[0].tolist())][: len(alone)]
        torch.testing.assert_close(decoded.float(), alone, atol=2, rtol=0)


def test_windows_have_the_codes_of_their_audio():
    speech = recover_tokenizer.DecodedSpeech(
        torch.arange(6).repeat_interleave(1920).short(), torch.arange(6)[:, None].expand(-1, CODEBOOKS)
    )
    audio, codes = speech.windows(20, 3)
    assert torch.equal((audio * 32768).long().view(20, 3, 1920)[..., 0], codes[..., 0])


def test_tokenizer_starts_with_the_codebooks_of_the_decoder(decoder):
    tokenizer = MelTokenizer()
    start_from_decoder(tokenizer, decoder)
    restored = CodecDecoderNetwork(SMALL)
    start_from_tokenizer(restored, tokenizer)
    kept = {name: value for name, value in decoder.quantizer.state_dict().items() if "input_proj" not in name}
    assert len(kept) == 2 * CODEBOOKS + 2
    for name, value in kept.items():
        torch.testing.assert_close(restored.quantizer.state_dict()[name], value)


def test_codes_are_found_where_latents_are_sums_of_their_entries():
    torch.manual_seed(0)
    entries = torch.randn(CODEBOOKS, 512, 96) * 0.7 ** torch.arange(CODEBOOKS)[:, None, None]
    codes = torch.randint(0, 512, (2, 5, CODEBOOKS))
    first = entries[0][codes[..., 0]]
    rest = sum(entries[level][codes[..., level]] for level in range(1, CODEBOOKS))

    losses, found = CodeLoss()(first, rest, entries, codes)
    _, others = CodeLoss()(first, rest, entries, codes.roll(1, 0))

    assert found.tolist() == [1.0] * CODEBOOKS
    assert losses[:3].max() < 0.1
    assert others.max() < 0.5


def test_recovered_tokenizer_learns_codes_of_decoded_speech(decoder, tmp_path, monkeypatch):
    monkeypatch.setattr(recover_tokenizer, "CodecDecoderNetwork", lambda: CodecDecoderNetwork(SMALL))
    save_weights(tmp_path / "decoder.0.safetensors", decoder.state_dict())
    codes = torch.randint(0, 512, (24, CODEBOOKS), dtype=torch.int16)
    save_weights(
        tmp_path / "spoken.safetensors", {"codes": codes, "lengths": torch.tensor([10, 14], dtype=torch.int32)}
    )
    losses = []
    monkeypatch.setattr(
        recover_tokenizer, "TrainingLog", lambda _: SimpleNamespace(write=lambda **entry: losses.append(entry))
    )
    shares = iter([*(step / 40 for step in range(40)), 1.0])
    monkeypatch.setattr(recover_tokenizer, "TimeBudget", lambda _: _Updates(shares))
    args = SimpleNamespace(
        work=tmp_path, spoken=tmp_path / "spoken.safetensors", decoder=tmp_path / "decoder.safetensors", seconds=1,
        device="cpu", hours=0.01, windows=4, frames=8, voice_frames=1, recorded_from=2.0, seed=1,
    )  # fmt: skip  # one argument list

    recover_tokenizer.train(args)

    learnt = [entry["code"].item() for entry in losses if "code" in entry]
    assert learnt[-1] < 0.95 * learnt[0]
    tokenizer = MelTokenizer()
    missing, surplus = tokenizer.load_state_dict(load_weights(tmp_path / "codes.safetensors"), strict=False)
    assert not surplus
    assert all(name.startswith("mel_decoder.") for name in missing)


class _Updates:
    elapsed = 0.0

    def __init__(self, shares):
        self._shares = shares

    @property
    def share(self):
        return next(self._shares)


async def test_all_voices_speak_until_there_are_enough_frames():
    """With the demo voice's own engine."""
    spoken = await spoken_codes.speak_all(
        demo_voice(), ["hello there, how are you today?", "x", "the train leaves at nine."], 60
    )
    assert sum(map(len, spoken)) >= 60
    assert all(codes.shape[1] == CODEBOOKS and codes.max() < 512 for codes in spoken)
