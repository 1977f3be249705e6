"""The clients under test: library, environment and capabilities."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
REQUIREMENTS = HERE / "requirements"
RESULTS = Path(os.environ.get("VOXGATE_TEST_COMPAT_RESULTS", ROOT / "build" / "compat" / "results"))
ENVIRONMENTS = Path(os.environ.get("VOXGATE_TEST_COMPAT_VENVS", ROOT / "build" / "compat" / "venvs"))


@dataclass(frozen=True, slots=True)
class ClientUnderTest:
    """A client. `library` names its environment and driver, `package` the distribution whose version is reported."""

    __test__ = False  # not a test class, in spite of its name

    library: str
    package: str
    what: str
    """The name for users."""
    arguments: tuple[str, ...] = ()
    words: bool = False
    """Whether it reports word times."""
    tls: bool = False
    http: bool = False
    """Whether it uses plain HTTP: audio is not paced, and the limit of sockets does not apply."""
    interrupts_without_message: bool = False
    """Whether it stops playback without a message; the gateway then speaks to the end at playback pace."""
    ends_in_silence: bool = False
    """Whether it ends a turn by itself, without a report, when no audio comes for some seconds."""
    reports_spoken_text: bool = False
    """Whether an interrupt is answered with the spoken and the remaining text."""

    @property
    def id(self) -> str:
        return "-".join((self.library, *self.arguments))

    @property
    def python(self) -> Path:
        return ENVIRONMENTS / self.library / "bin" / "python"

    @property
    def driver(self) -> Path:
        return HERE / "drivers" / f"{self.library}_driver.py"

    @property
    def version(self) -> str:
        pinned = (REQUIREMENTS / f"{self.library}.txt").read_text("utf-8")
        found = re.search(rf"^{re.escape(self.package)}==(\S+)", pinned, re.MULTILINE)
        assert found, f"{self.package} is not pinned"
        return found[1]


_PIPECAT = {"library": "pipecat", "package": "pipecat-ai", "ends_in_silence": True}
_UNHEARD = {"words": True, "interrupts_without_message": True}
CLIENTS = (
    ClientUnderTest(what="ElevenLabsTTSService", arguments=("elevenlabs",), words=True, **_PIPECAT),
    ClientUnderTest(what="DeepgramTTSService", arguments=("deepgram",), **_PIPECAT),
    ClientUnderTest(what="DeepgramFluxTTSService", arguments=("flux",), **_PIPECAT),
    ClientUnderTest(what="CartesiaTTSService", arguments=("cartesia",), words=True, **_PIPECAT),
    ClientUnderTest("pipecat", "pipecat-ai", "voxgate's VoxgateTTSService", ("voxgate",), words=True),
    ClientUnderTest("livekit", "livekit-plugins-elevenlabs", "elevenlabs.TTS, MP3", ("elevenlabs",), **_UNHEARD),
    ClientUnderTest("livekit", "livekit-plugins-elevenlabs", "elevenlabs.TTS, Opus", ("elevenlabs_opus",), **_UNHEARD),
    ClientUnderTest("livekit", "livekit-plugins-deepgram", "deepgram.TTS", ("deepgram",)),
    ClientUnderTest("livekit", "livekit-plugins-deepgram", "deepgram.TTSv2", ("deepgram2",)),
    ClientUnderTest("livekit", "livekit-plugins-cartesia", "cartesia.TTS", ("cartesia",), **_UNHEARD),
    ClientUnderTest("livekit", "livekit-agents", "voxgate's livekit.TTS", ("voxgate",), words=True),
    ClientUnderTest("elevenlabs", "elevenlabs", "convert_realtime", ("socket",), tls=True),
    ClientUnderTest("elevenlabs", "elevenlabs", "stream_with_timestamps", ("http",), words=True, tls=True, http=True),
    ClientUnderTest("deepgram", "deepgram-sdk", "speak.v1", ("1",)),
    ClientUnderTest("deepgram", "deepgram-sdk", "speak.v2", ("2",), reports_spoken_text=True),
    ClientUnderTest("cartesia", "cartesia", "AsyncCartesia, websocket_connect", ("async",), words=True),
    ClientUnderTest("cartesia", "cartesia", "Cartesia, websocket_connect", ("sync",), words=True),
    ClientUnderTest("cartesia", "cartesia", "generate_sse", ("sse",), words=True, http=True),
    ClientUnderTest("cartesia", "cartesia", "generate", ("bytes",), http=True),
    ClientUnderTest("openai", "openai", "audio.speech", http=True),
)
