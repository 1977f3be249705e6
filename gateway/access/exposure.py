"""What a configuration leaves open to others: public addresses without keys, and files with loose permissions."""

from __future__ import annotations

import ipaddress
import stat
from collections.abc import Iterator
from pathlib import Path

from ..settings import Settings
from .rights import Right


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`; False for names other than localhost."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_exposed(settings: Settings) -> bool:
    """Whether other machines may reach the gateway and no key protects it."""
    return not settings.requires_key and not is_loopback(settings.host)


def anonymous_rights(settings: Settings) -> frozenset[Right]:
    """Rights of clients where no keys are configured: on a public address voices are managed only if allowed."""
    if is_exposed(settings) and not settings.voice_uploads:
        return frozenset(Right) - {Right.VOICES}
    return frozenset(Right)


def exposure_warnings(settings: Settings) -> Iterator[str]:
    """One paragraph for each thing that the configuration leaves open."""
    if is_exposed(settings):
        uploads = "can also make and remove voices" if settings.voice_uploads else "cannot make or remove voices"
        yield (
            f"the gateway listens on {settings.host}, which other machines may reach, and no API keys are "
            f"configured. Every client that reaches the port can speak and read the metrics; it {uploads} (option "
            "--voice-uploads). Configure keys with `voxgate keys new NAME >> keys.toml` and --keys-file keys.toml, or "
            "listen on 127.0.0.1. See docs/access.md."
        )
    others = stat.S_IRWXO
    for path, mode, harm in (
        (settings.keys_file, others & stat.S_IWOTH, "other users can add keys to"),
        (settings.token_secret_file, others, "other users can read or replace the token secret in"),
        (settings.tls_key, others, "other users can read or replace the private key in"),
    ):
        if path is not None and _mode(path) & mode:
            yield f"{harm} {path}: restrict its permissions with chmod o-rwx."


def _mode(path: Path) -> int:
    """Permission bits of a file; 0 when it is missing, which is reported where it is read."""
    try:
        return path.stat().st_mode
    except OSError:
        return 0
