"""`voxgate voices add|blend|list|remove`: the folder of voices that a gateway on this machine offers."""

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

from .settings_flags import gateway_variables, given_flags

if TYPE_CHECKING:
    from voxgate.pipeline.cloning.store import StoredVoice

    Actions = argparse._SubParsersAction[argparse.ArgumentParser]

_FRAME_S = 0.08


def configure(actions: Actions) -> None:
    """Add every action and its options."""
    add = _action(actions, "add", _add, "make a voice of a recording, or of a speaker vector")
    add.add_argument("name", help="what it will be called: a to z, digits, _ and -")
    source = add.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--audio", metavar="FILE", help="WAV, FLAC, Ogg or MP3 of one person speaking, 5 to 15 s; - is stdin"
    )
    source.add_argument("--vector", metavar="FILE", help="speaker vector: .npy, .json, .safetensors, or a stored voice")
    add.add_argument("--text", help="what is said in the recording, word for word: the voice then speaks in its manner")
    add.add_argument(
        "--checkpoint", default=argparse.SUPPRESS, help="Base model that makes the voice and speaks with it"
    )
    add.add_argument(
        "--trailing-silence-ms",
        type=int,
        default=TRAILING_SILENCE_MS,
        metavar="N",
        help="silence put behind the recording, so that its last sound does not go on (default: %(default)s)",
    )
    _describe(add)
    mix = _action(actions, "blend", _blend, "make a voice between two stored ones")
    mix.add_argument("name", help="what it will be called")
    mix.add_argument("one", help="a stored voice")
    mix.add_argument("other", help="another one, made with the same model")
    mix.add_argument("--weight", type=float, default=0.5, help="share of the second (default: %(default)s)")
    _describe(mix)
    listing = _action(actions, "list", _list, "list the stored voices")
    listing.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="as JSON")
    remove = _action(actions, "remove", _remove, "remove a stored voice")
    remove.add_argument("name", help="the voice")


def run(parsed: argparse.Namespace) -> int:
    try:
        settings = settings_from(given_flags(parsed, Settings), parsed.config, gateway_variables(os.environ))
    except SettingsError as error:
        print(f"voxgate voices: {error}", file=sys.stderr)
        return 2
    store = VoiceStore(settings.voices_dir.expanduser(), settings.voices_limit)
    act: Callable[[argparse.Namespace, Settings, VoiceStore], None] = parsed.act
    try:
        act(parsed, settings, store)
    except VoxgateError as error:
        print(f"voxgate voices: {error.message}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"voxgate voices: {error.filename or store.folder}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


def _action(
    actions: Actions, name: str, act: Callable[[argparse.Namespace, Settings, VoiceStore], None], summary: str
) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
    parser.set_defaults(act=act)
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file with settings")
    folder = Settings.model_fields["voices_dir"]
    parser.add_argument(
        "--voices-dir",
        default=argparse.SUPPRESS,
        metavar="DIR",
        help=f"{folder.description} (default: {folder.default})",
    )
    return parser


def _describe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--language", action="append", default=[], help="a language it speaks; repeat for more")
    parser.add_argument("--description", default="", help="what a list says of it")


def _draft(parsed: argparse.Namespace) -> VoiceDraft:
    text, silence_ms = getattr(parsed, "text", None), getattr(parsed, "trailing_silence_ms", TRAILING_SILENCE_MS)
    return VoiceDraft(parsed.name, text, tuple(parsed.language), parsed.description, silence_ms).validated()


def _add(parsed: argparse.Namespace, settings: Settings, store: VoiceStore) -> None:
    from voxgate.pipeline.checkpoint import checkpoint_folder, load_checkpoint
    from voxgate.pipeline.cloning.recording import RecordingLimits
    from voxgate.pipeline.cloning.speaker_vectors import read_vector

    draft = _draft(parsed)
    _check_free(store, draft.name)
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
    _keep(store, stored)


def _blend(parsed: argparse.Namespace, _: Settings, store: VoiceStore) -> None:
    draft = _draft(parsed)
    _check_free(store, draft.name)
    _keep(store, blend(draft, store.load(parsed.one), store.load(parsed.other), parsed.weight))


def _list(parsed: argparse.Namespace, _: Settings, store: VoiceStore) -> None:
    voices = store.load_all()
    if parsed.json:
        print(json.dumps([_entry(stored) for stored in voices.values()], indent=2, ensure_ascii=False))
        return
    if not voices:
        print(f"no voices in {store.folder}")
    width = max(map(len, voices), default=0)
    for name, stored in voices.items():
        notes = [stored.voice.description, _manner(stored), stored.origin.source, stored.origin.checkpoint]
        print(f"{name:<{width}}  " + "; ".join(note for note in notes if note))


def _remove(parsed: argparse.Namespace, _: Settings, store: VoiceStore) -> None:
    store.remove(parsed.name)
    print(f"{parsed.name.lower()} removed from {store.folder}")


def _keep(store: VoiceStore, stored: StoredVoice) -> None:
    store.add(stored)
    print(f"{stored.name} made ({_manner(stored)}), kept in {store.folder}")


def _check_free(store: VoiceStore, name: str) -> None:
    """Before seconds of work, not after."""
    if name in store.names():
        raise VoiceExists(f"there is a voice {name!r} already; remove it first")


def _manner(stored: StoredVoice) -> str:
    codes = stored.voice.reference_codes
    return "speaker vector" if codes is None else f"in context of {len(codes) * _FRAME_S:.1f} s"


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
    }
