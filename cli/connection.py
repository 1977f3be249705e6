"""How commands reach a running gateway: its address, the API key, the certificate to trust."""

from __future__ import annotations

import argparse
import ipaddress
import os
import ssl
from http import HTTPStatus
from pathlib import Path

from voxgate.client import DEFAULT_URL
from voxgate.client.address import ServerAddress

API_KEY_VARIABLE = "VOXGATE_API_KEY"


def add_gateway_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", default=DEFAULT_URL, help="address of the gateway (default: %(default)s)")
    parser.add_argument(
        "--key",
        default=os.environ.get(API_KEY_VARIABLE),
        help=f"API key, for a gateway that requires one (default: ${API_KEY_VARIABLE})",
    )
    parser.add_argument(
        "--ca", type=Path, metavar="FILE.pem", help="certificate to trust in addition to the system's certificates"
    )


def tls_context(parsed: argparse.Namespace) -> ssl.SSLContext | None:
    """The TLS context for `--ca`; without the option None, for the system's certificates.

    Raises OSError with the file's name when the file is missing or holds no certificate.
    """
    if parsed.ca is None:
        return None
    try:
        context = ssl.create_default_context()
        context.load_verify_locations(parsed.ca)
    except OSError as error:  # including SSLError; the original does not name the file
        raise OSError(error.errno, error.strerror, str(parsed.ca)) from None
    return context


def key_header(parsed: argparse.Namespace) -> dict[str, str]:
    return {"Authorization": f"Bearer {parsed.key}"} if parsed.key else {}


def gateway_unreachable_message(url: str, reason: object) -> str:
    """The text for a gateway that does not answer, because of `reason`, an error or a text.

    It advises to start one where a port of this machine is closed, and otherwise gives the reason.
    """
    if _is_loopback(url) and _is_refused_connection(reason):
        return f"no gateway runs at {url}: start one with 'voxgate serve', or name another address with --url"
    advice = "; name a certificate to trust with --ca" if isinstance(reason, ssl.SSLCertVerificationError) else ""
    return f"no gateway answers at {url}: {reason}{advice}"


def _is_refused_connection(reason: object) -> bool:
    # For a name with several addresses, asyncio raises a plain OSError without a number that joins their errors.
    return isinstance(reason, ConnectionRefusedError) or (type(reason) is OSError and reason.errno is None)


def _is_loopback(url: str) -> bool:
    try:
        host = ServerAddress.parse(url).host
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def gateway_refusal_message(status: int, message: str) -> str:
    """The text for a gateway that answered with an HTTP error."""
    advice = f"; set a key with --key or in ${API_KEY_VARIABLE}" if status == HTTPStatus.UNAUTHORIZED else ""
    return f"the gateway refused: {message}{advice}"
