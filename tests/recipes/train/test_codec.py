"""Tokenizer and codec decoder in training: equality with the gateway's decoder, data, losses and updates."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from train import sizes
from train.codec import train_decoder
from train.codec.balance import balanced
from train.codec.decoder import CodecDecoderNetwork
from train.codec.decoder_training import DecoderTraining
from train.codec.discriminators import Discriminators, discriminator_loss, generator_loss
from train.codec.kernel_times import write_kernel_times
from train.codec.losses import SpectralLosses, spectra
from train.codec.mel_tokenizer import Codebooks, MelTokenizer
from train.codec.train_decoder import start_from_tokenizer
from train.collect import collect
from train.export import codec_config, export
from train.run_files import load_weights, read_parts, save_weights
from train.sizes import FRAMES_PER_HOUR
from train.speech.audio import tokenizer_mel
from train.store import ChunkReader, SpeechStore, encode, finished, read_chunk, wait_for_voices
from train.talker.model import TalkerNetwork
from voxgate.codecs.neural.decoder import CodecDecoder as ProjectDecoder

CPU = torch.device("cpu")
SMALL = dataclasses.replace(
    sizes.DECODER, transformer=dataclasses.replace(sizes.DECODER.transformer, layers=1), vocoder=32
)


def write_chunk(folder, name, voice="heart", frames=(5, 7), seed=0):
    rng = np.random.default_rng(seed)
    total = sum(frames)
    np.save(folder / f"{name}.npy", (rng.standard_normal(total * 1920) * 3000).astype(np.int16))
    np.save(folder / f"{name}.ph.npy", rng.integers(0, 41, (total, 4)).astype(np.uint8))
    about = {"voice": voice, "idx": list(range(len(frames))), "frames": list(frames), "words": [[] for _ in frames]}
    (folder / f"{name}.json").write_text(json.dumps(about))
    return folder / f"{name}.json"


def test_exported_decoder_equals_gateway_decoder(tmp_path):
    torch.manual_seed(0)
    decoder = CodecDecoderNetwork().eval()
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.copy_(parameter.half().float())
        for level in (*decoder.quantizer.rvq_first.vq.layers, *decoder.quantizer.rvq_rest.vq.layers):
            level._codebook.embedding_sum.copy_(torch.randn(512, 96).half().float())
    save_weights(tmp_path / "work" / "talker.safetensors", TalkerNetwork().state_dict())
    save_weights(tmp_path / "work" / "decoder.safetensors", decoder.state_dict())
    (tmp_path / "tokenizer.json").write_text("{}")

    export(tmp_path / "work", tmp_path / "tokenizer.json", tmp_path / "voice", 0.6, 0.6)

    project = ProjectDecoder.from_checkpoint(tmp_path / "voice" / "speech_tokenizer")
    codes = torch.randint(0, 512, (1, 16, 6))
    with torch.no_grad():
        ours = decoder(codes).clamp(-1, 1)
        theirs = project.decode_all(codes.transpose(1, 2))
    torch.testing.assert_close(theirs.reshape(1, -1), ours, atol=1e-5, rtol=1e-4)
    assert codec_config()["decode_upsample_rate"] == ours.shape[1] // 6


def test_collected_parts_equal_saved_weights(tmp_path):
    talker = TalkerNetwork().state_dict()
    save_weights(tmp_path / "work" / "talker.safetensors", talker)
    (tmp_path / "work" / "logs").mkdir()
    (tmp_path / "work" / "logs" / "talker.jsonl").write_text("{}\n")

    written = collect(tmp_path / "work", tmp_path / "out")

    assert [path.name for path in written] == ["talker.0.safetensors", "talker.1.safetensors", "logs.tar.gz"]
    assert all(path.stat().st_size < 16 * 2**20 for path in written)
    parts = read_parts(tmp_path / "out", "talker")
    assert parts.keys() == talker.keys()
    assert all(torch.equal(parts[name], value.half()) for name, value in talker.items())
    for folder in ("work", "out"):
        TalkerNetwork().load_state_dict(load_weights(tmp_path / folder / "talker.safetensors"))


def test_missing_weights_raise_file_not_found(tmp_path):
    with pytest.raises(FileNotFoundError, match="decoder"):
        read_parts(tmp_path, "decoder")


def test_interrupted_save_keeps_old_weights(tmp_path):
    path = tmp_path / "talker.safetensors"
    save_weights(path, {"a": torch.ones(2)})
    with pytest.raises(AttributeError):
        save_weights(path, {"a": "no tensor"})
    assert load_weights(path)["a"].tolist() == [1, 1]


def test_chunks_are_in_order_of_completion(tmp_path):
    import os

    late, early = write_chunk(tmp_path, "heart_00001", "heart"), write_chunk(tmp_path, "heart_00000")
    os.utime(early, ns=(1, 1))
    assert finished(tmp_path, set()) == [early, late]
    assert finished(tmp_path, {early}) == [late]


def test_inconsistent_chunk_is_refused(tmp_path):
    path = write_chunk(tmp_path, "heart_00000")
    np.save(path.with_suffix(".npy"), np.zeros(100, np.int16))
    with pytest.raises(ValueError, match="100 samples"):
        read_chunk(path)


def test_reader_returns_available_chunks(tmp_path):
    for index in range(3):
        write_chunk(tmp_path, f"heart_{index:05d}")
    reader = ChunkReader(tmp_path)
    taken = []
    try:
        while len(taken) < 3:
            taken += reader.take(2)
    finally:
        reader.close()
    assert [chunk.lines for chunk in taken] == [[0, 1]] * 3


def test_store_keeps_sentences_at_their_positions(tmp_path):
    torch.manual_seed(0)
    tokenizer = MelTokenizer().eval()
    store = SpeechStore(CPU, 0.001, audio=True, codes=True, shares={"heart": 1.0})
    first, second = (read_chunk(write_chunk(tmp_path, f"heart_{i}", frames=(6, 9), seed=i)) for i in range(2))
    store.add(first, tokenizer)
    added = store.add(second, tokenizer)
    assert [(part.start, part.frames) for part in added] == [(15, 6), (21, 9)]
    audio = torch.from_numpy(second.audio).float()
    assert torch.equal(store.audio[15 * 1920 : 30 * 1920].float(), audio)
    assert torch.equal(store.codes[15:30].long(), encode(tokenizer, audio / 32768))
    assert store.phones[15:30].numpy().tolist() == second.phones.tolist()
    assert store.add(read_chunk(write_chunk(tmp_path, "heart_9", frames=(40,))), tokenizer) == []


def test_a_voice_fills_only_its_share(tmp_path):
    store = SpeechStore(CPU, 60 / FRAMES_PER_HOUR, audio=True, codes=False, shares={"heart": 0.5, "emma": 0.5})
    for number in range(4):
        store.add(read_chunk(write_chunk(tmp_path, f"heart_{number}", frames=(14,))))
    assert (store.frames, store.voice_frames) == (28, {"heart": 28, "emma": 0})
    assert store.add(read_chunk(write_chunk(tmp_path, "emma_0", "emma", frames=(14,))))


def test_windows_are_drawn_by_the_shares_of_voices(tmp_path):
    torch.manual_seed(0)
    store = SpeechStore(CPU, 0.1, audio=True, codes=False, shares={"heart": 0.25, "emma": 0.75})
    store.add(read_chunk(write_chunk(tmp_path, "heart_0", frames=(400, 200, 200))))
    store.add(read_chunk(write_chunk(tmp_path, "emma_0", "emma", frames=(30, 50))))
    _, covered = store.windows(1000, 4, from_start=200)
    assert ((covered[:, 0] >= 800).float().mean() - 0.75).abs() < 0.05
    assert set(covered[:200, 0].tolist()) <= {0, 400, 600, 800, 830}
    assert covered.max() < 880


def test_a_step_waits_for_every_voice_but_not_for_ever(tmp_path, capsys):
    chunks = [read_chunk(write_chunk(tmp_path, f"{voice}_0", voice, frames=(9,))) for voice in ("heart", "emma")]
    shares = {"heart": 0.5, "emma": 0.5}
    store = SpeechStore(CPU, 0.1, audio=False, codes=False, shares=shares)
    wait_for_voices(store, lambda _: chunks and store.add(chunks.pop(0)), 9, 9, wait_s=60)
    assert store.voice_frames == {"heart": 9, "emma": 9}
    wait_for_voices(store, lambda _: None, 9, 10, wait_s=0)
    assert "without enough speech of heart, emma" in capsys.readouterr().out


def test_encoding_in_pieces_equals_encoding_whole(monkeypatch):
    from train import store

    torch.manual_seed(0)
    tokenizer = MelTokenizer().eval()
    audio = torch.randn(60 * 1920) * 0.1
    whole = tokenizer.encode(tokenizer_mel(audio[None]))[0]
    monkeypatch.setattr(store, "_PIECE", 20)
    assert torch.equal(encode(tokenizer, audio), whole)


def test_codebooks_learn_positions_of_frames():
    torch.manual_seed(0)
    centres = torch.randn(24, 8) * 3
    books = Codebooks(8).train()

    def frames(n):
        return centres[torch.randint(24, (n,))] + 0.05 * torch.randn(n, 8)

    books.initialise(frames(2048), frames(2048))
    for _ in range(5):
        first, rest = frames(512)[None], frames(512)[None]
        quantised, summed, _commitment, codes, residuals = books(first, rest)
        books.learn(codes, residuals, 0.9)
    assert (quantised - first).square().mean() < 0.01
    books.eval()
    _, summed, _, codes, _ = books(first, rest)
    assert (summed - rest).square().mean() < 1e-3
    assert torch.equal(books.encode(first, rest)[0].t(), codes)


def test_gradients_pass_through_codebooks():
    torch.manual_seed(0)
    books = Codebooks(8).eval()
    first, rest = torch.randn(1, 4, 8, requires_grad=True), torch.randn(1, 4, 8, requires_grad=True)
    quantised, summed, _, _, _ = books(first, rest)
    (quantised.sum() + 2 * summed.sum()).backward()
    torch.testing.assert_close(first.grad, torch.ones(1, 4, 8))
    torch.testing.assert_close(rest.grad, torch.full((1, 4, 8), 2.0))


def test_decoder_is_initialised_from_tokenizer():
    torch.manual_seed(0)
    tokenizer, decoder = MelTokenizer().eval(), CodecDecoderNetwork()
    start_from_tokenizer(decoder, tokenizer)
    codes = torch.randint(0, 512, (1, 5, 16))
    entries = tokenizer.codebooks.entries
    rest = sum(entries[level][codes[..., level]] for level in range(1, 16))
    expected = tokenizer.out_first(entries[0][codes[..., 0]]) + tokenizer.out_rest(rest)
    torch.testing.assert_close(decoder.quantizer.decode(codes.transpose(1, 2)).transpose(1, 2), expected)


def test_levels_that_are_not_kept_have_no_effect():
    torch.manual_seed(0)
    decoder = CodecDecoderNetwork()
    start_from_tokenizer(decoder, MelTokenizer())
    codes = torch.randint(0, 512, (2, 16, 3))
    other = codes.clone()
    other[:, 5:] = 0
    kept = torch.tensor([4, 16])
    a, b = decoder.quantizer.decode(codes, kept), decoder.quantizer.decode(other, kept)
    assert torch.equal(a[0], b[0])
    assert not torch.equal(a[1], b[1])


def test_discriminators_learn_and_generator_loss_has_gradients():
    torch.manual_seed(0)
    discriminators = Discriminators((2,), (256,))
    optimizer = torch.optim.AdamW(discriminators.parameters(), 3e-3)
    real, made = torch.randn(2, 3840) * 0.1, torch.zeros(2, 3840, requires_grad=True)
    losses = []
    for _ in range(10):
        fixed = made.detach()
        loss, real_features = discriminator_loss(discriminators, fixed, spectra(fixed), real, spectra(real))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.8 * losses[0]
    assert made.grad is None
    adversarial_loss, feature_loss = generator_loss(discriminators, made, spectra(made), real_features)
    (adversarial_loss + feature_loss).backward()
    assert made.grad.abs().sum() > 0


@pytest.mark.parametrize("adversarial", [False, True])
def test_updates_reduce_spectral_loss(adversarial):
    torch.manual_seed(0)
    decoder = CodecDecoderNetwork(SMALL)
    training = DecoderTraining(decoder, Discriminators((3,), (256,)), CPU, 2)
    codes = torch.randint(0, 512, (1, 16, 4))
    t = torch.arange(4 * sizes.FRAME_SAMPLES) / sizes.SAMPLE_RATE_HZ
    audio = (0.2 * torch.sin(2 * torch.pi * 200 * t))[None]
    training.set_rates(0.0, 199, adversarial=adversarial)
    losses = [training.step(codes, audio, 1, adversarial=adversarial) for _ in range(5)]
    assert losses[-1]["spectral"] < 0.98 * losses[0]["spectral"]
    assert ("adversarial" in losses[0]) == adversarial


@pytest.mark.parametrize("gain", [0.5, 2.0])
def test_envelope_loss_depends_on_level_and_not_on_phase(gain):
    torch.manual_seed(0)
    t = torch.arange(9600) / sizes.SAMPLE_RATE_HZ
    tones = torch.tensor([200.0, 900.0, 2500.0])[:, None]

    def sound(phases):
        return 0.1 * torch.sin(2 * torch.pi * tones * t + phases[:, None]).sum(0, keepdim=True)

    def envelope(made, real):
        return SpectralLosses(CPU)(spectra(made), spectra(real))[1]

    real, turned = sound(torch.zeros(3)), sound(torch.rand(3) * 6)
    assert envelope(real, real) == 0
    assert envelope(turned, real) < 0.2 * envelope(gain * real, real)


def test_updates_without_rate_change_nothing():
    torch.manual_seed(0)
    training = DecoderTraining(CodecDecoderNetwork(SMALL), Discriminators((3,), (256,)), CPU, 1)
    before = {name: value.clone() for name, value in training.decoder.state_dict().items()}
    codes, audio = torch.randint(0, 512, (1, 16, 3)), torch.randn(1, 3 * sizes.FRAME_SAMPLES) * 0.1
    training.step(codes, audio, 1, adversarial=True)
    assert all(torch.equal(before[name], value) for name, value in training.decoder.state_dict().items())
    training.set_rates(0.0, 199, adversarial=True)
    training.step(codes, audio, 1, adversarial=True)
    assert not all(torch.equal(before[name], value) for name, value in training.decoder.state_dict().items())


def test_first_windows_begin_with_sentences(tmp_path):
    torch.manual_seed(0)
    store = SpeechStore(CPU, 0.01, audio=True, codes=False)
    store.add(read_chunk(write_chunk(tmp_path, "heart_0", frames=(5, 7, 6, 8))))
    audio, covered = store.windows(40, 3, from_start=30)
    assert set(covered[:30, 0].tolist()) == {0, 5, 12, 18}
    assert not set(covered[30:, 0].tolist()) <= {0, 5, 12, 18}
    first = int(covered[35, 0])
    assert torch.equal(audio[35], store.audio[first * 1920 : (first + 3) * 1920].float() / 32768)


def test_first_frames_count_only_at_start_of_sentence():
    torch.manual_seed(0)
    training = DecoderTraining(CodecDecoderNetwork(SMALL), Discriminators((3,), (256,)), CPU, 1)
    made = (torch.randn(2, 3 * sizes.FRAME_SAMPLES) * 0.01).requires_grad_()
    training.decode = lambda *_: made
    audio = torch.randn(2, 3 * sizes.FRAME_SAMPLES) * 0.1
    training.step(torch.zeros(2, 16, 3, dtype=torch.int64), audio, 1, adversarial=False)
    counts = made.grad.view(2, 3, -1).abs().sum(2) > 0
    assert counts.tolist() == [[True, False, False], [False, False, True]]


def test_part_of_audio_equals_whole_once_history_is_complete():
    torch.manual_seed(0)
    decoder = CodecDecoderNetwork(SMALL).eval()
    codes, kept = torch.randint(0, 512, (2, 16, 12)), torch.tensor([16, 6])
    with torch.no_grad():
        whole = decoder(codes, kept).view(2, 12, -1)
        part = decoder.part(codes, kept, torch.tensor([[0], [4]]), 7).view(2, 7, -1)
    torch.testing.assert_close(part[0], whole[0, :7], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(part[1, 5:], whole[1, 9:11], atol=1e-5, rtol=1e-4)


def test_one_window_does_not_determine_the_gradient_of_a_batch():
    torch.manual_seed(0)
    spectral, adversarial = torch.randn(8, 50), 0.01 * torch.randn(8, 50)
    spectral[3] *= 1000
    total, norms = balanced([(spectral, 1.0), (adversarial, 1.5)])
    assert total.norm(dim=1).max() <= 2.5
    torch.testing.assert_close(balanced([(1000 * spectral, 1.0), (adversarial, 1.5)])[0], total)
    torch.testing.assert_close(norms[0], spectral.norm(dim=1).log().mean().exp())
    alone = balanced([(adversarial, 1.5)])[0]
    spectral[0, 0] = torch.inf
    assert torch.equal(balanced([(spectral, 1.0), (adversarial, 1.5)])[0], alone)


def test_images_have_innermost_channels():
    audio = torch.randn(2, 3840)
    discriminators = Discriminators()
    images = [(member, member.image(audio)) for member in discriminators.of_waveform]
    images += [(member, member.image(spectra(audio))) for member in discriminators.of_spectra]
    for member, image in images:
        assert image.stride(1) == 1
        assert member.layers[0](image).is_contiguous(memory_format=torch.channels_last)


def test_kernel_times_are_written(tmp_path):
    write_kernel_times(tmp_path / "kernels.txt", lambda: torch.ones(2) + 1, CPU)
    assert "aten::add" in (tmp_path / "kernels.txt").read_text()


def test_decoder_continues_from_weights_without_its_discriminators(tmp_path, monkeypatch, capsys):
    (tmp_path / "speech").mkdir()
    for voice in sizes.SPEAKERS:
        write_chunk(tmp_path / "speech", f"{voice}_0", voice, frames=(8,))
    monkeypatch.setattr(train_decoder, "CodecDecoderNetwork", lambda: CodecDecoderNetwork(SMALL))
    monkeypatch.setattr(train_decoder, "Discriminators", lambda: Discriminators((3,), (256,)))
    save_weights(tmp_path / "codes.safetensors", MelTokenizer().frozen_state())
    before = CodecDecoderNetwork(SMALL).state_dict()
    save_weights(tmp_path / "old" / "decoder.safetensors", before)
    save_weights(tmp_path / "old" / "discriminators.safetensors", {"another": torch.ones(1)})
    options = (
        "--device cpu --seconds 1 --windows 2 --frames 3 --part-frames 1 --hours 0.01 --min-frames 20 --voice-frames 1"
    )
    start = ["--start", str(tmp_path / "old/decoder.safetensors")]
    start += ["--start-discriminators", str(tmp_path / "old/discriminators.safetensors"), "--discriminators-from", "-1"]
    monkeypatch.setattr("sys.argv", ["train_decoder", str(tmp_path), *options.split(), *start, "--kernel-times"])

    train_decoder.main()

    assert "another form" in capsys.readouterr().out
    lines = [json.loads(line) for line in (tmp_path / "logs" / "decoder.jsonl").read_text().splitlines()]
    assert "adversarial" in lines[1]
    assert lines[-1]["done"] > 0
    after = load_weights(tmp_path / "decoder.safetensors")
    assert after.keys() == before.keys()
    Discriminators((3,), (256,)).load_state_dict(load_weights(tmp_path / "discriminators.safetensors"))
    assert (tmp_path / "logs" / "decoder_kernels.txt").exists()
