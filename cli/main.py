"""The command's front door: picks a subcommand and imports only what that one needs."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

COMMANDS = {
    "serve": "start the gateway: speech over WebSocket, and the page",
    "say": "speak text, from the command line or as it is typed",
    "voices": "list the voices of a running gateway; make, blend, list and remove your own",
    "keys": "make API keys",
    "bench": "measure latency and throughput",
    "doctor": "check whether this machine has what serving needs",
}

EXAMPLES = """examples:
  voxgate serve                            serve the built-in demo voices at http://127.0.0.1:8000
  voxgate say "Good morning."              hear it
  llm "tell me a story" | voxgate say      hear a language model while it writes
  voxgate say --output hello.wav "Hello."  write a file instead
  voxgate doctor                           when something does not work

'voxgate COMMAND --help' tells the rest."""


class _Version(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"voxgate {version('voxgate')}")
        parser.exit()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 0 for success, 1 failure, 2 wrong usage, 130 Ctrl-C."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(
        prog="voxgate",
        description="Text in piece by piece, speech out while it arrives.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
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
            # The flags of `serve` come from the settings; the other commands need not wait for those.
            try:
                module = importlib.import_module(f".{name}", __package__)
            except ModuleNotFoundError as missing:
                # Where only the client was installed, or the set-up stopped in the middle.
                parser.exit(1, f"voxgate {name}: {missing.name} is not installed here: run scripts/setup\n")
            module.configure(subparser)
    parsed = parser.parse_args(arguments)
    assert module is not None
    try:
        status: int = module.run(parsed)
    except KeyboardInterrupt:
        return 130
    return status
