"""`voxgate voices add|blend|list|remove`: manages the folder of voices that gateways on this machine offer."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from voxgate.gateway.settings import Settings, SettingsError, settings_from
from voxgate.pipeline.cloning.creation import (
    TRAILING_SILENCE_MS,
    VoiceDraft,
    blend,
    voice_from_recording,
    voice_from_vector,
)
from voxgate.pipeline.cloning.store import VoiceStore
from voxgate.pipeline.errors import VoiceExists, VoxgateError
from voxgate.pipeline.interface import VoiceOwnership

from .failure import fail
from .settings_flags import gateway_variables, given_flags

if TYPE_CHECKING:
    from voxgate.pipeline.cloning.store import StoredVoice

    Actions = argparse._SubParsersAction[argparse.ArgumentParser]
    Run = Callable[[argparse.Namespace, Settings, VoiceStore], None]

_FRAME_S = 0.08


def configure(actions: Actions) -> None:
    """Adds the actions and their options."""
    add = _add_action(actions, "add", _add, "make a voice from a recording or from a speaker vector")
    add.add_argument("name", help="name of the new voice: a to z, digits, _ and -")
    source = add.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--audio", metavar="FILE", help="WAV, FLAC, Ogg or MP3 of one speaker, 5 to 15 s; - reads standard input"
    )
    source.add_argument("--vector", metavar="FILE", help="speaker vector: .npy, .json, .safetensors, or a stored voice")
    add.add_argument("--text", help="exact text of the recording; with it the voice also copies the speaking style")
    add.add_argument(
        "--checkpoint", default=argparse.SUPPRESS, help="Base model that makes the voice and will speak with it"
    )
    add.add_argument(
        "--trailing-silence-ms",
        type=int,
        default=TRAILING_SILENCE_MS,
        metavar="N",
        help="silence appended to the recording, so that speech does not continue its last sound "
        "(default: %(default)s)",
    )
    _add_notes(add)
    blend_parser = _add_action(actions, "blend", _blend, "make a voice between two stored voices")
    blend_parser.add_argument("name", help="name of the new voice")
    blend_parser.add_argument("one", help="a stored voice")
    blend_parser.add_argument("other", help="a second voice, made with the same model")
    blend_parser.add_argument(
        "--weight", type=float, default=0.5, help="share of the second voice, 0 to 1 (default: %(default)s)"
    )
    _add_notes(blend_parser)
    listing = _add_action(actions, "list", _list, "list the stored voices")
    listing.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print them as JSON")
    remove = _add_action(actions, "remove", _remove, "remove a stored voice")
    remove.add_argument("name", help="the voice to remove")


def run(parsed: argparse.Namespace) -> int:
    try:
        settings = settings_from(given_flags(parsed, Settings), parsed.config, gateway_variables(os.environ))
    except SettingsError as error:
        return fail("voices", str(error), status=2)
    store = VoiceStore(settings.voices_dir.expanduser(), settings.voices_limit)
    run_action: Run = parsed.run_action
    try:
        run_action(parsed, settings, store)
    except VoxgateError as error:
        return fail("voices", error.message)
    except OSError as error:
        return fail("voices", f"{error.filename or store.folder}: {error.strerror}")
    return 0


def _add_action(actions: Actions, name: str, run_action: Run, summary: str) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
    parser.set_defaults(run_action=run_action)
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file with settings")
    folder = Settings.model_fields["voices_dir"]
    parser.add_argument(
        "--voices-dir",
        default=argparse.SUPPRESS,
        metavar="DIR",
        help=f"{folder.description} (default: {folder.default})",
    )
    return parser


def _add_notes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--language", action="append", default=[], help="a language that the voice speaks; repeat it for more"
    )
    parser.add_argument("--description", default="", help="description shown in lists of voices")
    parser.add_argument(
        "--owner", default="", metavar="KEY", help="name of the API key that owns the voice (default: every key)"
    )
    parser.add_argument("--shared", action="store_true", help="let other keys speak with the owner's voice")


def _draft(parsed: argparse.Namespace) -> VoiceDraft:
    text, silence_ms = getattr(parsed, "text", None), getattr(parsed, "trailing_silence_ms", TRAILING_SILENCE_MS)
    return VoiceDraft(parsed.name, text, tuple(parsed.language), parsed.description, silence_ms).validated()


def _add(parsed: argparse.Namespace, settings: Settings, store: VoiceStore) -> None:
    from voxgate.pipeline.checkpoint.checkpoint import checkpoint_folder, load_checkpoint
    from voxgate.pipeline.cloning.recording import RecordingLimits
    from voxgate.pipeline.cloning.speaker_vectors import read_vector

    draft = _draft(parsed)
    _check_name_is_free(store, draft.name)
    folder = checkpoint_folder(settings.checkpoint)
    checkpoint = load_checkpoint(folder)
    if parsed.audio is not None:
        recording = sys.stdin.buffer.read() if parsed.audio == "-" else Path(parsed.audio).read_bytes()
        limits = RecordingLimits(settings.voice_upload_mb << 20, settings.voice_upload_s)
        stored = voice_from_recording(folder, settings.checkpoint, draft, recording, limits)
    else:
        vector = read_vector(Path(parsed.vector))
        stored = voice_from_vector(folder, settings.checkpoint, draft, vector, checkpoint.talker.hidden)
    stored.voice.check(checkpoint)
    _store(store, stored, parsed)


def _blend(parsed: argparse.Namespace, _: Settings, store: VoiceStore) -> None:
    draft = _draft(parsed)
    _check_name_is_free(store, draft.name)
    _store(store, blend(draft, store.load(parsed.one), store.load(parsed.other), parsed.weight), parsed)


def _list(parsed: argparse.Namespace, _: Settings, store: VoiceStore) -> None:
    voices = store.load_all()
    if parsed.json:
        print(json.dumps([_entry(stored) for stored in voices.values()], indent=2, ensure_ascii=False))
        return
    if not voices:
        print(f"no voices in {store.folder}")
    width = max(map(len, voices), default=0)
    for name, stored in voices.items():
        owner = stored.voice.ownership.owner
        notes = [stored.voice.description, _kind(stored), stored.origin.source, stored.origin.checkpoint]
        notes.append(f"of key {owner}" if owner else "")
        print(f"{name:<{width}}  " + "; ".join(note for note in notes if note))


def _remove(parsed: argparse.Namespace, _: Settings, store: VoiceStore) -> None:
    store.remove(parsed.name)
    print(f"removed {parsed.name.lower()} from {store.folder}")


def _store(store: VoiceStore, stored: StoredVoice, parsed: argparse.Namespace) -> None:
    store.add(stored.owned_by(VoiceOwnership(parsed.owner, parsed.shared)))
    print(f"stored {stored.name} ({_kind(stored)}) in {store.folder}")


def _check_name_is_free(store: VoiceStore, name: str) -> None:
    """Raises VoiceExists before work that takes seconds."""
    if name in store.names():
        raise VoiceExists(f"voice {name!r} already exists; remove it first")


def _kind(stored: StoredVoice) -> str:
    """How the model gets the voice: its speaker vector alone, or with a recording as context."""
    codes = stored.voice.reference_codes
    return "speaker vector" if codes is None else f"recording of {len(codes) * _FRAME_S:.1f} s as context"


def _entry(stored: StoredVoice) -> dict[str, object]:
    voice, origin = stored.voice, stored.origin
    return {
        "name": voice.name,
        "description": voice.description,
        "languages": voice.languages,
        "text": voice.reference_text,
        "vector_width": len(voice.speaker_vector),
        "checkpoint": origin.checkpoint,
        "source": origin.source,
        "made": origin.made,
        "owner": voice.ownership.owner,
        "shared": voice.ownership.shared,
    }
