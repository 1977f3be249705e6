"""Unmodified client libraries of voice agents against the real gateway with the demo voice.

Run by scripts/test-compat, which makes their environments and writes docs/compatibility.md of what comes out here.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from compat.clients import CLIENTS, RESULTS, ClientUnderTest
from compat.scenarios import SCENARIOS, Scene, Unsupported
from compat.testbed import driver, gateway

pytestmark = pytest.mark.compat


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.id)
async def test_client(client: ClientUnderTest, tmp_path: Path) -> None:
    assert client.python.exists(), "scripts/test-compat makes its environment"
    outcome: dict[str, str] = {}
    async with gateway(tmp_path, tls=client.tls) as running, driver(client, running, tmp_path) as its:
        await its.ask("open")
        scene = Scene(client, running, its, tmp_path)
        for name, scenario in SCENARIOS.items():
            try:
                remark = await scenario(scene)
            except Unsupported:
                outcome[name] = "none"
            except (AssertionError, TimeoutError) as complaint:
                outcome[name] = str(complaint).splitlines()[0] if str(complaint) else type(complaint).__name__
            else:
                outcome[name] = f"ok {remark or ''}".strip()
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{client.id}.json").write_text(json.dumps({"version": client.version, "outcome": outcome}, indent=2))
    assert {name: said for name, said in outcome.items() if said.split()[0] not in ("ok", "none")} == {}
