"""The talker's training: batches, history, scheduled sampling and updates."""

import numpy as np
import pytest
import torch
from train import sizes
from train.sizes import LayerStackSize
from train.store import StoredUtterance
from train.talker.loss import (
    IGNORED,
    SPAN,
    TalkerLoss,
    choose_spans,
    corrupt_history,
    make_talker_batch,
    replace_history,
    sample,
)
from train.talker.model import TalkerNetwork
from train.talker.packing import END, PROMPT, Packer, TokenLines, empty_batch, write_document
from train.talker.text_side import load_talker
from train.talker.train_talker import TalkerTraining

CPU = torch.device("cpu")
SMALL = LayerStackSize(sizes.TALKER.hidden, 64, 1, 2, 1, 16, 1e-6)
SMALL_PREDICTOR = LayerStackSize(32, 64, 1, 2, 1, 16, 1e-6)


@pytest.fixture
def batch():
    rng = np.random.default_rng(0)
    codes = torch.from_numpy(rng.integers(0, 512, (64, 16)).astype(np.int16))
    phones = torch.from_numpy(rng.integers(0, 41, (64, 4)).astype(np.uint8))
    batch = empty_batch(2, 64)
    tokens = np.array([40, 41], np.int16)
    end = write_document(
        batch, 0, 0, "heart", tokens, [StoredUtterance("heart", 0, 10, 6), StoredUtterance("heart", 1, 40, 5)]
    )
    write_document(batch, 0, end, "heart", tokens, [StoredUtterance("heart", 2, 20, 8)])
    write_document(batch, 1, 0, "heart", tokens, [StoredUtterance("heart", 3, 50, 14)])
    torch.manual_seed(0)
    return make_talker_batch(torch.from_numpy(batch.fields), codes, phones, 32), batch, codes, phones


def test_batch_has_codes_and_phones_of_frames(batch):
    made, batch, codes, phones = batch
    for row, t in np.argwhere(batch.target >= 0):
        frame = int(batch.target[row, t])
        assert made.codes[row, t].tolist() == codes[frame].tolist()
        assert made.phones[row, t, :4].tolist() == phones[frame].tolist()
        after = int(batch.target[row, t + 1])
        expected = [IGNORED] * 4 if after == END else phones[after].tolist()
        assert made.phones[row, t, 4:].tolist() == expected
    for row, t in np.argwhere(batch.target < 0):
        assert (made.phones[row, t] == IGNORED).all()
    assert made.fed.numpy().tolist() == (batch.history >= 0).tolist()
    assert (made.target.flatten()[made.residual_positions] >= 0).all()


def test_documents_do_not_attend_to_each_other(batch):
    made, batch, _, _ = batch
    torch.manual_seed(0)
    model = TalkerLoss(TalkerNetwork(SMALL, SMALL_PREDICTOR)).eval()
    before = model.states(made)
    other = made.history.clone()
    other[0, PROMPT + 2] = (other[0, PROMPT + 2] + 1) % 512
    after = model.states(made._replace(history=other))
    changed = (before - after).abs().amax(-1) > 1e-6
    second = int(np.argmax(batch.document[0] > 0))
    assert changed[0, PROMPT + 2 : second].all()
    assert not changed[0, : PROMPT + 2].any()
    assert not changed[0, second:].any()
    assert not changed[1].any()


def test_sampled_codes_replace_next_history_frame(batch):
    made, batch, _, _ = batch
    said = torch.full((64 * 2, 16), 7)
    history = replace_history(made.history, made.fed, torch.arange(128), (made.target >= 0).flatten(), said)
    for row in range(2):
        for t in range(64):
            expected = [7] * 16 if batch.history[row, t] >= 0 else made.history[row, t].tolist()
            assert history[row, t].tolist() == expected


def test_unusable_positions_replace_nothing(batch):
    made, _, _, _ = batch
    positions = torch.arange(64)
    said = torch.full((64, 16), 7)
    kept = replace_history(made.history, made.fed, positions, torch.zeros(64, dtype=torch.bool), said)
    assert torch.equal(kept, made.history)


def test_spans_contain_frames():
    torch.manual_seed(0)
    has_frame = torch.zeros(4, 64, dtype=torch.bool)
    has_frame[1, 10:40] = True
    positions, usable = choose_spans(has_frame, 3)
    assert len(positions) == 3 * SPAN
    assert ((positions // 64) == 1).all()
    assert torch.equal(usable, has_frame.flatten()[positions])


def test_samples_follow_the_distribution():
    torch.manual_seed(0)
    logits = torch.tensor([2.0, 1.0, 0.0]).expand(20_000, 3)
    counts = torch.bincount(sample(logits, 0.5), minlength=3) / 20_000
    torch.testing.assert_close(counts, torch.softmax(logits[0] / 0.5, -1), atol=0.02, rtol=0)


def test_corrupted_history_is_mostly_true():
    torch.manual_seed(0)
    history = torch.randint(0, 512, (64, 100, 16))
    wrong = (corrupt_history(history) != history).float().mean((1, 2))
    assert 0.01 < wrong.mean() < 0.05
    assert wrong.max() < 0.08
    assert wrong.std() > 0.005


@pytest.mark.parametrize("own", [0.0, 1.0])
def test_ten_updates_lower_the_loss(own):
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    lines = TokenLines.of([rng.integers(20, 200, 6) for _ in range(20)])
    spoken = [StoredUtterance("heart", line, 12 * line, 12) for line in range(20)]
    packer = Packer([lines], 2, 128, seed=0)
    packer.add(spoken)
    codes = torch.from_numpy(rng.integers(0, 8, (240, 16)).astype(np.int16))
    phones = torch.zeros(240, 4, dtype=torch.uint8)
    model = TalkerLoss(TalkerNetwork(SMALL, SMALL_PREDICTOR))
    training = TalkerTraining(model, CPU, 3e-3, 4, compiled=False)
    losses = []
    for _ in range(10):
        made = make_talker_batch(torch.from_numpy(packer.batch().fields), codes, phones, 64)
        parts = training.update(made, 1.0, own)
        losses.append(float(parts["first"] + parts["residual"].mean()))
    assert losses[-1] < losses[0] - 1.0
    assert torch.isfinite(torch.tensor(losses)).all()


def test_talker_starts_from_weights_without_codes():
    torch.manual_seed(0)
    talker, other = TalkerNetwork(SMALL, SMALL_PREDICTOR), TalkerNetwork(SMALL, SMALL_PREDICTOR)
    state = talker.state_dict()
    load_talker(other, {name: value for name, value in state.items() if "codec_" not in name and "lm_head" not in name})
    loaded = other.state_dict()
    same = {name for name in state if torch.equal(state[name], loaded[name])}
    assert {"model.text_embedding.weight", "text_projection.linear_fc1.weight"} <= same
    assert "codec_head.weight" not in same
    load_talker(other, state)
    assert all(torch.equal(state[name], value) for name, value in other.state_dict().items())


@pytest.mark.parametrize("change", [("model.norm.weight", None), ("extra", torch.zeros(1))])
def test_weights_of_another_model_are_refused(change):
    state = TalkerNetwork(SMALL, SMALL_PREDICTOR).state_dict()
    name, value = change
    if value is None:
        del state[name]
    else:
        state[name] = value
    with pytest.raises(ValueError, match=name):
        load_talker(TalkerNetwork(SMALL, SMALL_PREDICTOR), state)
