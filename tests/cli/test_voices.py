from __future__ import annotations

import json

import pytest
from fakes.gateway.protocol_server import VOICES, FakeGateway
from voxgate.cli.main import main


def test_default_voice_is_marked(gateway: FakeGateway, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["voices", "--url", gateway.url]) == 0
    hum, whistle, *_ = capsys.readouterr().out.splitlines()
    assert hum == "* hum      A steady hum; auto, english"
    assert whistle == "  whistle  An octave up; auto, english; takes instructions"


def test_json_prints_the_gateways_answer(gateway: FakeGateway, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["voices", "--url", gateway.url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == VOICES


def test_unreachable_address_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["voices", "--url", "127.0.0.1:9"]) == 1
    assert "no gateway runs at 127.0.0.1:9: start one with" in capsys.readouterr().err
