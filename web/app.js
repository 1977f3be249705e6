// The page: what is written, what is said of it, and the buttons between.

import { Connection } from "./connection.js";
import { opusIsSupported } from "./decoder.js";
import { showEcho, showLevels, showNumbers } from "./meters.js";
import { Speech } from "./speech.js";
import { change, wordStart } from "./typing.js";

const RATE = 24000;
const FLUSH_AFTER_MS = 900; // a pause of this length: speak what is there
const END_AFTER_MS = 5000; // and of this: the utterance is over, its place is free for others
const IDLE_DRAW_MS = 100;
const DEMO_TOKEN_MS = 60;
const DEMO =
  "Good evening. These words are written one piece at a time, the way a language model writes them, and you hear " +
  "each of them long before the last one is there. Press Escape, and I will tell you where I stopped.";

const $ = (id) => document.getElementById(id);
const text = $("text");
const page = {
  start: 0, // where in the text area the current utterance begins
  said: "", // what was sent of it
  words: [], // when each word is heard
  heard: 0, // how far an interrupted utterance came
  label: "first key",
  touched: 0, // when the text last changed
  grew: true, // and whether it grew then; half a word left by a deletion is not worth saying
  flushed: true,
  demo: null,
  codec: "pcm",
};

const connection = new Connection(location.origin, {
  state: showState,
  session: async (session) => {
    await listVoices(session);
    showState("ready", "Ready");
    speakOn();
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
    showState("ready", "Ready");
    speakOn();
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
  words: (words) => page.words.push(...words),
});

// Writing

text.addEventListener("input", (event) => {
  stopDemo();
  if ($("live").checked) written(performance.now(), !event.inputType?.startsWith("delete"));
});

// The text changed: say what is new. `grew` false waits for more before anything is begun.
function written(now, grew) {
  Object.assign(page, { touched: now, grew, flushed: false });
  const step = change(text.value, page.start, page.said);
  if (step.kind === "edit") {
    page.start = step.from;
    page.said = "";
    page.words = [];
    if (speech.utterance) speech.interrupt();
    else if (grew) speakOn(now);
  } else if (step.kind === "append") {
    if (speech.writable) write(step.text);
    else if (!speech.utterance && grew) speakOn(now);
  }
}

// Begin an utterance with what was written since the last one, if there is something.
function speakOn(since = performance.now()) {
  if (!connection.open || speech.utterance || !$("live").checked) return;
  const step = change(text.value, page.start, page.said);
  if (step.kind !== "append" || !step.text.trim()) return;
  begin(page.start + page.said.length, since, "first key");
  write(step.text);
}

function begin(start, since, label) {
  Object.assign(page, { start, said: "", words: [], heard: start, label });
  $("stopped").hidden = true;
  $("trouble").hidden = true;
  speech.begin({ voice: $("voice").value || undefined, codec: page.codec, rate: RATE, since, start });
}

function write(fragment) {
  page.said += fragment;
  page.flushed = false;
  speech.write(fragment);
  if (fragment.includes("\n")) speech.end();
}

async function speakAll(start) {
  stopDemo();
  const since = performance.now();
  if (!connection.open || !text.value.slice(start).trim()) return;
  await speech.silence();
  begin(start, since, "click");
  write(text.value.slice(start));
  speech.end();
}

setInterval(() => {
  const pause = performance.now() - page.touched;
  if (!page.flushed && pause > FLUSH_AFTER_MS && !page.demo) {
    page.flushed = true;
    speech.flush();
  }
  if (pause > END_AFTER_MS && !page.demo) speech.end();
}, 100);

// Interrupting

function interrupt() {
  stopDemo();
  speech.interrupt();
}

function showInterrupted({ text_spoken, text_remaining }, utterance) {
  const edited = page.said === "" && utterance.text !== "";
  showState(connection.open ? "ready" : "offline", connection.open ? "Ready" : "Offline");
  if (edited) {
    // The writer changed what was already sent: go on from the change, or from where the listener is, if earlier.
    const heard = utterance.start + text_spoken.length;
    page.start = wordStart(text.value, Math.min(page.start, heard, text.value.length));
    if (page.grew) speakOn(page.touched);
    return;
  }
  page.heard = utterance.start + text_spoken.length;
  $("spoken").textContent = text_spoken.trim() || "Nothing yet";
  $("remaining").textContent = text_remaining.trim() || "Nothing";
  $("continue").hidden = !text_remaining.trim();
  $("stopped").hidden = false;
}

// Showing

function showState(name, detail) {
  document.body.dataset.state = name;
  if ($("state-text").textContent !== detail) $("state-text").textContent = detail;
  $("speak").disabled = !connection.open;
}

function draw() {
  const current = speech.utterance;
  $("interrupt").disabled = !current && !page.demo;
  if (current ?? speech.last) showNumbers(current ?? speech.last, speech.player, page.label);
  const word = page.words.findLast(({ start_ms }) => start_ms <= speech.player.played_ms);
  const unit = (characters) => page.start + inUtf16(page.said, characters);
  if (current && word) showEcho(text.value, page.start, unit(word.start), unit(word.end));
  else showEcho(text.value, page.start, page.heard, page.heard);
  showLevels(speech.player, current !== null);
  if (current) requestAnimationFrame(draw);
  else setTimeout(draw, IDLE_DRAW_MS);
}

// The gateway counts characters; a string here counts UTF-16 units.
function inUtf16(string, characters) {
  return /[\ud800-\udbff]/.test(string) ? [...string].slice(0, characters).join("").length : characters;
}

async function listVoices(session) {
  const { voices } = await (await fetch(session.voices)).json();
  const chosen = $("voice").value || localStorage.getItem("voice") || session.default_voice;
  $("voice").replaceChildren(...voices.map(({ name }) => new Option(name, name)));
  voices.forEach(({ description }, i) => ($("voice").options[i].title = description));
  $("voice").value = voices.some(({ name }) => name === chosen) ? chosen : session.default_voice;
}

async function listCodecs() {
  const options = [new Option("PCM", "pcm")];
  if (await opusIsSupported(RATE)) options.unshift(new Option("Opus", "opus"));
  $("codec").replaceChildren(...options);
  useCodec();
}

function useCodec() {
  page.codec = $("codec").value;
  speech.prepare({ codec: page.codec, rate: RATE });
}

// The demonstration writes as a language model does

function startDemo() {
  interrupt();
  const tokens = DEMO.match(/\s*\S{1,5}/g);
  text.value = "";
  Object.assign(page, { start: 0, said: "", words: [], heard: 0 });
  page.demo = setInterval(() => {
    if (speech.utterance?.interrupting) return; // the last utterance is just ending
    const token = tokens.shift();
    if (token === undefined) {
      stopDemo();
      speech.end();
      return;
    }
    text.value += token;
    written(performance.now(), true);
  }, DEMO_TOKEN_MS);
  $("interrupt").disabled = false;
}

function stopDemo() {
  clearInterval(page.demo);
  page.demo = null;
}

$("speak").addEventListener("click", () => speakAll(0));
$("continue").addEventListener("click", () => speakAll(page.heard));
$("interrupt").addEventListener("click", interrupt);
$("demo").addEventListener("click", startDemo);
$("codec").addEventListener("change", useCodec);
// Switched on again, it is about what is written from now on.
$("live").addEventListener("change", () => Object.assign(page, { start: text.value.length, said: "", words: [] }));
$("voice").addEventListener("change", () => localStorage.setItem("voice", $("voice").value));
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
  connection.run();
  draw();
} else {
  showState("offline", "No sound here");
  $("trouble").textContent =
    "This browser plays no sound here: it needs the page over HTTPS, or from localhost. " +
    "From another machine, for example: ssh -L 8000:localhost:8000, then open http://localhost:8000.";
  $("trouble").hidden = false;
}
