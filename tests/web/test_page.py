"""The page in a real browser, against the humming gateway: what is typed is what the audio thread plays."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from browser.chromium import IN_A_BROWSER, READY, Tab, tab
from fakes.humming_gateway import HEADER, VOICES, FakeGateway

pytestmark = IN_A_BROWSER

PLAYED_S = "voxgate.speech.player.report.played / voxgate.speech.player.rate"
FINISHED = "voxgate.speech.last && !voxgate.speech.utterance && voxgate.speech.last.done"


async def use(page: Tab, codec: str) -> None:
    await page.evaluate(
        f"document.getElementById('codec').value = '{codec}';"
        "document.getElementById('codec').dispatchEvent(new Event('change'))"
    )


def said(gateway: FakeGateway) -> list[str]:
    """What the page sent after `start`: each fragment of text, and the name of what is none."""
    kinds = ("text", "flush", "end")
    return [message.get("text", message["type"]) for message in gateway.received if message["type"] in kinds]


def acked(gateway: FakeGateway) -> list[int]:
    """What the page said it had played, each time."""
    return [message["played_samples"] for message in gateway.received if message["type"] == "ack"]


@pytest.mark.parametrize("codec", ["pcm", "opus"])
async def test_every_sample_of_what_is_typed_is_played(page: Tab, gateway: FakeGateway, codec: str) -> None:
    if codec == "opus":
        pytest.importorskip("opuslib")
    await use(page, codec)
    await page.type("Hello you")
    await page.press("Enter")
    await page.until(FINISHED)
    utterance = next(iter(gateway.utterances.values()))
    assert utterance.text == "Hello you\n"
    assert utterance.options["format"]["codec"] == codec
    # Ten tones of 80 ms: not a sample more or less, whatever pre-skip and padding the codec added.
    assert await page.evaluate(PLAYED_S) == pytest.approx(0.8, abs=1e-9)
    assert await page.evaluate("voxgate.speech.player.rate") == {"pcm": 24_000, "opus": 48_000}[codec]
    assert await page.evaluate("voxgate.speech.player.report.dropped") == 0
    assert said(gateway) == ["Hello you\n", "end"]
    assert await page.evaluate("parseInt(document.getElementById('first-sound').textContent)") > 0


async def test_the_player_tells_what_it_played(page: Tab, gateway: FakeGateway) -> None:
    await page.type("A longer line.\n")
    await page.until(FINISHED)
    assert acked(gateway) == sorted(acked(gateway))
    assert 0 < acked(gateway)[-1] <= 15 * 1920


async def test_escape_shows_what_was_heard_and_what_was_not(page: Tab) -> None:
    await page.type("One two three four five six")
    await page.until(f"{PLAYED_S} > 0.5")
    await page.press("Escape")
    await page.until("!document.getElementById('stopped').hidden")
    spoken = await page.evaluate("document.getElementById('spoken').textContent")
    remaining = await page.evaluate("document.getElementById('remaining').textContent")
    assert spoken.startswith("One t")
    assert remaining.endswith("six")
    assert f"{spoken} {remaining}".replace(" ", "") == "Onetwothreefourfivesix"


async def test_the_rest_can_be_said_after_an_interrupt(page: Tab, gateway: FakeGateway) -> None:
    await page.type("One two three four")
    await page.until(f"{PLAYED_S} > 0.3")
    await page.press("Escape")
    await page.until("!document.getElementById('stopped').hidden")
    await page.evaluate("document.getElementById('continue').click()")
    await page.until(FINISHED)
    first, second = gateway.utterances.values()
    assert first.text == "One two "
    assert second.text.endswith("three four")  # also what was never sent
    assert second.ended


async def test_a_correction_is_spoken_from_where_the_listener_is(page: Tab, gateway: FakeGateway) -> None:
    await page.type("Good mornimg")
    for _ in range(2):
        await page.press("Backspace")
    await page.type("ng\n")
    await page.until(FINISHED)
    assert await page.evaluate("document.getElementById('text').value") == "Good morning\n"
    last = list(gateway.utterances.values())[-1]
    assert last.text.endswith("morning\n")


async def test_a_pause_flushes(page: Tab, gateway: FakeGateway) -> None:
    await page.type("Hm")
    await page.until("voxgate.page.said === 'Hm'")
    await page.type(" ")  # nothing more to say
    await page.until("performance.now() - voxgate.page.touched > 800")
    assert said(gateway) == ["Hm", "flush"]


async def test_a_writer_is_spoken_phrase_by_phrase(page: Tab, gateway: FakeGateway) -> None:
    await page.type("Well, I think that it is late, so good night.\n")
    await page.until(FINISHED)
    phrases = ["Well, ", "I think that it ", "is late, "]
    assert said(gateway) == [*(each for phrase in phrases for each in (phrase, "flush")), "so good night.\n", "end"]
    assert len(gateway.utterances) == 1


async def test_an_empty_line_ends_nothing(page: Tab, gateway: FakeGateway) -> None:
    await page.type("One\n")
    await page.until(FINISHED)
    await page.type("\nTwo and three\n")
    await page.until(f"{FINISHED} && voxgate.speech.last.id === 'page-2'")
    assert said(gateway) == ["One\n", "end", "Two and ", "flush", "three\n", "end"]


async def test_the_first_phrase_is_short_and_measured_from_the_first_key(page: Tab, gateway: FakeGateway) -> None:
    await page.type("T")
    await page.until("performance.now() - voxgate.page.touched > 300")
    await page.type("here it is")
    await page.until("voxgate.speech.last?.firstSound ?? voxgate.speech.utterance?.firstSound")
    assert said(gateway)[:2] == ["There it ", "flush"]
    assert await page.evaluate("(voxgate.speech.utterance ?? voxgate.speech.last).firstSound") > 300


async def test_what_is_pasted_is_sent_at_once_and_flushed_after_the_pause(page: Tab, gateway: FakeGateway) -> None:
    pasted = "Pasted, all of it, at once. Half a wor"
    await page.call("Input.insertText", text=pasted)
    await page.until("voxgate.speech.utterance")
    assert await page.evaluate("[voxgate.page.said, voxgate.page.flushed]") == [pasted, False]
    await page.until("voxgate.page.flushed")
    assert said(gateway) == [pasted, "flush"]


async def test_fast_text_is_streamed_as_it_comes(page: Tab, gateway: FakeGateway) -> None:
    await page.evaluate("document.getElementById('demo').click()")
    await page.until("voxgate.page.said.length > 60")
    fragments = said(gateway)
    assert "flush" not in fragments
    assert max(map(len, fragments)) <= 6
    await page.press("Escape")


async def test_silence_is_kept_about_what_was_not_sent(page: Tab, gateway: FakeGateway) -> None:
    await page.type("One two three")  # of which the last word waits
    await page.until(f"{PLAYED_S} > 0.2")
    await page.press("Escape")
    await page.until("!document.getElementById('stopped').hidden")
    assert await page.evaluate("document.getElementById('remaining').textContent.endsWith('three')")
    await page.until("performance.now() - voxgate.page.touched > 800")
    assert said(gateway) == ["One two ", "flush"]


async def test_what_was_not_sent_is_changed_without_an_interrupt(page: Tab, gateway: FakeGateway) -> None:
    await page.type("One two thrre")
    for _ in range(2):
        await page.press("Backspace")
    await page.until("performance.now() - voxgate.page.touched > 800")  # half a word is not spoken
    await page.type("ee\n")
    await page.until(FINISHED)
    assert said(gateway) == ["One two ", "flush", "three\n", "end"]


async def test_speak_all_says_the_whole_text(page: Tab, gateway: FakeGateway) -> None:
    await page.evaluate("document.getElementById('live').click(); document.getElementById('text').focus()")
    await page.type("Silent first")
    assert gateway.utterances == {}
    await page.evaluate("document.getElementById('speak').click()")
    await page.until(FINISHED)
    (utterance,) = gateway.utterances.values()
    assert (utterance.text, utterance.ended) == ("Silent first", True)


async def test_the_queue_is_shown(page: Tab, gateway: FakeGateway) -> None:
    gateway.script["x"] = [{"type": "queued", "position": 3, "eta_ms": 1200}]
    await page.type("x")
    await page.until("document.getElementById('state-text').textContent.includes('Number 3 in the queue')")


async def test_an_error_is_shown_in_words(page: Tab, gateway: FakeGateway) -> None:
    gateway.script["x"] = [{"type": "error", "code": "at_capacity", "message": "all busy", "retryable": True}]
    await page.type("x")
    await page.until("document.getElementById('trouble').textContent === 'all busy'")
    await page.until(READY)


async def test_voices_are_offered_and_the_choice_is_used(page: Tab, gateway: FakeGateway) -> None:
    assert await page.evaluate("[...document.getElementById('voice').options].map((o) => o.value)") == [
        "hum",
        "whistle",
    ]
    assert await page.evaluate("[...document.getElementById('voice').options].map((o) => o.text)") == [
        "hum",
        "A whistle",
    ]
    await page.evaluate("document.getElementById('voice').value = 'whistle'")
    await page.type("x\n")
    await page.until(FINISHED)
    assert next(iter(gateway.utterances.values())).options["voice"] == "whistle"


async def test_a_voice_made_meanwhile_is_there_for_who_turns_to_the_list(page: Tab, gateway: FakeGateway) -> None:
    await page.evaluate("document.getElementById('voice').value = 'whistle'")
    new = {"name": "sigh", "languages": ["auto"], "description": "", "instructions": False}
    gateway.voices = VOICES | {"voices": [*VOICES["voices"], new]}
    await page.evaluate("document.getElementById('voice').dispatchEvent(new Event('pointerenter'))")
    await page.until("document.getElementById('voice').options.length === 3")
    assert await page.evaluate("document.getElementById('voice').value") == "whistle"


async def test_a_loading_voice_is_waited_for(browser: int, gateway: FakeGateway) -> None:
    gateway.ready = False
    async with tab(browser) as page:
        await page.open(gateway.url)
        await page.until(
            "document.getElementById('state-text').textContent.match(/^The voice model is loading \\([0-9]+ s\\)$/)"
        )
        assert gateway.received == []
        gateway.ready = True
        await page.until(READY)


async def test_a_lost_connection_comes_back(page: Tab, gateway: FakeGateway) -> None:
    gateway.script["x"] = [4001]
    await page.type("x")
    await page.until("document.body.dataset.state === 'offline'")
    await page.until(READY)
    await page.type(" back\n")
    await page.until(FINISHED)


async def test_what_was_lost_in_the_middle_can_be_said_after_all(page: Tab, gateway: FakeGateway) -> None:
    await page.type("One two three four five six")
    await page.until(f"{PLAYED_S} > 0.9")
    await page.evaluate("voxgate.connection.socket.close()")
    await page.until("!document.getElementById('stopped').hidden")
    spoken = await page.evaluate("document.getElementById('spoken').textContent")
    remaining = await page.evaluate("document.getElementById('remaining').textContent")
    assert spoken.startswith("One tw")
    assert f"{spoken} {remaining}" == "One two three four five six"
    await page.until(READY)
    await page.evaluate("document.getElementById('continue').click()")
    await page.until(FINISHED)
    assert list(gateway.utterances.values())[-1].text.strip() == remaining


async def test_a_connection_that_is_lost_behind_the_last_word_cuts_nothing(page: Tab) -> None:
    await page.type("A whole line.\n")
    await page.until("voxgate.speech.utterance.done")
    await page.evaluate("voxgate.connection.socket.close()")
    await page.until(FINISHED)
    assert await page.evaluate(PLAYED_S) == pytest.approx(14 * 0.08, abs=1e-9)
    assert await page.evaluate("document.getElementById('trouble').hidden")


async def test_the_end_can_be_interrupted_with_the_connection_gone(page: Tab) -> None:
    await page.type("A whole line.\n")
    await page.until("voxgate.speech.utterance.done")
    await page.evaluate("voxgate.connection.socket.close()")
    await page.until("!voxgate.connection.open")
    await page.press("Escape")
    await page.until("!document.getElementById('stopped').hidden")
    assert await page.evaluate("document.getElementById('spoken').textContent") == "A whole line."


async def test_the_word_that_is_heard_stays_in_sight(page: Tab) -> None:
    await page.evaluate("document.getElementById('text').style.maxHeight = '3lh'")
    await page.evaluate("document.getElementById('text').style.minHeight = 0")
    text = "\\n".join("Aye bee see" for _ in range(6))
    await page.evaluate(f"document.getElementById('text').value = '{text}'")
    await page.evaluate("voxgate.page.touched = -1e6; document.getElementById('text').scrollTop = 0")
    await page.evaluate("document.getElementById('speak').click()")
    await page.until("document.getElementById('text').scrollTop > 0", timeout_s=20)
    inside = "((w, t) => w.top >= t.top && w.bottom <= t.bottom + 1)(...['now', 'text'].map((id) => "
    inside += "document.getElementById(id).getBoundingClientRect()))"
    assert await page.evaluate(inside)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_fits_a_telephone(page: Tab, scheme: str, tmp_path: Path) -> None:
    await page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    await page.call("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=1, mobile=True)
    assert await page.evaluate("document.documentElement.scrollWidth") <= 360
    unnamed = (
        "[...document.querySelectorAll('button, select, textarea, input')]"
        ".filter((each) => !each.labels?.length && !each.textContent.trim()).length"
    )
    assert await page.evaluate(unnamed) == 0
    await page.screenshot(tmp_path / f"{scheme}.png")


async def test_waiting_for_the_writer_is_no_underrun(page: Tab) -> None:
    await page.type("Hm")
    await page.until(f"{PLAYED_S} > 0.15")
    await page.until("voxgate.page.flushed")
    await page.type(" so")
    await page.until("voxgate.speech.player.report.waits >= 1")
    await page.until(f"{PLAYED_S} > 0.39")  # the decoder keeps its look-ahead
    assert await page.evaluate("voxgate.speech.player.report.underruns") == 0


async def test_without_a_secure_context_it_says_what_to_do(browser: int, gateway: FakeGateway) -> None:
    async with tab(browser) as page:
        await page.open(gateway.url.replace("127.0.0.1", "voice.test"))
        await page.until("document.getElementById('trouble').textContent.includes('over HTTPS, or from localhost')")
        assert page.problems == []


CHANGES = [
    # what stands there, where the utterance begins, what was sent of it, what it means
    ("Hello", 0, "", {"kind": "append", "text": "Hello"}),
    ("Hello you", 0, "Hello", {"kind": "append", "text": " you"}),
    ("Hello", 0, "Hello", {"kind": "none"}),
    ("Hello", 5, "", {"kind": "none"}),
    ("One. Two.", 4, " Two", {"kind": "append", "text": "."}),
    ("Hello yuo", 0, "Hello you", {"kind": "edit", "from": 6}),
    ("Hell", 0, "Hello", {"kind": "edit", "from": 0}),
    ("", 4, " Two", {"kind": "edit", "from": 0}),
    ("On", 4, "", {"kind": "edit", "from": 0}),
    ("One. Twice", 4, " Two", {"kind": "edit", "from": 5}),
]


DUE = [
    # what waits, whether nothing is being said, whether the writer paused, what is due of it
    ("", True, True, ""),
    ("Hello", True, False, ""),
    ("Hello ", True, False, ""),
    ("Hello you", True, False, ""),
    ("Hello you ", True, False, "Hello you "),
    ("Hello you ", False, False, ""),
    ("so this is wha", False, False, ""),
    ("so this is what ", False, False, "so this is what "),
    ("so this is what I w", False, False, "so this is what I "),
    ("Hello,", True, False, ""),
    ("Hello, ", True, False, "Hello, "),
    ("Hello, y", True, False, "Hello, "),
    ("late. And then; a", False, False, "late. And then; "),
    ('"Late." A', False, False, '"Late." '),
    ("at 3.5 o", False, False, ""),
    ("well — b", False, False, "well — "),
    ("- ( ", True, False, ""),
    ("你好", True, False, ""),
    ("你好\uff0c世", True, False, "你好\uff0c"),
    ("one two 三。四", True, False, "one two 三。"),
    ("Hel", False, True, "Hel"),
    ("Hel\n", False, False, "Hel\n"),
]


async def test_what_is_due_of_what_waits(page: Tab) -> None:
    cases = json.dumps([[text, {"first": first, "paused": paused}] for text, first, paused, _ in DUE])
    call = f"import('/typing.js').then((typing) => {cases}.map(([text, at]) => text.slice(0, typing.due(text, at))))"
    assert await page.evaluate(call) == [expected for *_, expected in DUE]


async def test_what_a_change_means(page: Tab) -> None:
    cases = json.dumps([case[:3] for case in CHANGES])
    call = f"import('/typing.js').then((typing) => {cases}.map((each) => typing.change(...each)))"
    assert await page.evaluate(call) == [expected for *_, expected in CHANGES]


async def test_a_single_frame_is_played_though_nothing_follows(page: Tab, gateway: FakeGateway) -> None:
    await use(page, "pcm")
    await page.type("a")  # 80 ms: less than a start waits for
    await page.until("voxgate.speech.player.report.played === 1920", timeout_s=2)
    async with asyncio.timeout(5):
        while not acked(gateway):
            await asyncio.sleep(0.01)
    assert acked(gateway)[-1] == 1920


async def test_the_last_words_can_be_interrupted_too(page: Tab) -> None:
    await page.type("One two three\n")
    await page.until(f"voxgate.speech.utterance.done && {PLAYED_S} > 0.5")
    await page.press("Escape")
    await page.until("!document.getElementById('stopped').hidden")
    assert "three".endswith(await page.evaluate("document.getElementById('remaining').textContent"))


async def test_a_late_gateway_is_an_underrun(page: Tab) -> None:
    await use(page, "pcm")
    await page.type("Hm")
    await page.until("voxgate.speech.player.report.played === 3840")
    await page.until("performance.now() - voxgate.page.touched > 1200")  # and long after the pause was seen
    # More sound for the same text, as from a gateway that fell behind.
    await page.evaluate("voxgate.speech.player.push(new Float32Array(4800), 24000)")
    await page.until("voxgate.speech.player.report.underruns === 1")


async def test_missing_audio_is_told(page: Tab, gateway: FakeGateway) -> None:
    format = {"codec": "pcm", "sample_rate": 24_000, "packet_ms": 80, "bitrate": 0, "pre_skip": 0}
    started = {
        "type": "started",
        "number": 1,
        "voice": "hum",
        "language": "auto",
        "seed": 1,
        "format": format,
    }
    gateway.script["x"] = [started, HEADER.pack(1, 0, 2, 1, 1, 2) + bytes(4)]
    await page.type("x")
    await page.until("document.getElementById('trouble').textContent.startsWith('Audio is missing')")
