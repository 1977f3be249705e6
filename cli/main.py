"""The `voxgate` command: chooses a subcommand and imports only what that one needs."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from .failure import fail, missing_library

COMMANDS = {
    "serve": "start the gateway: speech over WebSocket and HTTP, and a web page to try it",
    "say": "speak text from the command line, from a pipe, or as it is typed",
    "voices": "list the voices of a running gateway; add, blend, list and remove stored voices",
    "keys": "make API keys",
    "bench": "measure latency and throughput",
    "doctor": "check whether this machine meets the requirements of serving",
}

EXAMPLES = """examples:
  voxgate serve                            serve the demo voices at http://127.0.0.1:8000
  voxgate say "Good morning."              speak a sentence
  llm "tell me a story" | voxgate say      speak a language model's answer while it is written
  voxgate say --output hello.wav "Hello."  write a file instead
  voxgate doctor                           find out what is missing

See 'voxgate COMMAND --help' for the options of a command."""


class _VersionAction(argparse.Action):
    """Looks the version up only when it is requested."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"voxgate {version('voxgate')}")
        parser.exit()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; the exit status is 0 for success, 1 for failure, 2 for wrong usage, 130 after Ctrl-C."""
    try:
        return _run(arguments)
    except KeyboardInterrupt:  # also while the libraries of the command are imported, which takes a second
        return 130


def _run(arguments: Sequence[str] | None) -> int:
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(
        prog="voxgate",
        description="Streaming text to speech: text in piece by piece, speech out while it arrives.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_VersionAction, nargs=0, help="show the version and exit")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    chosen = next((argument for argument in arguments if not argument.startswith("-")), None)
    module = None
    for name, summary in COMMANDS.items():
        subparser = subparsers.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name == chosen:
            # Importing a command takes time: the flags of `serve`, for example, come from a pydantic model.
            try:
                module = importlib.import_module(f".{name}", __package__)
                module.configure(subparser)
            except ModuleNotFoundError as missing:
                return fail(name, missing_library(name, str(missing.name)))
    parsed = parser.parse_args(arguments)
    assert module is not None
    try:
        status: int = module.run(parsed)
    except ModuleNotFoundError as missing:
        # Libraries of the voice model are imported when it is loaded.
        return fail(parsed.command, missing_library(parsed.command, str(missing.name)))
    return status
