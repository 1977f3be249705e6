"""Pronunciation dictionaries as Cartesia has them: `/pronunciation-dicts`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Any

from aiohttp import web
from pydantic import Field
from voxgate.pipeline.errors import UnknownDictionary, UnsupportedOption
from voxgate.pipeline.text.lexicon.lexicon import MAX_RULES, PHONEMES_UNSUPPORTED, LexiconRule
from voxgate.pipeline.text.lexicon.store import Dictionary, DictionaryEntry, DictionaryStore

from ..protocols.cartesia.request import refuse
from ..protocols.reply import Reply, json_reply
from .application import GRANT, RouteGroup, read_json, to_response
from .dictionaries import DictionaryFields, DictionaryName, DictionaryRoutes, lexicon_rules

PATH = "/pronunciation-dicts"


class CartesiaItem(DictionaryFields):
    """An item of Cartesia; `pronunciation` of older versions may hold phonemes."""

    text: str
    alias: str | None = None
    pronunciation: str | None = None
    case_sensitive: bool = False

    def rule(self) -> LexiconRule:
        """As `ElevenLabsRule.rule`."""
        spoken = (self.alias if self.alias is not None else self.pronunciation) or ""
        if "<<" in spoken:
            raise UnsupportedOption(PHONEMES_UNSUPPORTED, param="items")
        return LexiconRule(self.text, spoken, self.case_sensitive)


class _CartesiaCreate(DictionaryFields):
    name: DictionaryName
    items: Annotated[list[CartesiaItem], Field(max_length=MAX_RULES)] | None = None


class _CartesiaUpdate(DictionaryFields):
    name: DictionaryName | None = None
    items: Annotated[list[CartesiaItem], Field(max_length=MAX_RULES)] | None = None


def cartesia_dictionary_routes(store: DictionaryStore) -> list[RouteGroup]:
    """The routes of Cartesia's dictionaries."""
    return _CartesiaRoutes(store).groups(refuse)


class _CartesiaRoutes(DictionaryRoutes):
    def reading(self) -> list[web.RouteDef]:
        return [
            *(web.get(path, self._list) for path in (PATH, f"{PATH}/")),
            web.get(f"{PATH}/{{id}}", self._get),
        ]

    def writing(self) -> list[web.RouteDef]:
        return [
            *(web.post(path, self._create) for path in (PATH, f"{PATH}/")),
            web.patch(f"{PATH}/{{id}}", self._update),
            web.delete(f"{PATH}/{{id}}", self._remove),
        ]

    async def _create(self, request: web.Request) -> web.Response:
        body = await read_json(request, _CartesiaCreate)
        rules = lexicon_rules(body.items or ())
        dictionary = await self.run(self.store.create, body.name, request[GRANT].key or "", rules)
        return await self._reply(dictionary)

    async def _list(self, request: web.Request) -> web.Response:
        page, cursor = await self.page(request, "starting_after", "limit", with_rules=True)

        def reply() -> Reply:
            documents = [_cartesia_document(each) for each in self._load_page(page, request[GRANT].key)]
            return json_reply(HTTPStatus.OK, {"data": documents, "has_more": cursor is not None, "next_page": cursor})

        return to_response(await self.run(reply))

    def _load_page(self, page: Iterable[DictionaryEntry], key: str | None) -> Iterator[Dictionary]:
        for entry in page:
            with contextlib.suppress(UnknownDictionary):  # removed since it was listed
                yield self.store.load(entry.id, key)

    async def _get(self, request: web.Request) -> web.Response:
        return await self._reply(await self.load(request))

    async def _reply(self, dictionary: Dictionary) -> web.Response:
        return to_response(await self.run(lambda: json_reply(HTTPStatus.OK, _cartesia_document(dictionary))))

    async def _update(self, request: web.Request) -> web.Response:
        body = await read_json(request, _CartesiaUpdate)
        rules = None if body.items is None else lexicon_rules(body.items)

        def edit(dictionary: Dictionary) -> Dictionary:
            renamed = replace(dictionary, name=body.name or dictionary.name)
            return renamed if rules is None else renamed.with_rules(rules)

        return await self._reply(await self.change(request, edit))

    async def _remove(self, request: web.Request) -> web.Response:
        await self.run(self.store.remove, request.match_info["id"], request[GRANT].key)
        return web.Response(status=HTTPStatus.NO_CONTENT)


def _cartesia_document(dictionary: Dictionary) -> dict[str, Any]:
    items = [
        {"text": rule.term, "alias": rule.spoken, "case_sensitive": rule.case_sensitive}
        for rule in dictionary.latest.rules
    ]
    return {
        "id": dictionary.id,
        "name": dictionary.name,
        "owner_id": dictionary.owner,
        "pinned": dictionary.pinned,
        "created_at": datetime.fromtimestamp(dictionary.created_s, UTC).isoformat(),
        "items": items,
    }
