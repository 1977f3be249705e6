"""Every option of the gateway in one frozen model: flags beat environment variables, they beat the file."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from voxgate.codecs.pcm import FRAME_MS

from .messages import Limits

PREFIX = "VOXGATE_"
MAX_WORKERS = 32


class SettingsError(ValueError):
    """An option is unknown or has a bad value; the text says which, and where it was set."""


class Settings(BaseModel):
    """Options of one gateway process: `send_ahead_ms` is `--send-ahead-ms`, `VOXGATE_SEND_AHEAD_MS` and a TOML key."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", description="Address to listen on; 0.0.0.0 for every interface.")
    port: Annotated[int, Field(ge=0, le=65535)] = Field(8000, description="TCP port; 0 takes any free one.")
    haproxy_agent_port: Annotated[int, Field(ge=0, le=65535)] | None = Field(
        None, description="TCP port that tells HAProxy's agent-check how much room there is; none by default."
    )
    allowed_origins: tuple[str, ...] = Field(
        (),
        description="Origins of web pages that may connect, such as https://example.org; * allows any. "
        "Clients without an Origin, and the gateway's own page at localhost or an IP address, always may.",
    )

    keys_file: Path | None = Field(None, description="TOML file of API keys; with any key, everyone needs one.")
    keys: tuple[str, ...] = Field((), description='API keys as "NAME=sha256:HEX"; `voxgate keys new NAME` makes one.')
    metrics_key: str = Field("metrics", description="With keys: the name of the one that may read /metrics.")
    key_sockets: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Most sockets of one key (without keys, of one address) that has no limit of its own."
    )
    key_utterances: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Most utterances under way at once of one key or address."
    )
    key_characters_per_minute: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Most text of one key or address in a minute."
    )
    token_secret_file: Path | None = Field(
        None,
        description="What browser tokens are signed with, 32 bytes or more, the same for every replica; "
        "by default a fresh secret for each run.",
    )
    tls_certificate: Path | None = Field(None, description="PEM file with the certificate chain; switches TLS on.")
    tls_key: Path | None = Field(None, description="PEM file with the key, where it is not beside the certificate.")

    checkpoint: str = Field("demo", description='Voice model: "demo", a folder, or a Hugging Face repository id.')
    voice: str | None = Field(None, description="Voice for utterances that name none; the model's own by default.")
    normalise: bool = Field(
        False,
        description="Say numbers, dates, money, units and the like in words, unless a client asks otherwise.",
    )
    voices_dir: Path = Field(
        Path("~/.local/share/voxgate/voices"), description="Folder of voices made of recordings (see `voxgate voices`)."
    )
    voices_limit: Annotated[int, Field(ge=1)] = Field(200, description="Most voices kept in that folder.")
    voice_uploads: bool = Field(True, description="Whether voices can be made and removed over HTTP.")
    voice_upload_mb: Annotated[int, Field(ge=1, le=100)] = Field(20, description="Largest recording.")
    voice_upload_s: Annotated[float, Field(ge=1, le=30)] = Field(30, description="Longest recording.")
    voice_aliases: tuple[str, ...] = Field(
        (),
        description="Other services' names for our voices, as NAME=VOICE (alloy=ada); *=VOICE for every other name.",
    )

    sockets: Annotated[int, Field(ge=1)] = Field(1000, description="Most sockets open at once.")
    utterances_per_session: Annotated[int, Field(ge=1, le=1000)] = Field(
        8, description="Most utterances under way at once on one socket."
    )
    active_utterances: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Most utterances spoken at once; by default as many as are measured to come without a gap."
    )
    queue_length: Annotated[int, Field(ge=0)] = Field(64, description="Most utterances waiting for a slot.")
    queue_wait_ms: Annotated[int, Field(ge=0)] = Field(3000, description="Longest wait for a slot.")
    max_message_bytes: Annotated[int, Field(ge=1024)] = Field(65_536, description="Largest message of a client.")
    max_characters: Annotated[int, Field(ge=1)] = Field(
        4096, description="Most text of one utterance; the model may allow less."
    )
    messages_per_s: Annotated[float, Field(gt=0)] = Field(
        400, description="Messages a client may send; five seconds of it at once."
    )
    starts_per_s: Annotated[float, Field(gt=0)] = Field(5, description="Utterances a client may start a second.")
    interrupts_per_s: Annotated[float, Field(gt=0)] = Field(5, description="Interrupts a client may send a second.")

    send_ahead_ms: Annotated[int, Field(ge=FRAME_MS)] = Field(
        400, description="How far audio is sent ahead of its playback."
    )
    lookahead_ms: Annotated[int, Field(ge=FRAME_MS)] = Field(
        2000, description="How far generation runs ahead of playback; at least send_ahead_ms and two frames."
    )
    initial_burst_ms: Annotated[int, Field(ge=FRAME_MS)] | None = Field(
        None,
        description="How much of a new utterance is made at once; what is ahead then grows as it is heard, up to "
        "lookahead_ms. By default that is all of lookahead_ms, and 640 on a GPU.",
    )
    slow_consumer_timeout_ms: Annotated[int, Field(ge=1000)] = Field(
        3000, description="How long a client may stop reading, or playing, before its socket is closed."
    )
    text_idle_timeout_s: Annotated[float, Field(gt=0)] = Field(
        180, description="How long an utterance may hold its slot without more text; then what was written is all."
    )
    ping_interval_s: Annotated[float, Field(gt=0)] = Field(10, description="Pause between keep-alive pings.")
    ping_timeout_s: Annotated[float, Field(gt=0)] = Field(10, description="Longest wait for a pong.")
    shutdown_grace_s: Annotated[float, Field(ge=0)] = Field(
        30, description="How long speech under way may go on after the first SIGTERM or SIGINT."
    )

    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="Where the model runs.")
    slots: Annotated[int, Field(ge=1)] | None = Field(
        None,
        description="Most utterances the engine can speak at once; by default ample. How many it does is measured.",
    )
    workers: Annotated[int, Field(ge=1, le=MAX_WORKERS)] | Literal["auto"] = Field(
        "auto",
        description="Processes that serve the sockets; with more than one, the voice model's process serves none. "
        "auto: one on a CPU, half as many as there are cores on a GPU, 12 at most.",
    )
    threads: Annotated[int, Field(ge=1)] | None = Field(
        None, description="CPU threads of the engine; by default what suits the machine."
    )
    codec_mode: Literal["stateful", "overlap"] = Field(
        "stateful", description="How the codec streams: with exact state, or by decoding left context again."
    )
    left_context: Annotated[int, Field(ge=0)] = Field(
        72, description="Frames of left context when codec_mode is overlap."
    )
    kv_cache_mb: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Memory for the talker's KV cache; by default what the slots need."
    )
    gpu_memory: Annotated[float, Field(gt=0, le=0.95)] = Field(
        0.7, description="Most of a GPU's memory that the talker may take, as a share."
    )
    gpu_kernels: Literal["voxgate", "vllm"] = Field(
        "voxgate",
        description="The talker's kernels on a GPU: Voxgate's own, or those of vLLM and torch (see docs/gpu.md).",
    )
    streamed_layers: bool = Field(
        False,
        description="On a GPU, compute the talker's layers for up to 32 rows with two kernels per layer instead of the "
        "matrix library. Not yet stable while the codec runs on the same GPU (see docs/gpu.md).",
    )
    persistent_predictor: bool = Field(
        False,
        description="On a GPU, compute a frame's codes for up to 16 rows with one kernel instead of a chain of them "
        "(see docs/gpu.md).",
    )

    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level that is logged.")
    log_format: Literal["text", "json"] = Field("text", description="One line of text, or one JSON object a record.")

    @model_validator(mode="after")
    def _ahead_of_lead(self) -> Self:
        if self.lookahead_ms < self.send_ahead_ms + 2 * FRAME_MS:
            raise ValueError(f"lookahead_ms must be at least send_ahead_ms + {2 * FRAME_MS}")
        return self

    @model_validator(mode="after")
    def _key_with_certificate(self) -> Self:
        if self.tls_key is not None and self.tls_certificate is None:
            raise ValueError("tls_key needs tls_certificate")
        return self

    @field_validator("voice_aliases")
    @classmethod
    def _alias_pairs(cls, pairs: tuple[str, ...]) -> tuple[str, ...]:
        for pair in pairs:
            if not all(part.strip() for part in (*pair.partition("="),)):
                raise ValueError(f"{pair!r} is not NAME=VOICE")
        return pairs

    @property
    def aliases(self) -> dict[str, str]:
        """Voices by the names other services have for them, all in lower case."""
        pairs = (pair.lower().partition("=") for pair in self.voice_aliases)
        return {name.strip(): voice.strip() for name, _, voice in pairs}

    @property
    def requires_key(self) -> bool:
        """Keys are configured: everyone needs one."""
        return self.keys_file is not None or bool(self.keys)

    def session_limits(self, model_characters: int) -> Limits:
        """What a client is told; `model_characters` is the model's own text limit."""
        return Limits(
            lead_ms=self.send_ahead_ms,
            utterances_per_session=self.utterances_per_session,
            characters_per_utterance=min(self.max_characters, model_characters),
            message_bytes=self.max_message_bytes,
            messages_per_s=self.messages_per_s,
            starts_per_s=self.starts_per_s,
            interrupts_per_s=self.interrupts_per_s,
            queue_wait_ms=self.queue_wait_ms,
            stall_limit_ms=self.slow_consumer_timeout_ms,
        )


def settings_from(flags: Mapping[str, Any], toml_path: Path | None, environ: Mapping[str, str]) -> Settings:
    """The settings in force. Raises SettingsError, naming the option and the place that set it.

    `flags`: only those given on the command line, by field name. `environ`: all of it; every `VOXGATE_` name
    has to be known. Lists in the environment are separated by commas.
    """
    values: dict[str, Any] = {}
    places: dict[str, str] = {}
    for place, layer in (
        (str(toml_path), _from_file(toml_path) if toml_path is not None else {}),
        ("the environment", _from_environment(environ)),
        ("the command line", flags),
    ):
        for key, value in layer.items():
            if key not in Settings.model_fields:
                raise SettingsError(f"unknown option {key!r} in {place}{_suggestion(key)}")
            values[key], places[key] = value, place
    try:
        return Settings.model_validate(values)
    except ValidationError as refused:
        raise SettingsError("\n".join(_complaints(refused, places))) from None


def _from_file(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as missing:
        raise SettingsError(f"cannot read {path}: {missing.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as broken:
        raise SettingsError(f"{path} is not TOML: {broken}") from None


def _from_environment(environ: Mapping[str, str]) -> Mapping[str, Any]:
    layer: dict[str, Any] = {}
    for name, text in environ.items():
        if name.startswith(PREFIX):
            key = name.removeprefix(PREFIX).lower()
            layer[key] = [part.strip() for part in text.split(",")] if key in _LISTS else text
    return layer


_LISTS = frozenset(name for name, field in Settings.model_fields.items() if field.default == ())


def _suggestion(key: str) -> str:
    close = difflib.get_close_matches(key, Settings.model_fields, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _complaints(refused: ValidationError, places: Mapping[str, str]) -> list[str]:
    lines = []
    for error in refused.errors(include_url=False):
        key = str(error["loc"][0]) if error["loc"] else ""
        where = f"{key} in {places.get(key, 'the defaults')}: " if key else ""
        shown = f", not {json.dumps(error['input'], default=str)}" if key else ""
        lines.append(f"{where}{error['msg']}{shown}")
    return lines
