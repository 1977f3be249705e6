"""When typed text is sent, in a real browser."""

from __future__ import annotations

import json

from browser.chromium import IN_A_BROWSER, Tab
from fakes.gateway.protocol_server import FakeGateway

from .page_helpers import FINISHED, PLAYED_S, sent_messages

pytestmark = IN_A_BROWSER


async def test_correction_is_spoken_from_the_playback_position(page: Tab, gateway: FakeGateway) -> None:
    await page.type("Good mornimg")
    for _ in range(2):
        await page.press("Backspace")
    await page.type("ng\n")
    await page.until(FINISHED)
    assert await page.evaluate("document.getElementById('text').value") == "Good morning\n"
    last = list(gateway.utterances.values())[-1]
    assert last.text.endswith("morning\n")


async def test_typing_pause_flushes(page: Tab, gateway: FakeGateway) -> None:
    await page.type("Hm")
    await page.until("voxgate.page.sent === 'Hm'")
    await page.type(" ")  # nothing more to speak
    await page.until("performance.now() - voxgate.page.changedAt > 800")
    assert sent_messages(gateway) == ["Hm", "flush"]


async def test_typed_text_is_spoken_phrase_by_phrase(page: Tab, gateway: FakeGateway) -> None:
    await page.type("Well, I think that it is late, so good night.\n")
    await page.until(FINISHED)
    phrases = ["Well, ", "I think that it ", "is late, "]
    assert sent_messages(gateway) == [
        *(each for phrase in phrases for each in (phrase, "flush")),
        "so good night.\n",
        "end",
    ]
    assert len(gateway.utterances) == 1


async def test_empty_line_does_not_end_the_utterance(page: Tab, gateway: FakeGateway) -> None:
    await page.type("One\n")
    await page.until(FINISHED)
    await page.type("\nTwo and three\n")
    await page.until(f"{FINISHED} && voxgate.speech.last.id === 'page-2'")
    assert sent_messages(gateway) == ["One\n", "end", "Two and ", "flush", "three\n", "end"]


async def test_first_phrase_is_short_and_timed_from_the_first_key(page: Tab, gateway: FakeGateway) -> None:
    await page.type("T")
    await page.until("performance.now() - voxgate.page.changedAt > 300")
    await page.type("here it is")
    await page.until("voxgate.speech.last?.firstAudio ?? voxgate.speech.utterance?.firstAudio")
    assert sent_messages(gateway)[:2] == ["There it ", "flush"]
    assert await page.evaluate("(voxgate.speech.utterance ?? voxgate.speech.last).firstAudio") > 300


async def test_pasted_text_is_sent_at_once_and_flushed_after_the_pause(page: Tab, gateway: FakeGateway) -> None:
    pasted = "Pasted, all of it, at once. Half a wor"
    await page.call("Input.insertText", text=pasted)
    await page.until("voxgate.speech.utterance")
    assert await page.evaluate("[voxgate.page.sent, voxgate.page.flushed]") == [pasted, False]
    await page.until("voxgate.page.flushed")
    assert sent_messages(gateway) == [pasted, "flush"]


async def test_fast_text_is_streamed_as_it_arrives(page: Tab, gateway: FakeGateway) -> None:
    await page.evaluate("document.getElementById('demo').click()")
    await page.until("voxgate.page.sent.length > 60")
    fragments = sent_messages(gateway)
    assert "flush" not in fragments
    assert max(map(len, fragments)) <= 6
    await page.press("Escape")


async def test_interrupt_skips_pending_text(page: Tab, gateway: FakeGateway) -> None:
    await page.type("One two three")  # the last word is pending
    await page.until(f"{PLAYED_S} > 0.2")
    await page.press("Escape")
    await page.until("!document.getElementById('stopped').hidden")
    assert await page.evaluate("document.getElementById('remaining').textContent.endsWith('three')")
    await page.until("performance.now() - voxgate.page.changedAt > 800")
    assert sent_messages(gateway) == ["One two ", "flush"]


async def test_unsent_text_changes_without_an_interrupt(page: Tab, gateway: FakeGateway) -> None:
    await page.type("One two thrre")
    for _ in range(2):
        await page.press("Backspace")
    await page.until("performance.now() - voxgate.page.changedAt > 800")  # a remaining part of a word is not spoken
    await page.type("ee\n")
    await page.until(FINISHED)
    assert sent_messages(gateway) == ["One two ", "flush", "three\n", "end"]


async def test_speak_all_speaks_the_whole_text(page: Tab, gateway: FakeGateway) -> None:
    await page.evaluate("document.getElementById('live').click(); document.getElementById('text').focus()")
    await page.type("Silent first")
    assert gateway.utterances == {}
    await page.evaluate("document.getElementById('speak').click()")
    await page.until(FINISHED)
    (utterance,) = gateway.utterances.values()
    assert (utterance.text, utterance.ended) == ("Silent first", True)


async def test_waiting_for_text_is_no_underrun(page: Tab) -> None:
    await page.type("Hm")
    await page.until(f"{PLAYED_S} > 0.15")
    await page.until("voxgate.page.flushed")
    await page.type(" so")
    await page.until("voxgate.speech.player.report.waits >= 1")
    await page.until(f"{PLAYED_S} > 0.39")  # the decoder keeps its look-ahead
    assert await page.evaluate("voxgate.speech.player.report.underruns") == 0


CHANGES = [
    # text area, start of the utterance, text sent, expected change
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
    # pending text, whether nothing is being spoken, whether typing paused, expected text to send
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


async def test_due_phrases_of_pending_text(page: Tab) -> None:
    cases = json.dumps([[text, {"first": first, "paused": paused}] for text, first, paused, _ in DUE])
    call = f"import('/typing.js').then((typing) => {cases}.map(([text, at]) => text.slice(0, typing.due(text, at))))"
    assert await page.evaluate(call) == [expected for *_, expected in DUE]


async def test_edits_are_classified(page: Tab) -> None:
    cases = json.dumps([case[:3] for case in CHANGES])
    call = f"import('/typing.js').then((typing) => {cases}.map((each) => typing.change(...each)))"
    assert await page.evaluate(call) == [expected for *_, expected in CHANGES]
