"""Finds a Qwen3-TTS checkpoint folder and reads its configuration.

The configuration holds sizes, special ids, speakers, languages and sampling defaults (docs/qwen3_tts.md, section 2).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from voxgate.codecs.neural.checkpoint import differences, rope_differences
from voxgate.codecs.neural.config import TOKENIZER_TYPE

from ..errors import CheckpointError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TransformerSize:
    """Sizes of a transformer: the talker's backbone or the code predictor."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    norm_eps: float
    rope_theta: float


@dataclass(frozen=True, slots=True)
class TextIds:
    """Special ids of text tokens (docs/qwen3_tts.md, section 2.1)."""

    im_start: int
    im_end: int
    assistant: int
    newline: int
    pad: int
    bos: int
    eos: int


@dataclass(frozen=True, slots=True)
class CodecIds:
    """Special ids of codec tokens (docs/qwen3_tts.md, section 2.2)."""

    pad: int
    bos: int
    eos: int
    think: int
    nothink: int
    think_bos: int
    think_eos: int


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """Content of generation_config.json (docs/qwen3_tts.md, section 2.4)."""

    temperature: float
    top_k: int
    top_p: float
    repetition_penalty: float
    predictor_temperature: float
    predictor_top_k: int
    predictor_top_p: float
    max_frames: int


@dataclass(frozen=True, slots=True)
class TalkerCheckpoint:
    """A checkpoint's configuration, without its weights."""

    folder: Path
    model_type: str
    model_size: str
    talker: TransformerSize
    predictor: TransformerSize
    text_vocab: int
    text_hidden: int
    codec_vocab: int
    codebook: int
    groups: int
    text_ids: TextIds
    codec_ids: CodecIds
    speakers: Mapping[str, int]
    dialects: Mapping[str, str]
    languages: Mapping[str, int]
    defaults: SamplingDefaults

    @property
    def codec_folder(self) -> Path:
        return self.folder / "speech_tokenizer"


NEWLINE_TOKEN_ID = 198
"""Id of a line feed in the published tokenizers; config.json names the id of other tokenizers."""


def load_checkpoint(folder: Path) -> TalkerCheckpoint:
    """Reads config.json and generation_config.json. Raises CheckpointError naming what is missing or inconsistent.

    No field has a default: the defaults of the reference implementation differ from the published values
    (docs/qwen3_tts.md, section 2.2).
    """
    if not (folder / "config.json").exists():
        raise CheckpointError(f"{folder} is not a checkpoint: it has no config.json")
    config = _Fields(folder / "config.json")
    talker = config.sub("talker_config")
    predictor = talker.sub("code_predictor_config")
    _refuse_unsupported(config, talker, predictor)
    model_type = config.get("tts_model_type", str)
    checkpoint = TalkerCheckpoint(
        folder=folder,
        model_type=model_type,
        model_size=config.get("tts_model_size", str),
        talker=_size(talker),
        predictor=_size(predictor),
        text_vocab=talker.get("text_vocab_size", int),
        text_hidden=talker.get("text_hidden_size", int),
        codec_vocab=talker.get("vocab_size", int),
        codebook=predictor.get("vocab_size", int),
        groups=talker.get("num_code_groups", int),
        text_ids=TextIds(
            im_start=config.get("im_start_token_id", int),
            im_end=config.get("im_end_token_id", int),
            assistant=config.get("assistant_token_id", int),
            newline=config.get("newline_token_id", int, NEWLINE_TOKEN_ID),
            pad=config.get("tts_pad_token_id", int),
            bos=config.get("tts_bos_token_id", int),
            eos=config.get("tts_eos_token_id", int),
        ),
        codec_ids=CodecIds(
            pad=talker.get("codec_pad_id", int),
            bos=talker.get("codec_bos_id", int),
            eos=talker.get("codec_eos_token_id", int),
            think=talker.get("codec_think_id", int),
            nothink=talker.get("codec_nothink_id", int),
            think_bos=talker.get("codec_think_bos_id", int),
            think_eos=talker.get("codec_think_eos_id", int),
        ),
        speakers=talker.rows("spk_id", optional=model_type != "custom_voice"),
        dialects={
            name.lower(): dialect
            for name, dialect in talker.get("spk_is_dialect", dict, {}).items()
            if isinstance(dialect, str)
        },
        languages=talker.rows("codec_language_id"),
        defaults=_sampling(_Fields(folder / "generation_config.json")),
    )
    _check(checkpoint)
    if predictor.get("num_code_groups", int, checkpoint.groups) != checkpoint.groups:
        raise CheckpointError(f"{folder / 'config.json'}: talker and code predictor must have the same num_code_groups")
    return checkpoint


def _refuse_unsupported(config: _Fields, talker: _Fields, predictor: _Fields) -> None:
    """Raises CheckpointError naming every field whose value the reference implementation would honour and this does
    not."""
    problems = config.differences({"model_type": "qwen3_tts", "tokenizer_type": TOKENIZER_TYPE})
    problems += talker.differences({"model_type": "qwen3_tts_talker"})
    problems += predictor.differences({"model_type": "qwen3_tts_talker_code_predictor"})
    problems += config.differences({"quantization_config": {}})
    for transformer in (talker, predictor):
        problems += transformer.differences(_SUPPORTED)
        problems += transformer.rope_differences()
    if problems:
        raise CheckpointError(f"{config.path}: unsupported values: {'; '.join(problems)}")


_SUPPORTED = {
    "hidden_act": "silu",
    "attention_bias": False,
    "use_sliding_window": False,
    "tie_word_embeddings": False,
    "quantization_config": {},
}
"""Of fields of talker and code predictor that have no place in `TransformerSize`."""


def _size(fields: _Fields) -> TransformerSize:
    return TransformerSize(
        hidden=fields.get("hidden_size", int),
        intermediate=fields.get("intermediate_size", int),
        layers=fields.get("num_hidden_layers", int),
        heads=fields.get("num_attention_heads", int),
        kv_heads=fields.get("num_key_value_heads", int),
        head_dim=fields.get("head_dim", int),
        norm_eps=fields.get("rms_norm_eps", float),
        rope_theta=fields.get("rope_theta", float),
    )


def _sampling(fields: _Fields) -> SamplingDefaults:
    greedy = not fields.get("do_sample", bool)
    predictor_greedy = not fields.get("subtalker_dosample", bool)
    return SamplingDefaults(
        temperature=0.0 if greedy else fields.get("temperature", float),
        top_k=fields.get("top_k", int),
        top_p=fields.get("top_p", float),
        repetition_penalty=fields.get("repetition_penalty", float),
        predictor_temperature=0.0 if predictor_greedy else fields.get("subtalker_temperature", float),
        predictor_top_k=fields.get("subtalker_top_k", int),
        predictor_top_p=fields.get("subtalker_top_p", float),
        max_frames=fields.get("max_new_tokens", int),
    )


def _check(checkpoint: TalkerCheckpoint) -> None:
    where = checkpoint.folder / "config.json"
    ids = checkpoint.codec_ids
    rows = [ids.pad, ids.bos, ids.eos, ids.think, ids.nothink, ids.think_bos, ids.think_eos]
    rows += [*checkpoint.speakers.values(), *checkpoint.languages.values()]
    if any(not checkpoint.codebook <= row < checkpoint.codec_vocab for row in rows):
        raise CheckpointError(
            f"{where}: codec, speaker and language ids must lie in [{checkpoint.codebook}, {checkpoint.codec_vocab})"
        )
    for name, dialect in checkpoint.dialects.items():
        if dialect not in checkpoint.languages:
            raise CheckpointError(
                f"{where}: speaker {name!r} must have a dialect of codec_language_id, got {dialect!r}"
            )
    if any(not 0 <= token < checkpoint.text_vocab for token in astuple(checkpoint.text_ids)):
        raise CheckpointError(f"{where}: text ids must lie in [0, {checkpoint.text_vocab})")
    if checkpoint.groups < 2:
        raise CheckpointError(f"{where}: num_code_groups must be at least 2, got {checkpoint.groups}")
    for size in (checkpoint.talker, checkpoint.predictor):
        if min(size.hidden, size.intermediate, size.layers, size.heads) < 1:
            raise CheckpointError(f"{where}: sizes must be positive, got {size}")
        if size.head_dim < 1 or size.head_dim % 2:
            raise CheckpointError(f"{where}: head_dim must be positive and even, got {size.head_dim}")
        if size.kv_heads < 1:
            raise CheckpointError(f"{where}: num_key_value_heads must be positive, got {size.kv_heads}")
        if size.heads % size.kv_heads:
            raise CheckpointError(
                f"{where}: attention heads must be a multiple of key-value heads, got {size.heads} and {size.kv_heads}"
            )


T = TypeVar("T")
_REQUIRED: Any = object()


class _Fields:
    """A JSON object; reading a missing or mistyped field raises CheckpointError with the field's path."""

    def __init__(self, path: Path, values: dict[str, Any] | None = None, prefix: str = "") -> None:
        self.path, self._prefix = path, prefix
        self._values = read_json_object(path) if values is None else values

    def get(self, name: str, kind: type[T], default: T = _REQUIRED) -> T:
        value = self._values.get(name, default)
        if value is None and default is not _REQUIRED:
            value = default
        if kind is float and type(value) is int:
            value = float(value)
        if value is _REQUIRED:
            raise CheckpointError(f"{self.path}: {self._prefix}{name} is missing")
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise CheckpointError(f"{self.path}: {self._prefix}{name} must be {kind.__name__}, got {value!r}")
        return value

    def rows(self, name: str, *, optional: bool = False) -> dict[str, int]:
        """Returns a table of embedding rows by lower-case name."""
        if optional and self._values.get(name) is None:
            return {}
        table = self.sub(name)
        return {key.lower(): table.get(key, int) for key in table._values}

    def differences(self, required: Mapping[str, Any]) -> list[str]:
        """Describes the fields that differ from the required values, by their paths; absent fields and null do not."""
        return [self._prefix + problem for problem in differences(self._values, required)]

    def rope_differences(self) -> list[str]:
        """Describes what the fields say of the rotary embedding that is not the ordinary one; `layer_types` too."""
        problems = rope_differences(self._values, self.get("head_dim", int))
        layer_types = self._values.get("layer_types")
        if layer_types is not None and set(layer_types) - {"full_attention"}:
            problems.append(f"layer_types must all be 'full_attention', got {layer_types!r}")
        return [self._prefix + problem for problem in problems]

    def sub(self, name: str) -> _Fields:
        return _Fields(self.path, self.get(name, dict), f"{self._prefix}{name}.")


def read_json_object(path: Path) -> dict[str, Any]:
    """Reads a file that holds a JSON object. Raises CheckpointError."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise CheckpointError(f"{path} must hold a JSON object")
    return values


DEMO_CHECKPOINT = "demo"
"""Name of the checkpoint that comes with the package."""
DOWNLOAD_PATTERNS = ["*.json", "*.safetensors", "*.toml", "*.txt"]
"""Files of a repository that are downloaded; others hold the same weights in other formats, or samples."""


def checkpoint_folder(name: str) -> Path:
    """Returns the folder of a checkpoint: "demo", a path, or a Hugging Face repository id.

    A repository is downloaded, or its download resumed, with a progress bar; the call blocks meanwhile. Raises
    CheckpointError when there is neither a folder nor a repository of that name.
    """
    if name == DEMO_CHECKPOINT:
        try:
            return Path(str(files("voxgate.voices"))) / DEMO_CHECKPOINT
        except ModuleNotFoundError:
            reason = "the demo voice is not installed: install voxgate-demo-voice, or name another checkpoint"
            raise CheckpointError(reason) from None
    if Path(name).is_dir():
        return Path(name)
    if name.startswith((".", "/", "~")):
        raise CheckpointError(f"no checkpoint folder {name}")
    if name.count("/") != 1:
        raise CheckpointError(f"no checkpoint folder {name}; the id of a Hugging Face repository must be OWNER/NAME")
    return _download(name)


def _download(repository: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

    log.info("downloading %s; files that were downloaded before are kept", repository)
    try:
        return Path(snapshot_download(repository, allow_patterns=DOWNLOAD_PATTERNS))
    except GatedRepoError as error:
        raise CheckpointError(f"{repository} is gated: accept its terms, then log in with 'hf auth login'") from error
    except RepositoryNotFoundError as error:
        raise CheckpointError(f"there is no repository {repository}, or it is private") from error
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise CheckpointError(f"cannot download {repository}, and it is not in the local cache: {reason}") from error
