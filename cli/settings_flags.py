"""Settings on the command line: flags generated from a pydantic model, so that each option is described once."""

from __future__ import annotations

import argparse
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from .connection import API_KEY_VARIABLE

_OTHER_VARIABLES = (
    API_KEY_VARIABLE,
    "VOXGATE_VENV",
    "VOXGATE_ACCELERATOR",
    "VOXGATE_SETUP_LOCKED",
    "VOXGATE_TOOLS_VENV",
    "VOXGATE_GPU_LIMITS",
)
"""Read by clients and by scripts."""
_TEST_VARIABLE_PREFIX = "VOXGATE_TEST_"


def add_flags(parser: argparse.ArgumentParser, model: type[BaseModel]) -> None:
    """Adds one flag for each field: `send_ahead_ms` becomes `--send-ahead-ms`. The model parses the values."""
    for name, field in model.model_fields.items():
        flag = "--" + name.replace("_", "-")
        options: dict[str, Any] = {"dest": name, "default": argparse.SUPPRESS, "help": _help(field)}
        kind = _kind(field.annotation)
        if kind is bool:
            options["action"] = argparse.BooleanOptionalAction
        elif get_origin(kind) is Literal:
            options["choices"] = get_args(kind)
        elif get_origin(kind) in (tuple, list, frozenset, set):
            options |= {"action": "append", "metavar": "VALUE"}
        else:
            word = name.rpartition("_")[2].upper()
            options["metavar"] = {int: "N", float: "X", Path: "DIR" if word == "DIR" else "FILE"}.get(kind, word)
        parser.add_argument(flag, **options)


def given_flags(parsed: argparse.Namespace, model: type[BaseModel]) -> dict[str, Any]:
    """The fields of `model` that were given on the command line, by name."""
    return {name: value for name, value in vars(parsed).items() if name in model.model_fields}


def gateway_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` without the VOXGATE_ variables of clients, scripts and tests; any other has to be a setting."""
    return {
        name: value
        for name, value in environment.items()
        if name not in _OTHER_VARIABLES and not name.startswith(_TEST_VARIABLE_PREFIX)
    }


def _kind(annotation: Any) -> Any:
    """The type behind `T | None` and `Annotated[T, ...]`."""
    if get_origin(annotation) in (Union, types.UnionType):
        return _kind(next(each for each in get_args(annotation) if each is not type(None)))
    # Annotated inside a union keeps its metadata.
    if hasattr(annotation, "__metadata__"):
        return _kind(annotation.__origin__)
    return annotation


def _help(field: FieldInfo) -> str:
    text = (field.description or "").replace("%", "%%")
    if field.default in (None, (), "") or field.is_required():
        return text
    default = {True: "yes", False: "no"}[field.default] if isinstance(field.default, bool) else str(field.default)
    return f"{text} (default: {default.replace('%', '%%')})"
