"""Pronunciation dictionaries over HTTP, in the requests of ElevenLabs' and Cartesia's libraries, and in speech."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from fakes.gateway.loopback import ask, dial, gateway, next_of
from fakes.pipeline.tone_synthesizer import ToneSynthesizer
from voxgate.gateway.server import Gateway
from voxgate.pipeline.text.lexicon.filter import make_text_filter

ELEVENLABS = "/v1/pronunciation-dictionaries"
CARTESIA = "/pronunciation-dicts"
RULE = {"type": "alias", "string_to_replace": "SQL", "alias": "sequel", "case_sensitive": True, "word_boundaries": True}
PLS = b"<lexicon><lexeme><grapheme>nginx</grapheme><alias>engine x</alias></lexeme></lexicon>"


def key(name: str, rights: str) -> str:
    return f"{name}=sha256:{hashlib.sha256(name.encode()).hexdigest()}:{rights}"


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


class Api:
    """Sends JSON requests to a gateway."""

    def __init__(self, served: Gateway, client: aiohttp.ClientSession, **headers: str) -> None:
        self._url, self._client, self._headers = f"http://127.0.0.1:{served.port}", client, headers

    async def __call__(self, method: str, path: str, status: int = 200, **options: Any) -> Any:
        async with self._client.request(method, self._url + path, headers=self._headers, **options) as answer:
            text = (await answer.read()).decode(errors="replace")
            assert answer.status == status, text
            return json.loads(text) if answer.content_type == "application/json" and text else text


async def test_elevenlabs_dictionary_lives_through_its_calls(client: aiohttp.ClientSession, tmp_path: Path) -> None:
    async with gateway(voices_dir=tmp_path) as served:
        api = Api(served, client, **{"xi-api-key": "x"})
        made = await api("POST", f"{ELEVENLABS}/add-from-rules", json={"name": "tech", "rules": [RULE]})
        assert (made["name"], made["version_rules_num"]) == ("tech", 1)
        item = f"{ELEVENLABS}/{made['id']}"
        added = await api("POST", f"{item}/add-rules", json={"rules": [{**RULE, "string_to_replace": "API"}]})
        assert (added["version_rules_num"], added["id"]) == (2, made["id"])
        assert added["version_id"] != made["version_id"]
        removed = await api("POST", f"{item}/remove-rules", json={"rule_strings": ["SQL"]})
        assert removed["version_rules_num"] == 1
        assert (await api("POST", f"{item}/set-rules", json={"rules": []}))["version_rules_num"] == 0
        described = await api("GET", item)
        assert described["latest_version_rules_num"] == 0
        assert [version["version_rules_num"] for version in described["versions"]] == [0, 1, 2, 1]
        assert "sequel" in await api("GET", f"{item}/{made['version_id']}/download")
        assert (await api("PATCH", item, json={"archived": True}))["archived_time_unix"]
        listed = await api("GET", ELEVENLABS, params={"page_size": "30"})
        assert [each["id"] for each in listed["pronunciation_dictionaries"]] == [made["id"]]
        await api("DELETE", item, 204)
        error = await api("GET", item, 404)
        assert error["detail"]["code"] == "unknown_dictionary"


async def test_elevenlabs_dictionary_is_made_from_a_file(client: aiohttp.ClientSession, tmp_path: Path) -> None:
    async with gateway(voices_dir=tmp_path) as served:
        api = Api(served, client)

        def form(file: bytes) -> aiohttp.FormData:
            data = aiohttp.FormData({"name": "web"})
            data.add_field("file", file, filename="web.pls")
            return data

        made = await api("POST", f"{ELEVENLABS}/add-from-file", data=form(PLS))
        (rule,) = (await api("GET", f"{ELEVENLABS}/{made['id']}"))["rules"]
        assert (rule["string_to_replace"], rule["alias"]) == ("nginx", "engine x")
        await api("POST", f"{ELEVENLABS}/add-from-file", 400, data=form(b"text"))
        await api("POST", f"{ELEVENLABS}/add-from-file", 400, data={"name": "web"})
        await api("POST", f"{ELEVENLABS}/add-from-file", 400, data=b"x")
        await api("POST", f"{ELEVENLABS}/add-from-file", 413, data=form(b" " * 200_000))


async def test_a_page_with_rules_is_bounded_by_them(client: aiohttp.ClientSession, tmp_path: Path) -> None:
    items = [{"text": f"w{n}", "alias": "x"} for n in range(900)]
    async with gateway(voices_dir=tmp_path) as served:
        api = Api(served, client)
        made = {(await api("POST", CARTESIA, json={"name": "d", "items": items}))["id"] for _ in range(5)}
        pages, after = [], ""
        while after is not None:
            page = await api("GET", f"{CARTESIA}?starting_after={after}")
            pages.append([each["id"] for each in page["data"]])
            after = page["next_page"]
        assert [len(page) for page in pages] == [2, 2, 1]
        assert {id for page in pages for id in page} == made
        listed = await api("GET", ELEVENLABS)
        assert len(listed["pronunciation_dictionaries"]) == 5


def part(name: str, content: bytes, *headers: str) -> bytes:
    head = "\r\n".join((f'Content-Disposition: form-data; name="{name}"', *headers))
    return b"--b\r\n%b\r\n\r\n%b\r\n" % (head.encode(), content)


@pytest.mark.parametrize(
    "headers",
    [
        ("Content-Type: text/plain; charset=punycode",),
        ("Content-Type: text/plain; charset=no-such",),
        ("Content-Type: text/plain; charset=unicode_escape",),
        ("Content-Encoding: br",),
        ("Content-Transfer-Encoding: x",),
    ],
)
async def test_codecs_that_a_form_names_are_not_used(
    client: aiohttp.ClientSession, tmp_path: Path, headers: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    name = rb"\ud800-abc"
    form = part("name", name, *headers) + part("file", PLS) + b"--b--\r\n"
    async with gateway(voices_dir=tmp_path) as served:
        api = Api(served, client, **{"Content-Type": "multipart/form-data; boundary=b"})
        made = await api("POST", f"{ELEVENLABS}/add-from-file", data=form)
        assert made["name"] == name.decode()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the library, which the gateway silences too
async def test_malformed_forms_are_refused(
    client: aiohttp.ClientSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    form = part("name", b"\xff") + part("file", PLS) + b"--b--\r\n"
    long = part("name", b"web") + part("file", b" " * 70_000) + b"--b--\r\n"
    many = part("other", b"") * 21 + b"--b--\r\n"

    async def without_length() -> AsyncIterator[bytes]:
        yield long

    async with gateway(voices_dir=tmp_path) as served:
        api = Api(served, client, **{"Content-Type": "multipart/form-data; boundary=b"})
        for body in (form, many, form[:30], b"--b--", without_length(), part("name", b"x" * 9000)):
            await api("POST", f"{ELEVENLABS}/add-from-file", 400, data=body)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_cartesia_dictionary_lives_through_its_calls(client: aiohttp.ClientSession, tmp_path: Path) -> None:
    async with gateway(voices_dir=tmp_path) as served:
        api = Api(served, client)
        items = [{"text": "SQL", "alias": "sequel"}]
        made = await api("POST", f"{CARTESIA}/", json={"name": "tech", "items": items})
        assert made["items"] == [{**items[0], "case_sensitive": False}]
        other = await api("POST", f"{CARTESIA}/", json={"name": "empty"})
        page = await api("GET", f"{CARTESIA}/", params={"limit": "1"})
        rest = await api("GET", f"{CARTESIA}/", params={"limit": "1", "starting_after": page["data"][0]["id"]})
        assert {page["data"][0]["id"], rest["data"][0]["id"]} == {made["id"], other["id"]}
        assert (page["has_more"], rest["has_more"]) == (True, False)
        update = {"name": "new", "items": [{"text": "API", "alias": "ay pee eye"}]}
        changed = await api("PATCH", f"{CARTESIA}/{made['id']}", json=update)
        assert (changed["name"], changed["items"][0]["alias"]) == ("new", "ay pee eye")
        assert await api("GET", f"{CARTESIA}/{made['id']}") == changed
        assert (await api("GET", f"{ELEVENLABS}/{made['id']}"))["latest_version_rules_num"] == 1
        await api("DELETE", f"{CARTESIA}/{made['id']}", 204)
        error = await api("GET", f"{CARTESIA}/{made['id']}", 404)
        assert (error["status_code"], error["title"], error["error_code"]) == (404, "Not Found", "unknown_dictionary")
        await api("GET", f"{CARTESIA}/", 400, params={"limit": "x"})


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (
            f"{ELEVENLABS}/add-from-rules",
            {
                "name": "n",
                "rules": [{"type": "phoneme", "string_to_replace": "a", "phoneme": "x", "alphabet": "ipa"}],
            },
        ),
        (f"{CARTESIA}/", {"name": "n", "items": [{"text": "a", "pronunciation": "<<e|i>>"}]}),
    ],
)
async def test_phonemes_are_refused_in_words(
    client: aiohttp.ClientSession, tmp_path: Path, path: str, body: dict[str, Any]
) -> None:
    async with gateway(voices_dir=tmp_path) as served:
        assert "IPA" in json.dumps(await Api(served, client)("POST", path, 400, json=body))


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": "", "rules": []},
        {"name": "n", "rules": [{**RULE, "alias": ""}]},
        {"name": "n", "rules": [{**RULE, "string_to_replace": "x" * 49}]},
        {"name": "n", "rules": [RULE] * 1001},
    ],
)
async def test_malformed_dictionaries_are_refused(
    client: aiohttp.ClientSession, tmp_path: Path, body: dict[str, Any]
) -> None:
    async with gateway(voices_dir=tmp_path) as served:
        api = Api(served, client)
        status = 413 if len(json.dumps(body)) > 65_536 else 400
        await api("POST", f"{ELEVENLABS}/add-from-rules", status, json=body)
        assert (await api("GET", ELEVENLABS))["pronunciation_dictionaries"] == []


async def test_dictionaries_belong_to_the_key_that_made_them(client: aiohttp.ClientSession, tmp_path: Path) -> None:
    keys = (key("ada", "speak+voices"), key("bob", "speak+voices"), key("eve", "speak"))
    async with gateway(voices_dir=tmp_path, keys=keys) as served:
        ada, bob, eve = (Api(served, client, Authorization=f"Bearer {name}") for name in ("ada", "bob", "eve"))
        made = await ada("POST", f"{ELEVENLABS}/add-from-rules", json={"name": "default", "rules": [RULE]})
        assert made["created_by"] == "ada"
        for other in (bob, eve):
            assert (await other("GET", ELEVENLABS))["pronunciation_dictionaries"] == []
            await other("GET", f"{ELEVENLABS}/{made['id']}", 404)
        await bob("DELETE", f"{ELEVENLABS}/{made['id']}", 404)
        await eve("POST", f"{ELEVENLABS}/add-from-rules", 403, json={"name": "d", "rules": []})
        await ada("POST", f"{ELEVENLABS}/add-from-rules", 409, json={"name": "default", "rules": []})
        await Api(served, client)("GET", ELEVENLABS, 401)


async def test_requests_name_dictionaries(client: aiohttp.ClientSession, tmp_path: Path) -> None:
    synthesizer = ToneSynthesizer()

    def said(text: str) -> str:
        text_filter = make_text_filter((), synthesizer.speeches[-1].request.lexica)
        return "".join(str(piece) for piece in [*text_filter.push(text), *text_filter.flush()])

    async with gateway(synthesizer, voices_dir=tmp_path) as served:
        api = Api(served, client)
        made = await api("POST", f"{ELEVENLABS}/add-from-rules", json={"name": "tech", "rules": [RULE]})
        locator = {"pronunciation_dictionary_id": made["id"], "version_id": made["version_id"]}
        body = {"text": "SQL", "pronunciation_dictionary_locators": [locator]}
        await api("POST", "/v1/text-to-speech/ada?output_format=pcm_24000", json=body)
        assert said("Use SQL.") == "Use sequel."
        unknown = {"text": "SQL", "pronunciation_dictionary_locators": [{"pronunciation_dictionary_id": "pd_x"}]}
        error = await api("POST", "/v1/text-to-speech/ada", 404, json=unknown)
        assert error["detail"]["code"] == "unknown_dictionary"
        for path, opening in (("stream-input", {}), ("multi-stream-input", {"context_id": "c"})):
            url = f"http://127.0.0.1:{served.port}/v1/text-to-speech/ada/{path}?output_format=pcm_24000"
            async with client.ws_connect(url) as socket:
                await socket.send_json({"text": " ", **opening, "pronunciation_dictionary_locators": [locator]})
                await socket.send_json({"text": "SQL ", **opening})
                await socket.send_json({"text": "", **opening} if not opening else {**opening, "flush": True})
                assert "audio" in await socket.receive_json(timeout=60)
                assert said("Use SQL.") == "Use sequel."
                await socket.close()


async def test_native_requests_bring_terms_and_are_told_which_applied() -> None:
    synthesizer = ToneSynthesizer()
    async with gateway(synthesizer) as served, dial(served) as socket:
        terms = [{"term": "SQL", "spoken": "sequel"}]
        pcm = {"codec": "pcm", "sample_rate": 24_000}
        await ask(socket, type="start", utterance="a", format=pcm, pacing="none", pronunciations=terms)
        await ask(socket, type="text", utterance="a", text="SQL ")
        await next_of(socket, "started")
        synthesizer.speeches[0].pronunciations = ("SQL",)
        await ask(socket, type="end", utterance="a")
        assert (await next_of(socket, "done"))["pronunciations"] == ["SQL"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"pronunciations": [{"term": "", "spoken": "x"}]}, "bad_message"),
        ({"pronunciations": [{"term": "x", "spoken": " "}]}, "bad_message"),
        ({"pronunciations": [{"term": "x", "spoken": "x", "ipa": "x"}]}, "bad_message"),
        ({"pronunciations": [{"term": "x", "spoken": "x"}] * 101}, "bad_message"),
        ({"dictionaries": ["a", "b", "c", "d"]}, "bad_message"),
        ({"dictionaries": ["pd_unknown"]}, "unknown_dictionary"),
    ],
)
async def test_native_requests_with_other_pronunciations_are_refused(
    fields: dict[str, Any], code: str, tmp_path: Path
) -> None:
    async with gateway(voices_dir=tmp_path) as served, dial(served) as socket:
        await ask(socket, type="start", utterance="b", **fields)
        assert (await next_of(socket, "error"))["code"] == code
