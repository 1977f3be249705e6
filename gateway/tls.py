"""TLS from a certificate chain and its key; both can be read anew while the gateway runs."""

from __future__ import annotations

import ssl

from .settings import Settings, SettingsError


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """A server context for TLS 1.2 and later; None when TLS is off. Raises SettingsError."""
    if settings.tls_certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_certificate(context, settings)
    return context


def load_certificate(context: ssl.SSLContext, settings: Settings) -> None:
    """Handshakes from now on use the files as they are. Raises SettingsError; then nothing has changed."""
    certificate, key = settings.tls_certificate, settings.tls_key
    assert certificate is not None, "TLS is on"
    try:
        # Into a context of its own first: one that failed half way would be left with a key that does not fit.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=_no_password)
        context.load_cert_chain(certificate, key, password=_no_password)
    except FileNotFoundError:
        missing = certificate if key is None or not certificate.exists() else key
        raise SettingsError(f"tls_certificate, tls_key: {missing} is not there") from None
    except (OSError, ValueError) as refused:  # ssl.SSLError is an OSError
        reason = getattr(refused, "reason", None) or refused
        raise SettingsError(f"tls_certificate, tls_key: {certificate} cannot be used: {reason}") from None


def _no_password() -> str:
    """Asked for when the key is encrypted; without it OpenSSL would ask on the terminal and wait."""
    raise ValueError("the key is encrypted")
