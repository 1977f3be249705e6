// The page: sends the text as it is written, and shows what is spoken.

import { allVoices, choices, listCodecs, listVoices } from "./choices.js";
import { Comparison, SAMPLE } from "./compare.js";
import { Connection } from "./connection.js";
import "./load_demo.js";
import { showHighlight, showLevels, showNumbers } from "./meters.js";
import { shapeAt, showMouth } from "./mouth.js";
import { Speech } from "./speech.js";
import { wireTools } from "./tools.js";
import { change, DEMO, due, wordStart, Writer } from "./typing.js";

const PAUSE_MS = 600; // without typing, after which pending text is spoken
const END_AFTER_MS = 5000; // without typing, after which the utterance ends and releases its slot
const PASTED_CHARACTERS = 24; // added at once: enough to be streamed as it comes
const IDLE_DRAW_MS = 100;
const TYPING_MS = 1000; // after the last key, in which the text area does not scroll to the spoken word

const $ = (id) => document.getElementById(id);
const text = $("text");
const page = {
  start: 0, // position of the current utterance in the text area
  sent: "", // its text that was sent
  words: [], // its word times
  spokenTo: 0, // position where an interrupted utterance stopped
  label: "first key",
  origin: null, // start of the time to first audio, while text is pending: { at, label }
  changedAt: 0, // time of the last change of the text
  length: 0, // its length then
  grew: true, // whether it grew; text left by a deletion is not spoken
  flushed: true, // whether everything sent was flushed
};

const connection = new Connection(location.origin, {
  state: showState,
  session: async (session, token) => {
    $("pause").hidden = !holdMaxMs();
    await listVoices(session, token);
    showState("ready", "Ready");
    endWait();
  },
  control: (message) => speech.control(message),
  audio: (packet) => speech.audio(packet),
  lost: () => speech.lost(),
  resumed: (moved) => {
    const place = moved ? ", from another server" : "";
    if (moved) speech.endHold(); // another gateway does not have the paused utterance
    else if (speech.utterance?.paused) return showState("paused", "Paused");
    showState(speech.utterance ? "speaking" : "ready", (speech.utterance ? "Speaking" : "Ready") + place);
  },
  expecting: () => speech.utterance !== null && !speech.utterance.done && !speech.utterance.held,
});

const speech = new Speech(connection, {
  changed: () => {
    if (!speech.utterance?.format || !connection.open) return;
    if (speech.utterance.paused) showState("paused", "Paused");
    else showState("speaking", "Speaking");
  },
  finished: () => {
    if (connection.open) showState("ready", "Ready");
    endWait();
    comparison.finished();
  },
  interrupted: showInterrupted,
  queued: ({ position, eta_ms }) => {
    const wait = eta_ms ? `, about ${(eta_ms / 1000).toFixed(1)} s` : "";
    showState("queued", `Position ${position} in the queue${wait}`);
  },
  error: ({ message }) => {
    $("error").textContent = message;
    $("error").hidden = false;
    if (!speech.utterance) comparison.stop();
    if (connection.open && !speech.utterance) showState("ready", "Ready");
  },
  failed: (utterance, played_ms) => {
    if (!played_ms) return; // nothing was played
    writer.stop();
    skipPending(); // it is offered with the rest
    const spoken = page.words.findLast(({ end_ms }) => end_ms <= played_ms)?.end ?? 0;
    showStopped(utterance.start, utterance.start + inUtf16(utterance.text, spoken));
  },
  words: (words) => page.words.push(...words),
});

// Types by itself, for the demo.
const writer = new Writer({
  pace: () => Number($("writing-pace").value),
  ready: () => !speech.utterance?.interrupting, // the last utterance is ending
  write: (piece) => {
    text.value += piece;
    page.length = text.value.length;
    onTextChanged({ fast: true, label: "first word" });
  },
  ended: () => speech.end(),
});

// Speaks the text in every voice, to compare them.
const comparison = new Comparison({
  speak: (voice) => speakAll(0, voice),
  shown: (voice, number, count) => {
    $("comparing").textContent = voice ? `${voice.display || voice.name}, ${number} of ${count}` : "";
  },
});

// Writing

text.addEventListener("input", (event) => {
  writer.stop();
  comparison.stop();
  const fast = text.value.length - page.length >= PASTED_CHARACTERS;
  page.length = text.value.length;
  if ($("live").checked) onTextChanged({ grew: !event.inputType?.startsWith("delete"), fast });
});

// Handles a change of the text. `grew` false only stops outdated speech; `fast` text is streamed as it comes instead of by
// phrases; `label` names the start of the time to first audio.
function onTextChanged({ grew = true, fast = false, label = "first key" }) {
  const now = performance.now();
  Object.assign(page, { changedAt: now, grew });
  const step = change(text.value, page.start, page.sent);
  if (step.kind !== "append") page.origin = null;
  if (grew) page.origin ??= { at: now, label };
  if (step.kind === "edit") {
    page.start = step.from;
    page.sent = "";
    page.words = [];
    if (speech.utterance) speech.interrupt();
  }
  if (grew) speakPending(fast);
}

// Sends the part of the pending text that is due; begins an utterance if there is none.
function speakPending(fast = false) {
  if (!connection.open || !$("live").checked || (speech.utterance && !speech.writable)) return;
  const first = !speech.utterance;
  const blank = first ? pendingText().search(/\S|$/) : 0; // an utterance begins with a word
  const pending = pendingText().slice(blank);
  const paused = performance.now() - page.changedAt > PAUSE_MS;
  const phrase = fast ? pending : pending.slice(0, due(pending, { first, paused }));
  if (!phrase.trim() && !phrase.includes("\n")) return;
  if (first) begin(page.start + page.sent.length + blank, page.origin ?? { at: page.changedAt, label: "first key" });
  page.origin = null;
  write(phrase);
  if (!fast) flush();
}

// The text written after the text that was sent.
function pendingText() {
  const step = change(text.value, page.start, page.sent);
  return step.kind === "append" ? step.text : "";
}

// Text that was written while nothing could be spoken: its time to first audio starts now.
function endWait() {
  page.origin &&= { at: performance.now(), label: "wait" };
  if (page.grew) speakPending();
}

function begin(start, { at, label }, voice) {
  Object.assign(page, { start, sent: "", words: [], spokenTo: start, label });
  $("stopped").hidden = true;
  $("error").hidden = true;
  speech.begin({ choices: choices(voice), since: at, start });
}

function write(fragment) {
  page.sent += fragment;
  page.flushed = false;
  speech.write(fragment);
  if (fragment.includes("\n")) speech.end();
}

function flush() {
  if (page.flushed) return;
  page.flushed = true;
  speech.flush();
}

// Skips text that was not sent: the user wants silence, or something else spoken.
function skipPending() {
  page.sent += pendingText();
  page.origin = null;
}

// Speaks the text from `start` on, in the chosen voice or another one.
async function speakAll(start, voice) {
  writer.stop();
  if (!voice) comparison.stop();
  const origin = { at: performance.now(), label: "click" };
  if (!connection.open || !text.value.slice(start).trim()) return comparison.stop();
  skipPending();
  await speech.silence();
  if (voice && !comparison.running) return; // stopped meanwhile
  begin(start, origin, voice);
  write(text.value.slice(start));
  speech.end();
}

setInterval(() => {
  const pause = performance.now() - page.changedAt;
  if (writer.writing || pause <= PAUSE_MS) return;
  if (page.grew) speakPending();
  flush();
  if (pause > END_AFTER_MS) speech.end();
}, 100);

// Interrupting

function interrupt() {
  writer.stop();
  comparison.stop();
  skipPending();
  speech.interrupt();
}

// For how long the gateway holds a paused utterance; 0 if it does not.
function holdMaxMs() {
  const { capabilities = [], limits } = connection.session ?? {};
  return capabilities.includes("hold_ms") ? limits.hold_max_ms : 0;
}

function pauseOrContinue() {
  if (speech.utterance?.paused) speech.resume();
  else speech.pause(holdMaxMs());
}

function showInterrupted({ text_spoken, hold_ms }, utterance, pauseIsOver) {
  const edited = page.sent === "" && utterance.text !== "";
  const ready = pauseIsOver && hold_ms ? `Stopped: a pause lasts ${hold_ms / 1000} s at most` : "Ready";
  showState(connection.open ? "ready" : "offline", connection.open ? ready : "Offline");
  if (pauseIsOver) {
    writer.stop();
    comparison.stop();
    skipPending();
  }
  if (edited) {
    // Sent text was edited: continue from the edit, or from the playback position if that is earlier.
    const spokenTo = utterance.start + text_spoken.length;
    page.start = wordStart(text.value, Math.min(page.start, spokenTo, text.value.length));
    if (page.grew) speakPending();
    return;
  }
  showStopped(utterance.start, utterance.start + text_spoken.length);
}

// Shows the text that was spoken, from `start` to `spokenTo` in the text area, and the rest, which can be spoken next.
function showStopped(start, spokenTo) {
  page.spokenTo = spokenTo;
  $("spoken").textContent = text.value.slice(start, spokenTo).trim() || "Nothing";
  const remaining = text.value.slice(page.spokenTo).trim(); // including text that was never sent
  $("remaining").textContent = remaining || "Nothing";
  $("continue").hidden = !remaining;
  $("stopped").hidden = false;
}

// Showing

function showState(name, detail) {
  document.body.dataset.state = name;
  if ($("state-text").textContent !== detail) $("state-text").textContent = detail;
  $("speak").disabled = $("continue").disabled = $("compare").disabled = !connection.open;
}

function draw() {
  const current = speech.utterance;
  $("interrupt").disabled = !current && !writer.writing && !comparison.running;
  const paused = current?.paused === true;
  $("pause").disabled = !current?.format || current.interrupting || current.continuing;
  if (paused !== ($("pause").textContent === "Continue")) $("pause").textContent = paused ? "Continue" : "Pause";
  $("download").disabled = !(current ?? speech.last)?.recording.length;
  if (current ?? speech.last) showNumbers(current ?? speech.last, speech.player, page.label);
  const word = page.words.findLast(({ start_ms }) => start_ms <= speech.player.played_ms);
  const position = (characters) => page.start + inUtf16(page.sent, characters);
  const follow = writer.writing || performance.now() - page.changedAt > TYPING_MS;
  if (current && word) showHighlight(text.value, page.start, position(word.start), position(word.end), follow);
  else showHighlight(text.value, page.start, page.spokenTo, page.spokenTo);
  showLevels(speech.player, current !== null);
  const moves = current && !current.interrupting && !paused;
  showMouth((current ?? speech.last)?.visemes.length && shapeAt(moves ? current.visemes : [], speech.player.heard_ms));
  if (current) requestAnimationFrame(draw);
  else setTimeout(draw, IDLE_DRAW_MS);
}

// Converts a number of characters, as the gateway counts them, to UTF-16 code units of `string`.
function inUtf16(string, characters) {
  return /[\ud800-\udbff]/.test(string) ? [...string].slice(0, characters).join("").length : characters;
}

function startDemo() {
  interrupt();
  text.value = "";
  Object.assign(page, { start: 0, sent: "", words: [], spokenTo: 0, length: 0, origin: null });
  writer.start(DEMO);
  $("interrupt").disabled = false;
}

$("speak").addEventListener("click", () => speakAll(0));
$("continue").addEventListener("click", () => speakAll(page.spokenTo));
$("interrupt").addEventListener("click", interrupt);
$("pause").addEventListener("click", pauseOrContinue);
$("demo").addEventListener("click", startDemo);
$("compare").addEventListener("click", () => {
  interrupt();
  if (!text.value.trim()) {
    text.value = SAMPLE;
    page.length = SAMPLE.length;
  }
  comparison.start(allVoices());
});
$("codec").addEventListener("change", () => speech.prepare(choices().format));
// When switched on again, only text written from now on is spoken.
$("live").addEventListener("change", () => {
  Object.assign(page, { start: text.value.length, sent: "", words: [], origin: null });
});
text.addEventListener("scroll", () => ($("highlight").scrollTop = text.scrollTop));
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") interrupt();
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    speakAll(0);
  }
});

globalThis.voxgate = { page, speech, connection }; // for the console
if (globalThis.isSecureContext && globalThis.AudioWorkletNode) {
  await listCodecs();
  speech.prepare(choices().format);
  wireTools(() => text.value.slice(page.start) || text.value, () => speech.utterance ?? speech.last, connection);
  connection.run();
  draw();
} else {
  showState("offline", "Audio is not available");
  $("error").textContent =
    "Browsers play audio only on pages loaded over HTTPS, or from localhost. " +
    "From another machine, for example: ssh -L 8000:localhost:8000, then open http://localhost:8000.";
  $("error").hidden = false;
}
