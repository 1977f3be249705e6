"""Scenarios that every client has to pass.

Each scenario raises AssertionError with what its user would complain of, and may return a remark on how it went well.
"""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compat.clients import ClientUnderTest
from compat.testbed import CompatGateway, DriverProcess, drain, driver
from fakes.gateway.cut_proxy import cut_proxy

TEXT = "Your package was left with a neighbor on the ground floor."
LONG = (
    "After the storm, the whole village came out to see what was left of the bridge. "
    "Most of the work had been finished by the time the manager arrived. "
    "In the evening, when the wind died down, they sat on the porch and talked."
)
SECONDS_PER_CHARACTER = (0.045, 0.095)
"""Speaking rate of the demo voice, with a margin on both sides."""
WITHOUT_ERROR = "The library reports no error to its user: the utterance just ends."
SPOKEN_UNHEARD = (
    "Once it has sent all its text, the library stops listening without a word to the server. The rest is spoken "
    "unheard, at playback pace, and takes up a talker until then; the next utterance does not wait for it."
)
SILENCE = "The library ends a turn after 3 s without audio: what follows the restart is not played. The next turn is."
RESTART_S = 45
"""Time for a pause and the rest of the speech."""
QUIET_S = 6
"""Within this time after an interruption no utterance of the client may be active."""


@dataclass
class Scene:
    client: ClientUnderTest
    running: CompatGateway
    driver: DriverProcess
    folder: Path


class Unsupported(Exception):
    """The client lacks this capability; the report shows n/a."""


async def whole(scene: Scene) -> None:
    """An utterance is received completely."""
    _whole(await scene.driver.ask("say", text=TEXT), TEXT)


async def second(scene: Scene) -> None:
    """The next utterance of the same instance is received completely."""
    _whole(await scene.driver.ask("say", text=LONG), LONG)


async def barge_in(scene: Scene) -> str | None:
    """Speech can be interrupted; the gateway stops, and the next utterance is received completely."""
    heard = await scene.driver.ask("say", text=LONG, stop_after_s=1.0)
    assert not heard["errors"], heard["errors"]
    assert 0.9 <= heard["audio_s"] <= 4, f"{heard['audio_s']:.1f} s were heard"
    if scene.client.reports_spoken_text:
        spoken, remaining = (heard["more"]["stopped"].get(f"text_{part}", "") for part in ("spoken", "remaining"))
        assert spoken + remaining == LONG, f"{spoken!r} and {remaining!r} are not what was said"
        assert 0.5 < len(spoken) * sum(SECONDS_PER_CHARACTER) / 2 < 4, f"{spoken!r} was not heard"
    if not scene.client.interrupts_without_message:
        try:
            await scene.running.until_active(0, QUIET_S)
        except TimeoutError:
            raise AssertionError(f"still speaking {QUIET_S} s after the barge-in") from None
    _whole(await scene.driver.ask("say", text=TEXT), TEXT)
    return SPOKEN_UNHEARD if scene.client.interrupts_without_message else None


async def words(scene: Scene) -> None:
    """Every word is reported in order, with a time within the audio."""
    if not scene.client.words:
        raise Unsupported
    heard = await scene.driver.ask("say", text=LONG)
    _whole(heard, LONG)
    said = _letters("".join(word for word, _ in heard["words"]))
    assert said == _letters(LONG), f"the words were {[word for word, _ in heard['words']]}"
    assert len(heard["words"]) >= len(LONG.split()), f"words are glued: {[word for word, _ in heard['words']]}"
    times = [at for _, at in heard["words"]]
    assert times == sorted(times), f"times go back: {times}"
    assert times[0] < 1, f"the first word is at {times[0]:.2f} s"
    assert 0.75 * heard["audio_s"] < times[-1] < heard["audio_s"], (
        f"the last of {heard['audio_s']:.1f} s is at {times[-1]:.1f} s"
    )


async def busy(scene: Scene) -> str | None:
    """With every slot in use the client gets an error in time, and speaks once a slot is free."""
    async with scene.running.hold_talkers():
        heard = await scene.driver.ask("say", text=TEXT, within_s=25)
        _refused(heard)
    await _recovers(scene.driver)
    return None if heard["errors"] else WITHOUT_ERROR


async def full(scene: Scene) -> None:
    """With every socket in use a new client gets an error in time, and speaks once a socket is free."""
    if scene.client.http:
        raise Unsupported
    async with driver(scene.client, scene.running, scene.folder) as newcomer:
        async with scene.running.hold_sockets():
            await newcomer.ask("open")
            _refused(await newcomer.ask("say", text=TEXT, within_s=25))
        await _recovers(newcomer)


async def engine_lost(scene: Scene) -> str | None:
    """The engine is lost during speech: the client hears a pause, and then the rest."""
    silent = scene.client.ends_in_silence
    # Unpaced audio is generated faster than it is played.
    text, after_s = (LONG * 4, 0.3) if scene.client.http else (LONG, 1.2)
    speaking = asyncio.create_task(scene.driver.ask("say", text=text, within_s=RESTART_S if silent else 90))
    await scene.running.until_active(1, 10)
    await asyncio.sleep(after_s)
    scene.running.kill_engine()
    heard = await speaking
    await scene.running.until_ready()
    if not silent:
        assert not heard["errors"], heard["errors"]
        assert heard["audio_s"] > SECONDS_PER_CHARACTER[0] * len(text), "it was cut off"
    await _recovers(scene.driver)
    return SILENCE if silent else None


async def network_lost(scene: Scene) -> None:
    """Text with nothing to say is no error, and a network that is lost for 4 s in a turn costs no audio and no word."""
    if scene.client.arguments != ("voxgate",):
        raise Unsupported
    async with cut_proxy(int(scene.running.url.rpartition(":")[2])) as proxy:
        behind = copy.copy(scene.running)
        behind.url = f"http://localhost:{proxy.port}"
        async with driver(scene.client, behind, scene.folder) as its:
            await its.ask("open")
            silent = await its.ask("say", text="...")
            assert (silent["finished"], silent["errors"]) == (True, []), silent
            speaking = asyncio.create_task(its.ask("say", text=LONG))
            await scene.running.until_active(1, 10)
            await asyncio.sleep(1.5)
            proxy.stop()
            await asyncio.sleep(4)
            proxy.go_on(forget=True)
            heard = await speaking
    _whole(heard, LONG)
    assert _letters("".join(word for word, _ in heard["words"])) == _letters(LONG), heard["words"]


async def drained(scene: Scene) -> None:
    """A shutdown finishes active speech."""
    speaking = asyncio.create_task(scene.driver.ask("say", text=LONG))
    await scene.running.until_active(1, 10)
    await asyncio.sleep(0.2 if scene.client.http else 0.8)
    drain(scene.running)
    # The library may report the closed socket as an error, and that error may come before the end of the audio.
    _complete(await speaking, LONG)
    async with asyncio.timeout(25):
        assert await scene.running.process.wait() == 0


SCENARIOS: dict[str, Callable[[Scene], Awaitable[str | None]]] = {
    "whole utterance": whole,
    "second one": second,
    "barge-in": barge_in,
    "word times": words,
    "talkers busy": busy,
    "server full": full,
    "engine lost": engine_lost,
    "network lost": network_lost,
    "drain": drained,
}
"""In order: the last scenario ends the gateway."""


def _whole(heard: dict[str, Any], text: str) -> None:
    assert not heard["errors"], heard["errors"]
    _complete(heard, text)


def _complete(heard: dict[str, Any], text: str) -> None:
    assert heard["finished"], "its end was not told"
    least, most = (pace * len(text) for pace in SECONDS_PER_CHARACTER)
    assert least <= heard["audio_s"] <= most, f"{heard['audio_s']:.2f} s of audio, not {least:.1f} to {most:.1f}"
    assert heard["loudest"] > 0.05, "it is silent"


def _refused(heard: dict[str, Any]) -> None:
    assert not any("timeout" in error for error in heard["errors"]), heard["errors"]
    assert heard["audio_s"] < 0.2, f"{heard['audio_s']:.1f} s of audio from a gateway that is full"


async def _recovers(its: DriverProcess) -> None:
    """Wait out the pause of a library before it reconnects."""
    heard: dict[str, Any] = {}
    for _ in range(3):
        heard = await its.ask("say", text=TEXT, within_s=20)
        if not heard["errors"]:
            break
        await asyncio.sleep(2)
    _whole(heard, TEXT)


def _letters(text: str) -> str:
    return re.sub(r"\W", "", text).lower()
