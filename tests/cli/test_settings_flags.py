from __future__ import annotations

import argparse
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field
from voxgate.cli.settings_flags import add_flags, given_flags


class Options(BaseModel):
    lead_ms: Annotated[int, Field(ge=1)] = Field(400, description="How far ahead, in 100% of cases.")
    slots: Annotated[int, Field(ge=1)] | None = Field(None, description="How many.")
    device: Literal["cpu", "cuda"] = "cpu"
    warm: bool = True
    origins: tuple[str, ...] = ()
    checkpoint: str = Field("demo", description="Which voice.")


@pytest.fixture
def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="x")
    parser.add_argument("--config")
    add_flags(parser, Options)
    return parser


def test_only_given_flags_are_returned(parser: argparse.ArgumentParser) -> None:
    assert given_flags(parser.parse_args(["--config", "f"]), Options) == {}
    assert given_flags(parser.parse_args(["--lead-ms", "80"]), Options) == {"lead_ms": "80"}


def test_model_parses_flag_values(parser: argparse.ArgumentParser) -> None:
    arguments = [
        "--lead-ms",
        "80",
        "--slots",
        "3",
        "--device",
        "cuda",
        "--no-warm",
        "--origins",
        "a",
        "--origins",
        "b",
        "--checkpoint",
        "c",
    ]
    options = Options.model_validate(given_flags(parser.parse_args(arguments), Options))
    expected = Options(lead_ms=80, slots=3, device="cuda", warm=False, origins=("a", "b"), checkpoint="c")
    assert options == expected


def test_help_shows_description_and_default(parser: argparse.ArgumentParser) -> None:
    text = " ".join(parser.format_help().split())
    assert "--lead-ms N How far ahead, in 100% of cases. (default: 400)" in text
    assert "--slots N How many. --device" in text
    assert "{cpu,cuda}" in text


def test_value_outside_the_choices_is_refused(
    parser: argparse.ArgumentParser, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parser.parse_args(["--device", "tpu"])
    assert "invalid choice: 'tpu'" in capsys.readouterr().err
