"""Command-line flags from a pydantic model, so that an option is described once."""

from __future__ import annotations

import argparse
import types
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo


def add_flags(parser: argparse.ArgumentParser, model: type[BaseModel]) -> None:
    """One flag for each field: `send_ahead_ms` becomes `--send-ahead-ms`. Values stay text; the model checks them."""
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
            options["metavar"] = {int: "N", float: "X"}.get(kind, name.rpartition("_")[2].upper())
        parser.add_argument(flag, **options)


def given_flags(parsed: argparse.Namespace, model: type[BaseModel]) -> dict[str, Any]:
    """Only what was given on the command line, by field name."""
    return {name: value for name, value in vars(parsed).items() if name in model.model_fields}


def _kind(annotation: Any) -> Any:
    """The type behind `T | None`."""
    if get_origin(annotation) in (Union, types.UnionType):
        return _kind(next(each for each in get_args(annotation) if each is not type(None)))
    # Annotated inside a union keeps its metadata; the type is what it is about.
    if hasattr(annotation, "__metadata__"):
        return _kind(annotation.__origin__)
    return annotation


def _help(field: FieldInfo) -> str:
    text = (field.description or "").replace("%", "%%")
    if field.default in (None, (), "") or field.is_required():
        return text
    return f"{text} (default: {str(field.default).replace('%', '%%')})"
