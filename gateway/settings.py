"""Every option of the gateway in one frozen model; flags override environment variables, which override the file."""

from __future__ import annotations

import difflib
import ipaddress
import json
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from voxgate.codecs.neural.config import CodecMode
from voxgate.codecs.pcm import FRAME_MS

from .messages.connection import Limits

PREFIX = "VOXGATE_"
"""Prefix of the environment variables that set options."""
MAX_WORKERS = 32
"""Upper bound of `workers`; it stays below `access.usage.MAX_PROCESSES`, the processes that can share counts."""

Port = Annotated[int, Field(ge=0, le=65535)]
Positive = Annotated[int, Field(ge=1)]


class SettingsError(ValueError):
    """An option is unknown or invalid. The message names the option and the place that set it."""


@contextmanager
def listening(option: str, host: str, port: int) -> Iterator[None]:
    """Turns an OSError of the block, which listens, into a SettingsError that names the option."""
    try:
        yield
    except OSError as error:
        raise SettingsError(f"{option}: cannot listen on {host}:{port}: {error.strerror}") from None


class Settings(BaseModel):
    """Options of one gateway: `send_ahead_ms` is `--send-ahead-ms`, `VOXGATE_SEND_AHEAD_MS` and a key of the TOML file.

    The description of an option is its help text; it names the unit and the constraint.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    # Network

    host: str = Field("127.0.0.1", description="IP address to listen on; 0.0.0.0 for all interfaces.")
    port: Port = Field(8000, description="TCP port to listen on; 0 chooses a free one.")
    haproxy_agent_port: Port | None = Field(
        None, description="TCP port that reports free capacity to HAProxy's agent check. By default, none."
    )
    admin_port: Port | None = Field(
        None,
        description="TCP port of its own for /healthz, /readyz and /metrics, over plain HTTP and without keys; the "
        "public port then has no /metrics. By default, none.",
    )
    admin_host: str = Field("127.0.0.1", description="IP address of the admin port; keep it out of reach of clients.")
    wyoming_port: Port | None = Field(
        None,
        description="TCP port for Home Assistant's Wyoming protocol, which has neither keys nor TLS; not with keys. By "
        "default, none.",
    )
    workers: Annotated[int, Field(ge=1, le=MAX_WORKERS)] | Literal["auto"] = Field(
        "auto",
        description="Number of processes that serve clients; with more than one, the engine has a process of its own. "
        "auto: 1 on a CPU; on a GPU two fewer than there are CPU cores, 1 to 12.",
    )
    tls_certificate: Path | None = Field(None, description="PEM file with the certificate chain; enables TLS.")
    tls_key: Path | None = Field(
        None, description="PEM file with the unencrypted private key. By default, it is read from tls_certificate."
    )
    allowed_origins: tuple[str, ...] = Field(
        (),
        description="Origins of web pages that may connect, such as https://example.org; * allows all. "
        "Always allowed: clients without an Origin header, and the gateway's own page on localhost or an IP address.",
    )
    allowed_hosts: tuple[str, ...] = Field(
        (),
        description="Names by which clients without keys may address the gateway, such as voice.example; * allows "
        "all. Always allowed: IP addresses and localhost. Where keys are configured, they protect instead.",
    )
    trusted_proxies: tuple[str, ...] = Field(
        (),
        description="Networks of the load balancers in front of the gateway, such as 10.0.0.0/8, whose X-Forwarded-For "
        "headers name the client. By default, none.",
    )

    # Access

    keys_file: Path | None = Field(
        None, description="TOML file of API keys. With keys_file or keys set, every client needs a key."
    )
    keys: tuple[str, ...] = Field(
        (),
        description='API keys as "NAME=sha256:HEX", or with rights as "NAME=sha256:HEX:speak+voices+metrics"; '
        "`voxgate keys new NAME` creates one.",
    )
    key_sockets: Positive | None = Field(
        None,
        description="Maximum number of open sockets per API key (without keys, per IP address), unless the key has a "
        "limit of its own. By default, unlimited.",
    )
    key_utterances: Positive | None = Field(
        None, description="Maximum number of active utterances per API key or IP address. By default, unlimited."
    )
    key_characters_per_minute: Positive | None = Field(
        None, description="Maximum characters of text per minute per API key or IP address. By default, unlimited."
    )
    token_secret_file: Path | None = Field(
        None,
        description="File with the secret that signs browser tokens, at least 32 bytes, the same for all replicas. "
        "By default, a random secret for each run.",
    )

    # Voices

    checkpoint: str = Field(
        "demo", description='Voice model: "demo", a folder, or the id of a Hugging Face repository.'
    )
    voice: str | None = Field(
        None, description="Voice of utterances that name none. By default, the model's default voice."
    )
    voice_aliases: tuple[str, ...] = Field(
        (),
        description="Other services' voice names as NAME=VOICE, such as alloy=ada; *=VOICE for all other names.",
    )
    stock_voices: bool = Field(
        True,
        description="Speak stock voices of other services, such as alloy, with the voice nearest in gender and accent "
        "unless an alias names one; otherwise they are refused.",
    )
    pronunciations: Path | None = Field(
        None,
        description='TOML file of terms and their spoken forms, such as SQL = "sequel", for every utterance. By '
        "default, none.",
    )
    normalise: bool = Field(
        False,
        description="Speak numbers, dates, money, units and the like as words, unless the client chooses otherwise.",
    )
    trim_silence: bool = Field(
        True, description="Remove silence before the first word of an utterance, unless the client chooses otherwise."
    )
    voices_dir: Path = Field(
        Path("~/.local/share/voxgate/voices"), description="Folder of cloned voices (see `voxgate voices`)."
    )
    voices_limit: Positive = Field(200, description="Maximum number of cloned voices in the folder.")
    voice_uploads: bool | None = Field(
        None,
        description="Allow clients to create and delete cloned voices over HTTP. By default, keys with the right to; "
        "without keys, every client if host is a loopback address.",
    )
    voice_upload_mb: Annotated[int, Field(ge=1, le=100)] = Field(
        20, description="Maximum size of an uploaded recording in MB, 1 to 100."
    )
    voice_upload_s: Annotated[float, Field(ge=1, le=30)] = Field(
        30, description="Maximum length of an uploaded recording in seconds, 1 to 30."
    )

    # Limits

    sockets: Positive = Field(4000, description="Maximum number of open sockets.")
    utterances_per_session: Annotated[int, Field(ge=1, le=1000)] = Field(
        8, description="Maximum number of active utterances per socket, 1 to 1000."
    )
    active_utterances: Positive | None = Field(
        None,
        description="Maximum number of utterances that speak at once. By default, as many as measured step times allow "
        "without gaps.",
    )
    queue_length: Annotated[int, Field(ge=0)] = Field(
        64, description="Maximum number of utterances that wait for a talker slot."
    )
    queue_wait_ms: Annotated[int, Field(ge=0)] = Field(
        3000, description="Maximum wait for a talker slot in milliseconds."
    )
    caller_share: Annotated[float, Field(gt=0, le=1)] = Field(
        0.5,
        description="Maximum share of slots, of places in the queue, of sockets and of connections that one API key or "
        "IP address may hold while others are present, above 0 and at most 1; 1 sets no limit.",
    )
    max_message_bytes: Annotated[int, Field(ge=1024)] = Field(
        65_536, description="Maximum size of a client message in bytes, at least 1024."
    )
    max_characters: Positive = Field(
        4096, description="Maximum characters of text per utterance; the model may allow fewer."
    )
    messages_per_s: Annotated[float, Field(gt=0)] = Field(
        400, description="Messages per second from one socket; bursts of 5 seconds' worth are allowed."
    )
    starts_per_s: Annotated[float, Field(gt=0)] = Field(
        5, description="Utterances started per second on one socket; bursts of 5 seconds' worth are allowed."
    )
    interrupts_per_s: Annotated[float, Field(gt=0)] = Field(
        5, description="Interrupts per second on one socket; bursts of 5 seconds' worth are allowed."
    )

    hold_max_ms: Annotated[int, Field(ge=0, le=60_000)] = Field(
        10_000,
        description="Most milliseconds for which an interrupted utterance is kept, if its client asks for it, so that "
        "it can go on, 0 to 60000; 0: none is kept.",
    )

    # Pacing

    send_ahead_ms: Annotated[int, Field(ge=FRAME_MS)] = Field(
        400,
        description=f"Milliseconds of audio sent ahead of playback, at least {FRAME_MS}, unless the client asks for "
        "another lead. Protocols whose clients keep buffers of their own get lookahead_ms less two frames.",
    )
    lookahead_ms: Annotated[int, Field(ge=FRAME_MS)] = Field(
        2000,
        description="Milliseconds of audio generated ahead of playback, at least send_ahead_ms + "
        f"{2 * FRAME_MS} (two frames).",
    )
    initial_burst_ms: Annotated[int, Field(ge=FRAME_MS)] | None = Field(
        None,
        description="Milliseconds of audio that a new utterance generates at once; the lookahead then grows to "
        f"lookahead_ms as it plays. At least {FRAME_MS}. By default, lookahead_ms; 640 on a GPU.",
    )

    # Timeouts

    slow_consumer_timeout_ms: Annotated[int, Field(ge=1000)] = Field(
        3000,
        description="Milliseconds without reading or playing after which a client's socket is closed, at least 1000.",
    )
    text_idle_timeout_s: Annotated[float, Field(gt=0)] = Field(
        180,
        description="Seconds without new text after which the utterance is finished with the text received.",
    )
    utterance_timeout_s: Annotated[float, Field(gt=0)] = Field(
        600,
        description="Seconds that an utterance may last in addition to three times the duration of the audio sent.",
    )
    engine_loss_timeout_s: Annotated[float, Field(ge=0)] = Field(
        60,
        description="Seconds within which utterances continue after the loss of the speech engine, which restarts by "
        "itself; they fail afterwards. 0: they fail at once.",
    )
    ping_interval_s: Annotated[float, Field(gt=0)] = Field(10, description="Seconds between keep-alive pings.")
    ping_timeout_s: Annotated[float, Field(gt=0)] = Field(
        10, description="Seconds without a pong after which a socket is closed."
    )
    resume_s: Annotated[float, Field(ge=0, le=60)] = Field(
        10,
        description="Seconds that a session of the native protocol waits for its client after its connection was lost, "
        "0 to 60; 0 ends it at once.",
    )
    checkpoints: bool = Field(
        True,
        description="Send checkpoints to clients that ask for them, so that their utterances continue at another "
        "replica.",
    )
    socket_lifetime_s: Annotated[float, Field(gt=0)] | None = Field(
        None,
        description="Seconds after which a socket is closed once its utterances have finished, at the latest after "
        "shutdown_grace_s, so that clients spread over replicas. By default, unlimited.",
    )
    shutdown_grace_s: Annotated[float, Field(ge=0)] = Field(
        30, description="Seconds that active utterances may continue after the first SIGTERM or SIGINT."
    )

    # Engine

    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="Device of the model; auto: the GPU if there is one."
    )
    slots: Positive | None = Field(
        None,
        description="Talker slots that the engine allocates. By default, more than the device can serve; measured "
        "step times decide how many are used.",
    )
    threads: Positive | None = Field(
        None, description="Number of CPU threads of the engine. By default, chosen for the machine."
    )
    codec_mode: CodecMode = Field(
        "stateful",
        description="Streaming of the codec: stateful (exact), or overlap (decodes left context again).",
    )
    left_context: Annotated[int, Field(ge=0)] = Field(
        72, description="Frames of left context if codec_mode is overlap."
    )
    kv_cache_mb: Positive | None = Field(
        None, description="Memory of the talker's KV cache in MB. By default, what the slots need."
    )
    kv_cache_dtype: Literal["auto", "fp8"] = Field(
        "auto",
        description="Type of the talker's KV cache on a GPU: that of the computation, or fp8, which holds twice the "
        "speech and is less exact (see docs/gpu.md).",
    )
    gpu_memory: Annotated[float, Field(gt=0, le=0.95)] = Field(
        0.9, description="Maximum share of the GPU's free memory for talker and codec, above 0 and at most 0.95."
    )
    gpu_kernels: Literal["voxgate", "vllm"] = Field(
        "voxgate",
        description="The talker's kernels on a GPU: Voxgate's own, or those of vLLM and torch (see docs/gpu.md).",
    )

    # Logging

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Lowest level of the messages that are logged."
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="Format of a log message: a line of text, or a JSON object."
    )

    @model_validator(mode="after")
    def _check_lookahead(self) -> Self:
        if self.max_send_ahead_ms < self.send_ahead_ms:
            least_ms = self.send_ahead_ms + 2 * FRAME_MS
            raise ValueError(
                f"lookahead_ms must be at least send_ahead_ms + {2 * FRAME_MS} = {least_ms}, got {self.lookahead_ms}"
            )
        return self

    @model_validator(mode="after")
    def _check_cache(self) -> Self:
        if self.kv_cache_dtype == "fp8" and self.gpu_kernels == "vllm":
            raise ValueError("kv_cache_dtype fp8 requires gpu_kernels voxgate")
        return self

    @model_validator(mode="after")
    def _check_tls(self) -> Self:
        if self.tls_key is not None and self.tls_certificate is None:
            raise ValueError("tls_key requires tls_certificate")
        return self

    @model_validator(mode="after")
    def _check_wyoming(self) -> Self:
        if self.wyoming_port is not None and self.requires_key:
            raise ValueError("wyoming_port requires a gateway without keys, because Wyoming clients have none")
        return self

    @field_validator("trusted_proxies")
    @classmethod
    def _check_proxies(cls, networks: tuple[str, ...]) -> tuple[str, ...]:
        for network in networks:
            ipaddress.ip_network(network)  # raises ValueError
        return networks

    @field_validator("voice_aliases")
    @classmethod
    def _check_aliases(cls, pairs: tuple[str, ...]) -> tuple[str, ...]:
        for pair in pairs:
            if not all(part.strip() for part in (*pair.partition("="),)):
                raise ValueError(f"an alias must be NAME=VOICE, got {pair!r}")
        return pairs

    @property
    def aliases(self) -> dict[str, str]:
        """Voice by other services' voice name; both in lower case."""
        pairs = (pair.lower().partition("=") for pair in self.voice_aliases)
        return {name.strip(): voice.strip() for name, _, voice in pairs}

    @property
    def requires_key(self) -> bool:
        """Whether clients need an API key."""
        return self.keys_file is not None or bool(self.keys)

    @property
    def max_send_ahead_ms(self) -> int:
        """Most milliseconds of audio that can be sent ahead: what is generated ahead, less two frames under way."""
        return self.lookahead_ms - 2 * FRAME_MS

    def utterance_characters(self, model_characters: int) -> int:
        """Returns the most characters of an utterance; `model_characters` is the model's own limit."""
        return min(self.max_characters, model_characters)

    def session_limits(self, model_characters: int) -> Limits:
        """Returns the limits that a client is sent; `model_characters` is the model's own text limit."""
        return Limits(
            lead_ms=self.send_ahead_ms,
            lead_max_ms=self.max_send_ahead_ms,
            utterances_per_session=self.utterances_per_session,
            characters_per_utterance=self.utterance_characters(model_characters),
            message_bytes=self.max_message_bytes,
            messages_per_s=self.messages_per_s,
            starts_per_s=self.starts_per_s,
            interrupts_per_s=self.interrupts_per_s,
            queue_wait_ms=self.queue_wait_ms,
            stall_limit_ms=self.slow_consumer_timeout_ms,
            hold_max_ms=self.hold_max_ms,
        )


def settings_from(flags: Mapping[str, Any], toml_path: Path | None, environ: Mapping[str, str]) -> Settings:
    """Merges and validates the options. Raises SettingsError.

    `flags` are those given on the command line, by field name. `environ` may hold other variables, but each one that
    begins with `VOXGATE_` must be an option; lists are separated by commas.
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
    except ValidationError as invalid:
        raise SettingsError("\n".join(_describe_errors(invalid, places))) from None


def _from_file(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as missing:
        raise SettingsError(f"cannot read {path}: {missing.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as broken:
        raise SettingsError(f"{path} is not valid TOML: {broken}") from None


def _from_environment(environ: Mapping[str, str]) -> Mapping[str, Any]:
    layer: dict[str, Any] = {}
    for name, text in environ.items():
        if name.startswith(PREFIX):
            key = name.removeprefix(PREFIX).lower()
            layer[key] = [part.strip() for part in text.split(",")] if key in _LISTS else text
    return layer


_LISTS = frozenset(name for name, field in Settings.model_fields.items() if get_origin(field.annotation) is tuple)


def _suggestion(key: str) -> str:
    close = difflib.get_close_matches(key, Settings.model_fields, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _describe_errors(invalid: ValidationError, places: Mapping[str, str]) -> list[str]:
    lines = []
    for error in invalid.errors(include_url=False):
        key = str(error["loc"][0]) if error["loc"] else ""
        where = f"{key} in {places.get(key, 'the defaults')}: " if key else ""
        # A key in clear may stand where its hash belongs.
        value = f", got {json.dumps(error['input'], default=str)}" if key and key != "keys" else ""
        lines.append(f"{where}{error['msg']}{value}")
    return lines
