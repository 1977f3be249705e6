// The page: what is written, what is said of it, and the buttons between.

import { choices, listCodecs, listVoices } from "./choices.js";
import { Connection } from "./connection.js";
import "./crowd.js";
import { showEcho, showLevels, showNumbers } from "./meters.js";
import { Speech } from "./speech.js";
import { wireTools } from "./tools.js";
import { change, due, wordStart } from "./typing.js";
import { DEMO, Writer } from "./writer.js";

const PAUSE_MS = 600; // speak what is there
const END_AFTER_MS = 5000; // a pause of this length: the utterance is over, its place is free for others
const FAST_CHARACTERS = 24; // at once, as from a paste: enough to be spoken fluently as it comes
const IDLE_DRAW_MS = 100;
const BUSY_MS = 1000; // since the last key: the text area shows the writer what is written, not what is heard

const $ = (id) => document.getElementById(id);
const text = $("text");
const page = {
  start: 0, // where in the text area the current utterance begins
  said: "", // what was sent of it
  words: [], // when each word is heard
  heard: 0, // how far an interrupted utterance came
  label: "first key",
  origin: null, // what the first sound is measured from, while text waits to be sent: { at, label }
  touched: 0, // when the text last changed
  length: 0, // and how long it was then
  grew: true, // and whether it grew; half a word left by a deletion is not worth saying
  flushed: true, // what was sent is to be spoken to its end
};

const connection = new Connection(location.origin, {
  state: showState,
  session: async (session, token) => {
    await listVoices(session, token);
    showState("ready", "Ready");
    waited();
  },
  control: (message) => speech.control(message),
  audio: (packet) => speech.audio(packet),
  lost: () => speech.lost(),
});

const speech = new Speech(connection, {
  changed: () => {
    if (speech.utterance?.format && connection.open) showState("speaking", "Speaking");
  },
  finished: () => {
    if (connection.open) showState("ready", "Ready");
    waited();
  },
  interrupted: showInterrupted,
  queued: ({ position, eta_ms }) => {
    const wait = eta_ms ? `, about ${(eta_ms / 1000).toFixed(1)} s` : "";
    showState("queued", `Number ${position} in the queue${wait}`);
  },
  trouble: ({ message }) => {
    $("trouble").textContent = message;
    $("trouble").hidden = false;
    if (connection.open && !speech.utterance) showState("ready", "Ready");
  },
  broken: (utterance, played_ms) => {
    if (!played_ms) return; // nothing of it was heard
    writer.stop();
    passOver(); // what follows is said with the rest, when the listener wants it
    const heard = page.words.findLast(({ end_ms }) => end_ms <= played_ms)?.end ?? 0;
    showUnsaid(utterance.start, utterance.start + inUtf16(utterance.text, heard));
  },
  words: (words) => page.words.push(...words),
});

// Writes for those who would rather listen.
const writer = new Writer({
  pace: () => Number($("writing-pace").value),
  ready: () => !speech.utterance?.interrupting, // the last utterance is just ending
  write: (piece) => {
    text.value += piece;
    page.length = text.value.length;
    written({ fast: true, label: "first word" });
  },
  ended: () => speech.end(),
});

// Writing

text.addEventListener("input", (event) => {
  writer.stop();
  const fast = text.value.length - page.length >= FAST_CHARACTERS;
  page.length = text.value.length;
  if ($("live").checked) written({ grew: !event.inputType?.startsWith("delete"), fast });
});

// The text changed. `grew` false waits for more; `fast` text is streamed as it comes instead of phrase by phrase;
// `label` says what its first sound is measured from.
function written({ grew = true, fast = false, label = "first key" }) {
  const now = performance.now();
  Object.assign(page, { touched: now, grew });
  const step = change(text.value, page.start, page.said);
  if (step.kind !== "append") page.origin = null;
  if (grew) page.origin ??= { at: now, label };
  if (step.kind === "edit") {
    page.start = step.from;
    page.said = "";
    page.words = [];
    if (speech.utterance) speech.interrupt();
  }
  if (grew) speakOn(fast);
}

// Say what is due of what was written; begin an utterance for it where there is none.
function speakOn(fast = false) {
  if (!connection.open || !$("live").checked || (speech.utterance && !speech.writable)) return;
  const first = !speech.utterance;
  const blank = first ? unsent().search(/\S|$/) : 0; // an utterance begins with a word
  const pending = unsent().slice(blank);
  const paused = performance.now() - page.touched > PAUSE_MS;
  const phrase = fast ? pending : pending.slice(0, due(pending, { first, paused }));
  if (!phrase.trim() && !phrase.includes("\n")) return;
  if (first) begin(page.start + page.said.length + blank, page.origin ?? { at: page.touched, label: "first key" });
  page.origin = null;
  write(phrase);
  if (!fast) flush();
}

// What was written since the last that was sent.
function unsent() {
  const step = change(text.value, page.start, page.said);
  return step.kind === "append" ? step.text : "";
}

// What was written while nothing could be said is measured from now on.
function waited() {
  page.origin &&= { at: performance.now(), label: "wait" };
  if (page.grew) speakOn();
}

function begin(start, { at, label }) {
  Object.assign(page, { start, said: "", words: [], heard: start, label });
  $("stopped").hidden = true;
  $("trouble").hidden = true;
  speech.begin({ choices: choices(), since: at, start });
}

function write(fragment) {
  page.said += fragment;
  page.flushed = false;
  speech.write(fragment);
  if (fragment.includes("\n")) speech.end();
}

function flush() {
  if (page.flushed) return;
  page.flushed = true;
  speech.flush();
}

// What was written and not sent is not to be said: the writer wants silence, or something else said.
function passOver() {
  page.said += unsent();
  page.origin = null;
}

async function speakAll(start) {
  writer.stop();
  const origin = { at: performance.now(), label: "click" };
  if (!connection.open || !text.value.slice(start).trim()) return;
  passOver();
  await speech.silence();
  begin(start, origin);
  write(text.value.slice(start));
  speech.end();
}

setInterval(() => {
  const pause = performance.now() - page.touched;
  if (writer.writing || pause <= PAUSE_MS) return;
  if (page.grew) speakOn();
  flush();
  if (pause > END_AFTER_MS) speech.end();
}, 100);

// Interrupting

function interrupt() {
  writer.stop();
  passOver();
  speech.interrupt();
}

function showInterrupted({ text_spoken }, utterance) {
  const edited = page.said === "" && utterance.text !== "";
  showState(connection.open ? "ready" : "offline", connection.open ? "Ready" : "Offline");
  if (edited) {
    // The writer changed what was already sent: go on from the change, or from where the listener is, if earlier.
    const heard = utterance.start + text_spoken.length;
    page.start = wordStart(text.value, Math.min(page.start, heard, text.value.length));
    if (page.grew) speakOn();
    return;
  }
  showUnsaid(utterance.start, utterance.start + text_spoken.length);
}

// What was heard, from `start` to `heard` in the text area, and what was not; from there it can go on.
function showUnsaid(start, heard) {
  page.heard = heard;
  $("spoken").textContent = text.value.slice(start, heard).trim() || "Nothing yet";
  const remaining = text.value.slice(page.heard).trim(); // also what was never sent
  $("remaining").textContent = remaining || "Nothing";
  $("continue").hidden = !remaining;
  $("stopped").hidden = false;
}

// Showing

function showState(name, detail) {
  document.body.dataset.state = name;
  if ($("state-text").textContent !== detail) $("state-text").textContent = detail;
  $("speak").disabled = $("continue").disabled = !connection.open;
}

function draw() {
  const current = speech.utterance;
  $("interrupt").disabled = !current && !writer.writing;
  $("download").disabled = !(current ?? speech.last)?.recording.length;
  if (current ?? speech.last) showNumbers(current ?? speech.last, speech.player, page.label);
  const word = page.words.findLast(({ start_ms }) => start_ms <= speech.player.played_ms);
  const unit = (characters) => page.start + inUtf16(page.said, characters);
  const reading = writer.writing || performance.now() - page.touched > BUSY_MS;
  if (current && word) showEcho(text.value, page.start, unit(word.start), unit(word.end), reading);
  else showEcho(text.value, page.start, page.heard, page.heard);
  showLevels(speech.player, current !== null);
  if (current) requestAnimationFrame(draw);
  else setTimeout(draw, IDLE_DRAW_MS);
}

// The gateway counts characters; a string here counts UTF-16 units.
function inUtf16(string, characters) {
  return /[\ud800-\udbff]/.test(string) ? [...string].slice(0, characters).join("").length : characters;
}

function startDemo() {
  interrupt();
  text.value = "";
  Object.assign(page, { start: 0, said: "", words: [], heard: 0, length: 0, origin: null });
  writer.start(DEMO);
  $("interrupt").disabled = false;
}

$("speak").addEventListener("click", () => speakAll(0));
$("continue").addEventListener("click", () => speakAll(page.heard));
$("interrupt").addEventListener("click", interrupt);
$("demo").addEventListener("click", startDemo);
$("codec").addEventListener("change", () => speech.prepare(choices().format));
// Switched on again, it is about what is written from now on.
$("live").addEventListener("change", () => {
  Object.assign(page, { start: text.value.length, said: "", words: [], origin: null });
});
text.addEventListener("scroll", () => ($("echo").scrollTop = text.scrollTop));
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
  showState("offline", "No sound here");
  $("trouble").textContent =
    "This browser plays no sound here: it needs the page over HTTPS, or from localhost. " +
    "From another machine, for example: ssh -L 8000:localhost:8000, then open http://localhost:8000.";
  $("trouble").hidden = false;
}
