"""Reading a checkpoint's configuration: completely, and without defaults."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from voxgate.pipeline.checkpoint.checkpoint import TalkerCheckpoint, load_checkpoint
from voxgate.pipeline.errors import CheckpointError

from .published import GENERATION, PUBLISHED, PUBLISHED_LAYERS, published_config

REQUIRED = [
    "tts_model_type",
    "tts_model_size",
    "im_start_token_id",
    "im_end_token_id",
    "assistant_token_id",
    "tts_pad_token_id",
    "tts_bos_token_id",
    "tts_eos_token_id",
    "talker_config",
    "talker_config.code_predictor_config",
    *(
        f"talker_config.{part}{name}"
        for part in ("", "code_predictor_config.")
        for name in ("hidden_size", "intermediate_size", *PUBLISHED_LAYERS, "vocab_size")
    ),
    "talker_config.text_vocab_size",
    "talker_config.text_hidden_size",
    "talker_config.num_code_groups",
    "talker_config.codec_pad_id",
    "talker_config.codec_bos_id",
    "talker_config.codec_eos_token_id",
    "talker_config.codec_think_id",
    "talker_config.codec_nothink_id",
    "talker_config.codec_think_bos_id",
    "talker_config.codec_think_eos_id",
    "talker_config.spk_id",
    "talker_config.codec_language_id",
]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes the published 1.7B configuration with changed fields to a folder; the value `...` removes a field."""

    def build(changes: dict[str, Any] | None = None, generation: dict[str, Any] | None = None) -> Path:
        config, options = copy.deepcopy(PUBLISHED), copy.deepcopy(GENERATION)
        for fields, changed in ((config, changes), (options, generation)):
            for path, value in (changed or {}).items():
                *parents, name = path.split(".")
                place: dict[str, Any] = fields
                for parent in parents:
                    place = place[parent]
                if value is ...:
                    del place[name]
                else:
                    place[name] = value
        (tmp_path / "config.json").write_text(json.dumps(config))
        (tmp_path / "generation_config.json").write_text(json.dumps(options))
        return tmp_path

    return build


def test_demo_voice_is_read_completely(checkpoint: TalkerCheckpoint, demo_folder: Path) -> None:
    assert checkpoint.folder == demo_folder
    assert checkpoint.codec_folder == demo_folder / "speech_tokenizer"
    assert (checkpoint.model_type, checkpoint.model_size) == ("custom_voice", "tiny")
    talker, predictor = checkpoint.talker, checkpoint.predictor
    assert (talker.hidden, talker.intermediate, talker.layers) == (320, 896, 7)
    assert (talker.heads, talker.kv_heads, talker.head_dim) == (6, 2, 64)
    assert (talker.norm_eps, talker.rope_theta) == (1e-6, 1e4)
    assert (predictor.hidden, predictor.intermediate, predictor.layers) == (192, 384, 4)
    assert (predictor.heads, predictor.kv_heads, predictor.head_dim) == (3, 1, 64)
    assert (checkpoint.text_vocab, checkpoint.text_hidden) == (2048, 256)
    assert (checkpoint.codec_vocab, checkpoint.codebook, checkpoint.groups) == (1536, 512, 16)
    assert checkpoint.text_ids.newline == 4
    assert checkpoint.codec_ids.eos == 514
    assert checkpoint.speakers == {"heart": 520, "michael": 521, "emma": 522, "george": 523}
    assert checkpoint.languages == {}
    assert checkpoint.dialects == {}
    stored = json.loads((demo_folder / "generation_config.json").read_text())
    assert checkpoint.defaults.temperature == stored["temperature"]
    assert checkpoint.defaults.max_frames == stored["max_new_tokens"]


def test_published_large_model_loads(write: Callable[..., Path]) -> None:
    loaded = load_checkpoint(write())
    assert (loaded.talker.hidden, loaded.talker.intermediate) == (2048, 6144)
    assert (loaded.predictor.hidden, loaded.predictor.layers, loaded.codebook) == (1024, 5, 2048)
    assert loaded.talker.rope_theta == 1e6
    assert (loaded.text_ids.im_start, loaded.text_ids.assistant, loaded.text_ids.eos) == (
        151644,
        77091,
        151673,
    )
    assert (loaded.codec_ids.pad, loaded.codec_ids.eos, loaded.codec_ids.think_eos) == (2148, 2150, 2157)
    defaults = loaded.defaults
    assert (defaults.temperature, defaults.top_k, defaults.top_p) == (0.9, 50, 1.0)
    assert (defaults.predictor_temperature, defaults.predictor_top_k, defaults.predictor_top_p) == (
        0.9,
        50,
        1.0,
    )
    assert (defaults.repetition_penalty, defaults.max_frames) == (1.05, 8192)


def test_published_small_model_loads(write: Callable[..., Path]) -> None:
    small = {
        "tts_model_size": "0b6",
        "talker_config.hidden_size": 1024,
        "talker_config.intermediate_size": 3072,
    }
    loaded = load_checkpoint(write(small))
    assert loaded.model_size == "0b6"
    # The queries of this size are wider than its hidden state.
    assert (loaded.talker.hidden, loaded.talker.heads * loaded.talker.head_dim) == (1024, 2048)
    assert loaded.predictor.hidden == loaded.talker.hidden


def test_newline_id_defaults_to_the_published_one(write: Callable[..., Path]) -> None:
    assert load_checkpoint(write()).text_ids.newline == 198
    assert load_checkpoint(write({"newline_token_id": 7})).text_ids.newline == 7


@pytest.mark.parametrize(
    ("model_type", "model_size"),
    [("custom_voice", "0b6"), ("custom_voice", "1b7"), ("voice_design", "1b7"), ("base", "0b6"), ("base", "1b7")],
)
def test_every_published_checkpoint_loads(write: Callable[..., Path], model_type: str, model_size: str) -> None:
    folder = write()
    (folder / "config.json").write_text(json.dumps(published_config(model_type, model_size)))
    loaded = load_checkpoint(folder)
    assert (loaded.model_type, loaded.model_size) == (model_type, model_size)
    assert bool(loaded.speakers) == (model_type == "custom_voice")
    assert len(loaded.languages) == (12 if model_type == "custom_voice" else 10)


@pytest.mark.parametrize("absent", [..., None])
def test_speaker_table_is_optional_without_speakers(write: Callable[..., Path], absent: object) -> None:
    folder = write({"tts_model_type": "base", "talker_config.spk_id": absent, "talker_config.spk_is_dialect": absent})
    assert load_checkpoint(folder).speakers == {}


def test_only_dialect_speakers_have_a_dialect(write: Callable[..., Path]) -> None:
    assert load_checkpoint(write()).dialects == {"eric": "sichuan_dialect", "dylan": "beijing_dialect"}


def test_dialect_table_is_optional(write: Callable[..., Path]) -> None:
    assert load_checkpoint(write({"talker_config.spk_is_dialect": ...})).dialects == {}


def test_names_are_lower_case(write: Callable[..., Path]) -> None:
    named = {
        "talker_config.spk_id": {"Ryan": 3061},
        "talker_config.codec_language_id": {"English": 2050, "Beijing_Dialect": 2074},
        "talker_config.spk_is_dialect": {"Ryan": "beijing_dialect"},
    }
    loaded = load_checkpoint(write(named))
    assert loaded.speakers == {"ryan": 3061}
    assert loaded.languages == {"english": 2050, "beijing_dialect": 2074}
    assert loaded.dialects == {"ryan": "beijing_dialect"}


def test_model_without_sampling_has_zero_temperature(write: Callable[..., Path]) -> None:
    defaults = load_checkpoint(write(None, {"do_sample": False, "temperature": ...})).defaults
    assert (defaults.temperature, defaults.predictor_temperature) == (0.0, 0.9)
    defaults = load_checkpoint(write(None, {"subtalker_dosample": False})).defaults
    assert (defaults.temperature, defaults.predictor_temperature) == (0.9, 0.0)


@pytest.mark.parametrize("field", REQUIRED)
def test_missing_field_is_named_with_its_file(write: Callable[..., Path], field: str) -> None:
    folder = write({field: ...})
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(folder)
    assert caught.value.message == f"{folder / 'config.json'}: {field} is missing"


@pytest.mark.parametrize("field", REQUIRED)
def test_mistyped_field_is_named_with_its_file(write: Callable[..., Path], field: str) -> None:
    folder = write({field: [1]})
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(folder)
    assert caught.value.message.startswith(f"{folder / 'config.json'}: {field} must be ")


@pytest.mark.parametrize("field", GENERATION)
def test_missing_or_mistyped_sampling_default_is_named(write: Callable[..., Path], field: str) -> None:
    for value, complaint in ((..., "is missing"), ("0.9", "must be ")):
        folder = write(None, {field: value})
        with pytest.raises(CheckpointError) as caught:
            load_checkpoint(folder)
        assert caught.value.message.startswith(f"{folder / 'generation_config.json'}: {field} {complaint}")


def test_boolean_is_not_an_integer(write: Callable[..., Path]) -> None:
    with pytest.raises(CheckpointError, match="num_hidden_layers must be int, got True"):
        load_checkpoint(write({"talker_config.num_hidden_layers": True}))


@pytest.mark.parametrize("table", ["spk_id", "codec_language_id"])
@pytest.mark.parametrize("row", ["3061", None, 2.5, True])
def test_table_row_must_be_an_integer(write: Callable[..., Path], table: str, row: object) -> None:
    folder = write({f"talker_config.{table}": {"ryan": row}, "talker_config.spk_is_dialect": {}})
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(folder)
    assert caught.value.message.startswith(f"{folder / 'config.json'}: talker_config.{table}.ryan must be int")


INCONSISTENT = [
    ({"talker_config.codec_eos_token_id": 2047}, "codec, speaker and language ids"),
    ({"talker_config.codec_bos_id": 3072}, "codec, speaker and language ids"),
    ({"talker_config.spk_id": {"ryan": 4000}}, "codec, speaker and language ids"),
    ({"talker_config.codec_language_id": {"english": 17}}, "codec, speaker and language ids"),
    (
        {"talker_config.spk_is_dialect": {"ryan": "scouse"}},
        "'ryan' must have a dialect of codec_language_id, got 'scouse'",
    ),
    ({"talker_config.num_key_value_heads": 5}, "attention heads must be a multiple"),
    ({"talker_config.num_key_value_heads": 0}, "num_key_value_heads must be positive"),
    ({"talker_config.code_predictor_config.num_key_value_heads": 3}, "attention heads must be a multiple"),
    ({"talker_config.code_predictor_config.num_code_groups": 8}, "num_code_groups"),
    ({"tts_eos_token_id": 151936}, "text ids must lie in"),
]


@pytest.mark.parametrize(("changes", "complaint"), INCONSISTENT)
def test_inconsistent_configuration_is_refused(
    write: Callable[..., Path], changes: dict[str, Any], complaint: str
) -> None:
    folder = write(changes)
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(folder)
    assert caught.value.message.startswith(str(folder / "config.json"))
    assert complaint in caught.value.message


PREDICTOR = "talker_config.code_predictor_config"
UNSUPPORTED = [
    ("model_type", "qwen3_omni", "'qwen3_tts'"),
    ("tokenizer_type", "qwen3_tts_tokenizer_25hz", "'qwen3_tts_tokenizer_12hz'"),
    ("quantization_config", {"quant_method": "fp8"}, "{}"),
    *(
        (f"{part}.{field}", value, supported)
        for part in ("talker_config", PREDICTOR)
        for field, value, supported in (
            ("model_type", "llama", "'qwen3_tts_talker"),
            ("hidden_act", "gelu", "'silu'"),
            ("attention_bias", True, "False"),
            ("use_sliding_window", True, "False"),
            ("tie_word_embeddings", True, "False"),
            ("quantization_config", {"quant_method": "fp8"}, "{}"),
            ("partial_rotary_factor", 0.5, "1"),
            ("layer_types", ["full_attention", "sliding_attention"], "'full_attention'"),
        )
    ),
]


@pytest.mark.parametrize(("field", "value", "supported"), UNSUPPORTED)
def test_value_that_would_not_be_honoured_is_refused_by_name(
    write: Callable[..., Path], field: str, value: object, supported: str
) -> None:
    folder = write({field: value})
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(folder)
    message = caught.value.message
    assert message.startswith(f"{folder / 'config.json'}: unsupported values: {field} must ")
    assert supported in message
    assert message.endswith(f", got {value!r}")


@pytest.mark.parametrize("part", ["talker_config", PREDICTOR])
@pytest.mark.parametrize("field", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize(
    ("rope", "complaint"),
    [
        ({"rope_type": "linear", "factor": 2.0}, " must have the rope_type 'default', got 'linear'"),
        ({"type": "yarn"}, " must have the rope_type 'default', got 'yarn'"),
        ({"rope_theta": 5e5}, ".rope_theta must equal rope_theta, got 500000.0"),
        ({"mrope_section": [4, 4, 4]}, ".mrope_section must add up to half of head_dim 128, got [4, 4, 4]"),
        (["linear"], " must be an object or null, got ['linear']"),
    ],
)
def test_other_rotary_embedding_is_refused(
    write: Callable[..., Path], part: str, field: str, rope: object, complaint: str
) -> None:
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(write({f"{part}.{field}": rope}))
    assert caught.value.message.endswith(f"unsupported values: {part}.{field}{complaint}")


def test_all_unsupported_values_are_named_at_once(write: Callable[..., Path]) -> None:
    changes = {"talker_config.hidden_act": "relu", f"{PREDICTOR}.rope_scaling": {"type": "linear", "factor": 2.0}}
    with pytest.raises(CheckpointError, match=r"hidden_act must be 'silu', got 'relu'; .* got 'linear'"):
        load_checkpoint(write(changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"talker_config.sliding_window": 4096, "talker_config.use_sliding_window": False},
        {"talker_config.attention_dropout": 0.1, "torch_dtype": "float32"},
        {"talker_config.layer_types": ["full_attention"] * 28, f"{PREDICTOR}.rope_scaling": None},
        {"talker_config.rope_scaling": {"type": "default", "interleaved": True, "mrope_section": [24, 20, 20]}},
        {"talker_config.rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000}},
        {"talker_config.hidden_act": None, "quantization_config": None},
    ],
)
def test_values_without_effect_are_accepted(write: Callable[..., Path], changes: dict[str, Any]) -> None:
    load_checkpoint(write(changes))


@pytest.mark.parametrize("part", ["talker_config", PREDICTOR])
@pytest.mark.parametrize("width", [0, 63, -2])
def test_head_without_pairs_of_channels_is_refused(write: Callable[..., Path], part: str, width: int) -> None:
    with pytest.raises(CheckpointError, match=rf"head_dim must be positive and even, got {width}"):
        load_checkpoint(write({f"{part}.head_dim": width}))


@pytest.mark.parametrize("groups", [0, 1])
def test_frame_of_a_single_code_is_refused(write: Callable[..., Path], groups: int) -> None:
    changes = {"talker_config.num_code_groups": groups, f"{PREDICTOR}.num_code_groups": groups}
    with pytest.raises(CheckpointError, match=f"num_code_groups must be at least 2, got {groups}"):
        load_checkpoint(write(changes))


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
@pytest.mark.parametrize("content", [b"{", b"", b"\xff\xfe"])
def test_invalid_json_is_named(write: Callable[..., Path], name: str, content: bytes) -> None:
    folder = write()
    (folder / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=f"{name} is not JSON"):
        load_checkpoint(folder)


def test_file_must_hold_an_object(write: Callable[..., Path]) -> None:
    folder = write()
    (folder / "config.json").write_text("[]")
    with pytest.raises(CheckpointError, match=r"config\.json must hold a JSON object"):
        load_checkpoint(folder)


def test_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"nowhere is not a checkpoint: it has no config\.json"):
        load_checkpoint(tmp_path / "nowhere")
