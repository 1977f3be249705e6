"""How a command reaches a running gateway: its address, the caller's key, the certificate to trust."""

from __future__ import annotations

import argparse
import os
import ssl
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

from voxgate.client.session import DEFAULT_URL

API_KEY_VARIABLE = "VOXGATE_API_KEY"


def add_gateway_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", default=DEFAULT_URL, help="address of the gateway (default: %(default)s)")
    parser.add_argument(
        "--key",
        default=os.environ.get(API_KEY_VARIABLE),
        help=f"API key, where one is needed (default: ${API_KEY_VARIABLE})",
    )
    parser.add_argument("--ca", type=Path, metavar="FILE.pem", help="certificate to trust beside the system's own")


def tls_context(parsed: argparse.Namespace) -> ssl.SSLContext | None:
    """The context for `--ca`; None leaves it to the system's certificates. Raises OSError, with its name, for a file
    that cannot be used."""
    if parsed.ca is None:
        return None
    try:
        return ssl.create_default_context(cafile=str(parsed.ca))
    except OSError as error:  # an SSLError too; neither says which file it was
        raise OSError(error.errno, error.strerror, str(parsed.ca)) from None


def key_header(parsed: argparse.Namespace) -> dict[str, str]:
    return {"Authorization": f"Bearer {parsed.key}"} if parsed.key else {}


def gateway_unreachable_message(url: str) -> str:
    """What to say where no gateway answers."""
    return f"no gateway runs at {url}: start one with 'voxgate serve', or name it with --url"


def gateway_refusal_message(status: int, message: str) -> str:
    """What to say where a gateway answers with an error."""
    advice = f"; give one with --key or in ${API_KEY_VARIABLE}" if status == HTTPStatus.UNAUTHORIZED else ""
    return f"the gateway refused: {message}{advice}"


def http_url(url: str, path: str) -> str:
    """The HTTP address of `path` beside a WebSocket address."""
    parts = urlsplit(url if "://" in url else f"ws://{url}")
    return f"{'https' if parts.scheme in ('wss', 'https') else 'http'}://{parts.netloc}{path}"
