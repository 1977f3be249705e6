"""Certificates for TLS on the loopback interface."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

ELLIPTIC = ("ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


def self_signed(folder: Path, name: str, kind: Sequence[str] = ELLIPTIC) -> tuple[Path, Path]:
    """Make a self-signed certificate for 127.0.0.1. Returns the paths of the certificate and of its key.

    `kind` of the key, such as `("rsa:2048",)`.
    """
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", *kind, "-nodes"]
    subject = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command, *subject, *files], check=True, capture_output=True, timeout=60)
    return certificate, key
