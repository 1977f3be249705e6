"""The voices of a model and the prompt of each: the checkpoint's own, cloned ones, and designed ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from weakref import WeakValueDictionary

from .checkpoint.checkpoint import TalkerCheckpoint
from .checkpoint.published_speakers import PUBLISHED_SPEAKERS
from .checkpoint.voice_config import VoiceConfig, VoiceEntry
from .cloned_voice import ClonedVoice
from .errors import BadVoice, UnknownLanguage, UnknownVoice, UnsupportedOption
from .interface import SpeechRequest, TextLayout, VoiceInfo
from .talker.prompt import (
    MAX_INSTRUCTION_TOKENS,
    MAX_REFERENCE_TEXT_TOKENS,
    Prompt,
    cloned_voice_prompt,
    custom_voice_prompt,
    offered_languages,
    takes_instructions,
    voice_design_prompt,
)
from .text.tokenizer import TextTokenizer

DESIGNED = "designed"
"""Name of the one voice of a voice-design model, which the instructions describe."""


class ModelVoices:
    """The voices on offer; names are matched in any case.

    Voices can be added and removed at any time; an utterance that was begun keeps its voice.
    """

    def __init__(
        self, checkpoint: TalkerCheckpoint, rules: VoiceConfig, tokenizer: TextTokenizer, *, visemes: bool = False
    ) -> None:
        """`visemes`: whether mouth shapes are known by the codes of the checkpoint."""
        self._checkpoint, self._rules, self._tokenizer, self._visemes = checkpoint, rules, tokenizer, visemes
        self._languages = offered_languages(checkpoint)
        self._cloned: dict[str, tuple[ClonedVoice, list[int]]] = {}
        own = [DESIGNED] if checkpoint.model_type == "voice_design" else _in_order(checkpoint.speakers, rules)
        self._own = {name: self._describe(name) for name in own}
        self._voices = dict(self._own)
        self._prompts: dict[tuple[str, str, TextLayout], Prompt] = {}
        """Prompts of the checkpoint's voices without instructions, by voice, language and layout."""
        self._spoken: WeakValueDictionary[tuple[str, str, TextLayout], Prompt] = WeakValueDictionary()
        """Those of cloned voices that are in use, by digest, language and layout."""

    @property
    def voices(self) -> Mapping[str, VoiceInfo]:
        """A view of all voices by lower-case name, which follows later changes."""
        return MappingProxyType(self._voices)

    @property
    def default(self) -> str:
        """The first voice; empty for a base model without cloned voices."""
        return next(iter(self._voices), "")

    def cloned(self, name: str) -> ClonedVoice | None:
        """Returns the voice that was added under this name."""
        voice, _ = self._cloned.get(name.lower(), (None, None))
        return voice

    def add(self, voice: ClonedVoice) -> None:
        """Offers a voice, and replaces an earlier one of its name. Raises BadVoice when it does not fit the model."""
        voice.check(self._checkpoint)
        name = voice.name.lower()
        if name in self._own:
            raise BadVoice(
                f"the name of a voice must differ from the model's own voices, got {voice.name!r}", param="name"
            )
        reference = self._reference_ids(voice)
        if len(reference) > MAX_REFERENCE_TEXT_TOKENS:
            raise BadVoice(
                f"the reference text must have at most {MAX_REFERENCE_TEXT_TOKENS} tokens, got {len(reference)}",
                param="reference_text",
            )
        self._cloned[name] = voice, reference
        self._voices[name] = VoiceInfo(
            name=name,
            languages=_merged(offered_languages(self._checkpoint), voice.languages),
            description=voice.description,
            visemes=self._visemes,
            cloned=True,
            ownership=voice.ownership,
            digest=voice.digest,
        )

    def remove(self, name: str) -> None:
        """Withdraws a voice that was added. Raises UnknownVoice, also for the model's own voices."""
        if self._cloned.pop(name.lower(), None) is None:
            raise UnknownVoice(f"no voice {name!r} was added", param="voice")
        del self._voices[name.lower()]

    def unlisted(self, voice: ClonedVoice) -> Prompt:
        """Returns the prompt of a voice that is not offered; while it is kept, requests with its digest have it."""
        prompt = cloned_voice_prompt(self._checkpoint, voice, "auto")
        self._spoken[voice.digest, "auto", TextLayout.STREAMING] = prompt
        return prompt

    def check(self, request: SpeechRequest) -> VoiceInfo:
        """Returns the requested voice. Raises UnknownVoice, UnknownLanguage, UnsupportedOption."""
        name = request.voice.lower() or self.default
        if (voice := self._voices.get(name)) is None:
            # The voices are not listed: the client may not know them all.
            hint = "" if self._voices else "; the model has none yet: add one made from a recording"
            raise UnknownVoice(f"there is no voice {request.voice!r}{hint}", param="voice")
        if (language := request.language.lower()) not in voice.languages:
            offered = ", ".join(voice.languages)
            raise UnknownLanguage(f"voice {name} does not speak {language!r}; it speaks: {offered}", param="language")
        if request.instructions and not voice.instructions:
            raise UnsupportedOption("this voice accepts no instructions", param="instructions")
        if voice.needs_instructions and not (request.instructions or "").strip():
            raise UnsupportedOption("this voice needs instructions that describe it", param="instructions")
        return voice

    def prompt(self, request: SpeechRequest) -> Prompt:
        """Returns what the talker reads before the text. Raises what `check` raises."""
        language = request.language.lower()
        # A voice may speak a language for which the model has no tag.
        tag = language if language in self._languages else "auto"
        if (spoken := self._spoken.get((request.voice_digest, tag, request.layout))) is not None:
            return spoken
        info = self.check(request)
        name = info.name
        if (known := self._prompts.get((name, tag, request.layout))) is not None and not request.instructions:
            return known
        instruct = self._instruct_ids(request.instructions)
        if len(instruct) > MAX_INSTRUCTION_TOKENS:
            raise UnsupportedOption(
                f"instructions must have at most {MAX_INSTRUCTION_TOKENS} tokens, got {len(instruct)}",
                param="instructions",
            )
        if name in self._cloned:
            voice, reference = self._cloned[name]
            prompt = cloned_voice_prompt(self._checkpoint, voice, tag, reference, request.layout)
            self._spoken[info.digest, tag, request.layout] = prompt
            return prompt
        if self._checkpoint.model_type == "voice_design":
            return voice_design_prompt(self._checkpoint, tag, instruct, request.layout)
        prompt = custom_voice_prompt(self._checkpoint, name, tag, instruct, request.layout)
        if not instruct:
            self._prompts[name, tag, request.layout] = prompt
        return prompt

    def _describe(self, name: str) -> VoiceInfo:
        entry = self._rules.voice.get(name) or PUBLISHED_SPEAKERS.get(name) or VoiceEntry()
        designed = name == DESIGNED and self._checkpoint.model_type == "voice_design"
        description = "the voice that the instructions describe" if designed else ""
        return VoiceInfo(
            name=name,
            languages=_merged(offered_languages(self._checkpoint), entry.languages),
            description=entry.description or description,
            instructions=takes_instructions(self._checkpoint),
            visemes=self._visemes,
            needs_instructions=designed,
            display=entry.display,
            gender=entry.gender,
            accent=entry.accent,
        )

    def _instruct_ids(self, instructions: str | None) -> list[int]:
        if not instructions:
            return []
        ids = self._checkpoint.text_ids
        encode = self._tokenizer.encode_plain
        # "<|im_start|>user\n{instruct}<|im_end|>\n", used whole
        # (docs/qwen3_tts.md, section 3.2).
        return [ids.im_start, *encode(f"user\n{instructions}"), ids.im_end, *encode("\n")]

    def _reference_ids(self, voice: ClonedVoice) -> list[int]:
        # Leading line feeds would join the template's own in one token (docs/qwen3_tts.md, section 3.2).
        return self._tokenizer.encode_plain((voice.reference_text or "").lstrip())


def _merged(offered: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    return (*offered, *(language for language in more if language not in offered))


def _in_order(speakers: Iterable[str], rules: VoiceConfig) -> list[str]:
    """Returns the speakers in the order of `voice.toml`, then the others by name."""
    rank = {name: number for number, name in enumerate(rules.voice)}
    return sorted(speakers, key=lambda name: (rank.get(name, len(rank)), name))
