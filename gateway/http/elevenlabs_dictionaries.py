"""Pronunciation dictionaries as ElevenLabs has them: `/v1/pronunciation-dictionaries`."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Annotated, Any, Literal

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from pydantic import Field
from voxgate.pipeline.errors import BadMessage, UnsupportedOption
from voxgate.pipeline.text.lexicon.lexicon import MAX_RULES, PHONEMES_UNSUPPORTED, LexiconRule
from voxgate.pipeline.text.lexicon.pls import parse_pls, write_pls
from voxgate.pipeline.text.lexicon.store import Dictionary, DictionaryEntry, DictionaryStore, VersionEntry

from ..errors import QUOTED_CHARACTERS
from ..protocols.elevenlabs.websocket import refuse
from ..protocols.reply import Reply, json_reply
from .application import GRANT, RouteGroup, read_json, to_response
from .dictionaries import DictionaryFields, DictionaryName, DictionaryRoutes, lexicon_rules
from .forms import named_parts, read_limited, read_text

PATH = "/v1/pronunciation-dictionaries"
_FORM_TIMEOUT_S = 10.0
_MAX_FIELD_BYTES = 8192


class ElevenLabsRule(DictionaryFields):
    """A rule of ElevenLabs; both kinds, so that phonemes are refused in words."""

    type: Literal["alias", "phoneme"] = "alias"
    string_to_replace: str
    alias: str = ""
    case_sensitive: bool = True
    word_boundaries: bool = True

    def rule(self) -> LexiconRule:
        """Raises UnsupportedOption for phonemes, ValueError for a text outside the limits."""
        if self.type == "phoneme":
            raise UnsupportedOption(PHONEMES_UNSUPPORTED, param="rules")
        return LexiconRule(self.string_to_replace, self.alias, self.case_sensitive, self.word_boundaries)


class _CreateFromRules(DictionaryFields):
    name: DictionaryName
    rules: Annotated[list[ElevenLabsRule], Field(max_length=MAX_RULES)]
    description: Annotated[str, Field(max_length=500)] | None = None


class _SetRules(DictionaryFields):
    rules: Annotated[list[ElevenLabsRule], Field(max_length=MAX_RULES)]


class _RemoveRules(DictionaryFields):
    rule_strings: Annotated[list[str], Field(max_length=MAX_RULES)]


class _Patch(DictionaryFields):
    name: DictionaryName | None = None
    archived: bool | None = None


def elevenlabs_dictionary_routes(store: DictionaryStore) -> list[RouteGroup]:
    """The routes of ElevenLabs' dictionaries."""
    return _ElevenLabsRoutes(store).groups(refuse)


class _ElevenLabsRoutes(DictionaryRoutes):
    def reading(self) -> list[web.RouteDef]:
        item = f"{PATH}/{{id}}"
        return [
            web.get(PATH, self._list),
            web.get(item, self._get),
            web.get(f"{item}/{{version}}/download", self._download),
        ]

    def writing(self) -> list[web.RouteDef]:
        item = f"{PATH}/{{id}}"
        return [
            web.post(f"{PATH}/add-from-rules", self._create),
            web.post(f"{PATH}/add-from-file", self._create_from_file),
            web.patch(item, self._patch),
            web.delete(item, self._remove),
            web.post(f"{item}/add-rules", self._add),
            web.post(f"{item}/set-rules", self._set),
            web.post(f"{item}/remove-rules", self._remove_rules),
        ]

    async def _create(self, request: web.Request) -> web.Response:
        body = await read_json(request, _CreateFromRules)
        return await self._store_new(request, body.name, lexicon_rules(body.rules), body.description or "")

    async def _create_from_file(self, request: web.Request) -> web.Response:
        form = await _receive_form(request)
        name = form.name
        if not 1 <= len(name) <= 128:
            raise BadMessage(f"name must have 1 to 128 characters, got {len(name)}", param="name")
        if form.file is None:
            raise BadMessage("file must be a PLS file (W3C Pronunciation Lexicon)", param="file")
        rules = await self.run(parse_pls, bytes(form.file))
        return await self._store_new(request, name, rules, form.description)

    async def _store_new(
        self, request: web.Request, name: str, rules: list[LexiconRule], description: str
    ) -> web.Response:
        owner = request[GRANT].key or ""
        dictionary = await self.run(self.store.create, name, owner, rules, description[:500])
        version = dictionary.latest
        document = {
            **_elevenlabs_fields(dictionary),
            "version_id": version.id,
            "version_rules_num": version.count,
        }
        return to_response(json_reply(HTTPStatus.OK, document))

    async def _list(self, request: web.Request) -> web.Response:
        page, cursor = await self.page(request, "cursor", "page_size", with_rules=False)
        documents = [_elevenlabs_metadata(each) for each in page]
        answer = {"pronunciation_dictionaries": documents, "next_cursor": cursor, "has_more": cursor is not None}
        return to_response(json_reply(HTTPStatus.OK, answer))

    async def _get(self, request: web.Request) -> web.Response:
        dictionary = await self.load(request)

        def reply() -> Reply:
            rules = [_elevenlabs_rule(rule) for rule in dictionary.latest.parse()]
            return json_reply(HTTPStatus.OK, {**_elevenlabs_metadata(dictionary), "rules": rules})

        return to_response(await self.run(reply))

    async def _download(self, request: web.Request) -> web.Response:
        version = (await self.load(request)).version(request.match_info["version"])
        file = await self.run(lambda: write_pls(version.rules))
        return web.Response(body=file, headers={"Content-Type": "application/pls+xml"})

    async def _patch(self, request: web.Request) -> web.Response:
        body = await read_json(request, _Patch)

        def edit(dictionary: Dictionary) -> Dictionary:
            archived = dictionary.archived_s
            if body.archived is not None:
                archived = int(time.time()) if body.archived else None
            return replace(dictionary, name=body.name or dictionary.name, archived_s=archived)

        return to_response(json_reply(HTTPStatus.OK, _elevenlabs_metadata(await self.change(request, edit))))

    async def _remove(self, request: web.Request) -> web.Response:
        await self.run(self.store.remove, request.match_info["id"], request[GRANT].key)
        return web.Response(status=HTTPStatus.NO_CONTENT)

    async def _add(self, request: web.Request) -> web.Response:
        rules = lexicon_rules((await read_json(request, _SetRules)).rules)
        terms = {rule.term for rule in rules}

        def edit(dictionary: Dictionary) -> Dictionary:
            kept = (rule for rule in dictionary.latest.rules if rule.term not in terms)
            return dictionary.with_rules((*kept, *rules))

        return self._changed(await self.change(request, edit))

    async def _set(self, request: web.Request) -> web.Response:
        rules = lexicon_rules((await read_json(request, _SetRules)).rules)
        return self._changed(await self.change(request, lambda dictionary: dictionary.with_rules(rules)))

    async def _remove_rules(self, request: web.Request) -> web.Response:
        terms = set((await read_json(request, _RemoveRules)).rule_strings)

        def edit(dictionary: Dictionary) -> Dictionary:
            return dictionary.with_rules(rule for rule in dictionary.latest.rules if rule.term not in terms)

        return self._changed(await self.change(request, edit))

    @staticmethod
    def _changed(dictionary: Dictionary) -> web.Response:
        version = dictionary.latest
        document = {"id": dictionary.id, "version_id": version.id, "version_rules_num": version.count}
        return to_response(json_reply(HTTPStatus.OK, document))


@dataclass(slots=True)
class _Form:
    """What `add-from-file` takes of a form."""

    name: str = ""
    description: str = ""
    file: bytearray | None = None


async def _receive_form(request: web.Request) -> _Form:
    """Receives the whole form, other parts included. Raises BadMessage, HTTPRequestEntityTooLarge."""
    max_bytes, form = request.client_max_size, _Form()
    if (length := request.content_length or 0) > max_bytes:
        raise web.HTTPRequestEntityTooLarge(max_bytes, length)
    if request.content_type != "multipart/form-data":
        raise BadMessage("the body must be a form, multipart/form-data")

    def too_large() -> BadMessage:
        return BadMessage(f"file must not exceed {max_bytes} bytes", param="file")

    try:
        async with asyncio.timeout(_FORM_TIMEOUT_S):
            async for name, chunks in named_parts(await request.multipart()):
                match name:
                    case "file":
                        form.file = await read_limited(chunks, max_bytes, too_large)
                    case "name":
                        form.name = await read_text(name, chunks, _MAX_FIELD_BYTES)
                    case "description":
                        form.description = await read_text(name, chunks, _MAX_FIELD_BYTES)
                    case _:
                        await read_text(name, chunks, _MAX_FIELD_BYTES)
    except TimeoutError:
        raise BadMessage(f"the form must arrive within {_FORM_TIMEOUT_S:g} s") from None
    except (ValueError, HttpProcessingError) as error:
        raise BadMessage(f"the body is not a multipart form: {str(error)[:QUOTED_CHARACTERS]}") from None
    return form


def _elevenlabs_fields(dictionary: DictionaryEntry) -> dict[str, Any]:
    return {
        "id": dictionary.id,
        "name": dictionary.name,
        "created_by": dictionary.owner,
        "creation_time_unix": dictionary.created_s,
        "description": dictionary.description or None,
        "permission_on_resource": "admin",
    }


def _elevenlabs_metadata(dictionary: DictionaryEntry) -> dict[str, Any]:
    latest = dictionary.latest
    return {
        **_elevenlabs_fields(dictionary),
        "latest_version_id": latest.id,
        "latest_version_rules_num": latest.count,
        "archived_time_unix": dictionary.archived_s,
        "versions": [_elevenlabs_version(version) for version in reversed(dictionary.versions)],
    }


def _elevenlabs_version(version: VersionEntry) -> dict[str, Any]:
    return {
        "version_id": version.id,
        "version_rules_num": version.count,
        "creation_time_unix": version.created_s,
    }


def _elevenlabs_rule(rule: LexiconRule) -> dict[str, Any]:
    return {
        "type": "alias",
        "string_to_replace": rule.term,
        "alias": rule.spoken,
        "case_sensitive": rule.case_sensitive,
        "word_boundaries": rule.word_boundaries,
    }
