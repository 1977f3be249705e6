"""Drives a real Chromium over its DevTools socket."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import shutil
import urllib.request
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fakes.waiting import DEADLINE_S
from websockets.asyncio.client import ClientConnection, connect

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--mute-audio",
    "--hide-scrollbars",
    "--autoplay-policy=no-user-gesture-required",
    "--remote-debugging-port=0",
    "--window-size=1180,900",
    "--host-resolver-rules=MAP voice.test 127.0.0.1",  # a host name other than localhost
    "about:blank",
]
POLL_S = 0.02


def find_chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((path for name in names if (path := shutil.which(name))), None)


READY = "document.body.dataset.state === 'ready'"
"""True when the page accepts text."""

IN_A_BROWSER = [
    pytest.mark.browser,
    pytest.mark.skipif(find_chromium() is None, reason="no Chromium on this machine: apt install chromium"),
    pytest.mark.asyncio(loop_scope="module"),
]
"""Marks of a module whose tests share one browser."""


class Tab:
    """One page. `problems` collects uncaught exceptions, console errors and failed requests."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.problems: list[str] = []

    async def listen(self) -> None:
        """Takes what the browser sends until the connection ends; what was asked then has no answer any more."""
        try:
            await self._take_messages()
        finally:
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(ConnectionError("the browser has closed its connection"))

    async def _take_messages(self) -> None:
        async for raw in self._socket:
            message = json.loads(raw)
            if (answer := self._answers.pop(message.get("id", 0), None)) is not None:
                if not answer.done():  # its deadline came first
                    answer.set_result(message)
            elif message.get("method") == "Runtime.exceptionThrown":
                details = message["params"]["exceptionDetails"]
                self.problems.append(details.get("exception", {}).get("description", details["text"]))
            elif message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
                self.problems.append(message["params"]["entry"]["text"])
            elif message.get("method") == "Runtime.consoleAPICalled" and message["params"]["type"] == "error":
                self.problems.append(str(message["params"]["args"]))

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        id = next(self._ids)
        self._answers[id] = asyncio.get_running_loop().create_future()
        await self._socket.send(json.dumps({"id": id, "method": method, "params": params}))
        answer = await asyncio.wait_for(self._answers[id], DEADLINE_S)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    async def open(self, url: str) -> None:
        for domain in ("Page", "Runtime", "Log"):
            await self.call(f"{domain}.enable")
        await self.call("Page.navigate", url=url)

    async def evaluate(self, expression: str) -> Any:
        answer = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def until(self, expression: str) -> Any:
        """Wait until `expression` is true in the page, and return its value. Fails the test at the deadline."""
        attempt = f"(() => {{ try {{ return {expression} }} catch {{}} }})()"
        try:
            async with asyncio.timeout(DEADLINE_S):
                while not (value := await self.evaluate(attempt)):
                    await asyncio.sleep(POLL_S)
                return value
        except TimeoutError:
            state = await self.evaluate("JSON.stringify([document.body.dataset, document.body.innerText])")
            raise AssertionError(f"never true: {expression}; {self.problems}; {state}") from None

    async def type(self, text: str) -> None:
        for character in text:
            await self.call("Input.insertText", text=character)

    async def press(self, key: str) -> None:
        codes = {"Escape": 27, "Backspace": 8, "Enter": 13}
        key_event = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
        if key == "Enter":
            key_event["text"] = "\r"
        await self.call("Input.dispatchKeyEvent", type="keyDown", **key_event)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **key_event)

    async def screenshot(self, path: Path) -> None:
        shot = await self.call("Page.captureScreenshot", format="png")
        await asyncio.to_thread(path.write_bytes, base64.b64decode(shot["data"]))


@asynccontextmanager
async def chromium(profile: Path, executable: str) -> AsyncIterator[int]:
    """Runs a browser with that profile. Yields its DevTools port."""
    browser = await asyncio.create_subprocess_exec(
        executable, *FLAGS, f"--user-data-dir={profile}", stdout=DEVNULL, stderr=DEVNULL
    )
    try:
        port_file = profile / "DevToolsActivePort"
        async with asyncio.timeout(DEADLINE_S):
            while not (port_file.is_file() and port_file.read_text().count("\n")):
                await asyncio.sleep(POLL_S)
        yield int(port_file.read_text().split()[0])
    finally:
        browser.terminate()
        try:
            async with asyncio.timeout(DEADLINE_S):
                await browser.wait()
        except TimeoutError:
            browser.kill()
            raise


@asynccontextmanager
async def tab(devtools_port: int) -> AsyncIterator[Tab]:
    """Opens a new tab, closed at the end."""
    request = urllib.request.Request(f"http://127.0.0.1:{devtools_port}/json/new?about:blank", method="PUT")
    with await asyncio.to_thread(urllib.request.urlopen, request, timeout=DEADLINE_S) as answer:
        target = json.load(answer)
    async with connect(target["webSocketDebuggerUrl"], max_size=None) as socket:
        page = Tab(socket)
        listening = asyncio.create_task(page.listen())
        try:
            yield page
            await page.call("Page.close")
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
