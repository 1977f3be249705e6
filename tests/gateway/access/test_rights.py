"""Rights: every route states what it requires, the documentation lists it, and no other client is served."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from fakes.gateway.packet_encoder import FakeEncoder
from fakes.pipeline.tone_synthesizer import ToneSynthesizer
from voxgate.gateway.access.keys import hash_key
from voxgate.gateway.access.rights import PUBLIC, Requirement, Right, parse_rights
from voxgate.gateway.protocols.registry import WEBSOCKET_ENDPOINTS
from voxgate.gateway.server import Gateway
from voxgate.gateway.settings import Settings
from voxgate.pipeline.cloning.library import VoiceLibrary
from voxgate.pipeline.cloning.store import VoiceStore

ACCESS_PAGE = Path(__file__).parents[3] / "docs/access.md"
KEYS = tuple(f"{right}={hash_key(right)}:{right}" for right in Right)


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    """A gateway with every route, and with one key for each right."""
    synthesizer = ToneSynthesizer()
    library = VoiceLibrary(VoiceStore(tmp_path), synthesizer, "", None)
    return Gateway(Settings(port=0, keys=KEYS), synthesizer, FakeEncoder, library=library)


def routes(gateway: Gateway) -> dict[tuple[str, str], Requirement | None]:
    """Requirement of each route of plain HTTP, by method and path."""
    return dict(gateway._listener._http.requirements)


def documented() -> Iterator[tuple[str, str, set[str]]]:
    """Method ("" for a WebSocket), path and rights in each row of the table in docs/access.md."""
    section = ACCESS_PAGE.read_text("utf-8").partition("## Rights")[2].partition("\n## ")[0]
    for cells in re.findall(r"^\| (?!route|-)(.+) \| (.+) \|$", section, re.MULTILINE):
        rights = set(re.findall(r"`(\w+)`", cells[1]))
        method = ""
        for named, path in re.findall(r"`(?:(GET|POST|PATCH|DELETE) )?(/[^`]*)`", cells[0]):
            method = named or method
            yield method, path, rights


def test_documentation_lists_the_right_of_every_route(gateway: Gateway) -> None:
    table = {(method, path): rights for method, path, rights in documented()}
    for endpoint in WEBSOCKET_ENDPOINTS:
        assert table["", endpoint.pattern] == endpoint.requires.one_of
    for (method, path), requirement in routes(gateway).items():
        if method == "HEAD" or requirement is PUBLIC:
            continue
        assert table[method, path] == requirement.one_of, (method, path)


def test_no_other_route_is_public(gateway: Gateway) -> None:
    public = {path for (_, path), requirement in routes(gateway).items() if requirement is PUBLIC}
    files = {path for path in public if re.fullmatch(r"/(\w+\.(html|css|js|svg))?", path)}
    # At the path of a WebSocket, plain HTTP only upgrades.
    upgrades = {endpoint.pattern for endpoint in WEBSOCKET_ENDPOINTS}
    assert public - files - upgrades == {"/healthz", "/readyz", "/health", "/v1/limits"}


async def test_routes_serve_no_client_without_the_right(gateway: Gateway) -> None:
    await gateway.open()
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{gateway.port}") as http:

            async def status(method: str, path: str, key: str | None) -> int:
                headers = {} if key is None else {"Authorization": f"Bearer {key}"}
                async with http.request(method, re.sub("{[^}]*}", "x", path), headers=headers) as answer:
                    return answer.status

            for (method, path), requirement in routes(gateway).items():
                if requirement is PUBLIC:
                    assert await status(method, path, None) not in (401, 403)
                    continue
                assert await status(method, path, None) == 401, (method, path)
                for right in Right:
                    answered = await status(method, path, right)
                    assert (answered == 403) == (right not in requirement.one_of), (method, path, right, answered)
    finally:
        await gateway.close()


def test_rights_are_parsed_and_others_refused() -> None:
    assert parse_rights("speak+metrics") == {Right.SPEAK, Right.METRICS}
    for wrong in ("", "+", "speak+", "Speak", "all"):
        with pytest.raises(ValueError, match="rights must be speak, voices, metrics"):
            parse_rights(wrong)
