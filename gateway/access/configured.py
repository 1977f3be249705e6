"""The door as the settings describe it."""

from __future__ import annotations

from ..settings import Settings, SettingsError
from .access import Access
from .keys import KeyLimits, KeyRing, KeysError, load_keys
from .ledger import Ledger
from .tokens import TokenSigner


def configured_access(settings: Settings, ledger: Ledger | None = None, secret: bytes | None = None) -> Access:
    """Raises SettingsError when the key file, a key or the secret cannot be used.

    `ledger`: shared with other processes of this gateway; `secret`: for tokens, where the settings name none.
    """
    defaults = KeyLimits(
        sockets=settings.key_sockets,
        utterances=settings.key_utterances,
        characters_per_minute=settings.key_characters_per_minute,
    )
    ring, signer = configured_keys(settings), _signer(settings, secret)
    return Access(ring, signer, defaults=defaults, origins=settings.allowed_origins, ledger=ledger)


def configured_keys(settings: Settings) -> KeyRing:
    """Reads the key file anew. Raises SettingsError, also when a file was named and holds no key."""
    try:
        ring = load_keys(settings.keys_file, settings.keys)
    except KeysError as error:
        raise SettingsError(f"keys: {error}") from None
    if settings.keys_file is not None and not ring:
        # An empty file must not open the gateway to everybody.
        raise SettingsError(f"keys: {settings.keys_file} holds no key")
    return ring


def _signer(settings: Settings, secret: bytes | None) -> TokenSigner:
    path = settings.token_secret_file
    if path is None:
        return TokenSigner(secret)
    try:
        return TokenSigner(path.read_bytes().strip())
    except OSError as missing:
        raise SettingsError(f"token_secret_file: cannot read {path}: {missing.strerror}") from None
    except ValueError as short:
        raise SettingsError(f"token_secret_file: {short}") from None
