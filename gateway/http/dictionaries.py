"""What the pronunciation dictionaries of ElevenLabs and of Cartesia have in common: both are views of the same ones.

Files are read and written, and long answers made, in one thread: several would keep the event loop waiting for the
interpreter.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Annotated, ParamSpec, Protocol, TypeVar

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field
from voxgate.pipeline.errors import BadMessage
from voxgate.pipeline.text.lexicon.lexicon import LexiconRule
from voxgate.pipeline.text.lexicon.store import Dictionary, DictionaryEntry, DictionaryStore

from ..access.rights import LIST_VOICES, MANAGE_VOICES
from ..protocols.reply import Reply, ReportableError
from .application import GRANT, RouteGroup

MAX_PAGE = 100
"""Most dictionaries in one answer."""
MAX_PAGE_RULES = 2000
"""Most rules in one answer, but for those of its first dictionary: writing them as JSON takes about 7 ms."""

_thread = ThreadPoolExecutor(1, "dictionaries")

P = ParamSpec("P")
Result = TypeVar("Result")
DictionaryName = Annotated[str, Field(min_length=1, max_length=128)]


class DictionaryFields(BaseModel):
    """A body of a client. Other fields are accepted and ignored."""

    model_config = ConfigDict(extra="ignore")


class RuleFields(Protocol):
    """A rule in the form of a service."""

    def rule(self) -> LexiconRule:
        """Raises UnsupportedOption for phonemes, ValueError for a text outside the limits."""


def lexicon_rules(entries: Iterable[RuleFields]) -> list[LexiconRule]:
    """Raises BadMessage, UnsupportedOption."""
    try:
        return [entry.rule() for entry in entries]
    except ValueError as error:
        raise BadMessage(str(error), param="rules") from None


class DictionaryRoutes:
    """Access to the dictionaries that the client of a request may use; `{id}` of its path names one."""

    def __init__(self, store: DictionaryStore) -> None:
        self.store = store

    def reading(self) -> list[web.RouteDef]:
        """Routes that change nothing."""
        raise NotImplementedError

    def writing(self) -> list[web.RouteDef]:
        """Routes that change dictionaries."""
        raise NotImplementedError

    def groups(self, refuse: Callable[[ReportableError], Reply]) -> list[RouteGroup]:
        """Both kinds of routes; errors have the form of `refuse`."""
        return [RouteGroup(LIST_VOICES, self.reading(), refuse), RouteGroup(MANAGE_VOICES, self.writing(), refuse)]

    @staticmethod
    async def run(function: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
        """Calls `function` in the thread."""
        return await asyncio.get_running_loop().run_in_executor(_thread, partial(function, *args, **kwargs))

    async def load(self, request: web.Request) -> Dictionary:
        return await self.run(self.store.load, request.match_info["id"], request[GRANT].key)

    async def change(self, request: web.Request, edit: Callable[[Dictionary], Dictionary]) -> Dictionary:
        return await self.run(self.store.change, request.match_info["id"], request[GRANT].key, edit)

    async def page(
        self, request: web.Request, cursor: str, size: str, *, with_rules: bool
    ) -> tuple[list[DictionaryEntry], str | None]:
        """The dictionaries after the one whose id `cursor` of the query names, and the cursor of the next page.

        `with_rules`: whether the answer contains their rules, which bound the page.
        """
        text = request.query.get(size, str(MAX_PAGE))
        if not (text.isascii() and text.isdigit() and 1 <= int(text[:4]) <= MAX_PAGE):
            raise BadMessage(f"{size} must be a whole number from 1 to {MAX_PAGE}", param=size)
        stored = await self.run(self.store.entries, request[GRANT].key)
        after = request.query.get(cursor)
        first = next((n + 1 for n, each in enumerate(stored) if each.id == after), 0)
        page = stored[first : first + int(text)]
        if with_rules:
            rules = itertools.accumulate(dictionary.latest.count for dictionary in page)
            page = page[: max(1, sum(count <= MAX_PAGE_RULES for count in rules))]
        return page, page[-1].id if len(stored) > first + len(page) else None
