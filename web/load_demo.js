// The load demo: several silent listeners, each with a socket of its own, and figures about all of them.

import { choices } from "./choices.js";
import { token } from "./connection.js";
import { Writer } from "./typing.js";
import { SpeechSocket } from "./voxgate.js";

const $ = (id) => document.getElementById(id);
const START_INTERVAL_MS = 60; // between the starts of two listeners
const FIGURES_MS = 250;
const demo = { listeners: [], starting: null, figures: null };

async function start() {
  stop();
  $("load-demo-start").disabled = true;
  const count = Math.max(1, Math.min(Number($("load-demo-size").max), Math.round(Number($("load-demo-size").value)) || 1));
  $("load-demo-size").value = count;
  const limits = await (await fetch("/v1/limits", { cache: "no-store" })).json();
  const options = {
    choices: choices(),
    pace: () => Number($("writing-pace").value),
    token: limits.key_needed ? await token() : null,
  };
  $("load-demo-stop").disabled = false;
  demo.figures = setInterval(showFigures, FIGURES_MS);
  demo.starting = setInterval(() => {
    const dot = $("load-demo-listeners").appendChild(document.createElement("li"));
    demo.listeners.push(
      new Listener(location.origin, { ...options, changed: ({ state }) => (dot.dataset.state = state) }),
    );
    if (demo.listeners.length >= count) clearInterval(demo.starting);
  }, START_INTERVAL_MS);
}

function stop() {
  clearInterval(demo.starting);
  clearInterval(demo.figures);
  demo.listeners.forEach((listener) => listener.stop());
  if (demo.listeners.length) showFigures();
  demo.listeners = [];
  $("load-demo-listeners").replaceChildren();
  $("load-demo-start").disabled = false;
  $("load-demo-stop").disabled = true;
}

function showFigures() {
  const sum = (figure) => demo.listeners.reduce((total, listener) => total + figure(listener), 0);
  const connected = sum(({ state }) => state !== "gone");
  const speaking = sum(({ state }) => state === "speaking" || state === "late");
  const firstAudioTimes = demo.listeners.flatMap(({ firstAudioTimes }) => firstAudioTimes).sort((a, b) => a - b);
  const at = (share) => `${Math.round(firstAudioTimes[Math.floor(share * (firstAudioTimes.length - 1))])} ms`;
  const first = firstAudioTimes.length ? `first audio after ${at(0.5)} (median), ${at(0.95)} (p95)` : "no audio yet";
  const underruns = sum((listener) => listener.underruns);
  const refused = sum((listener) => listener.refused);
  $("load-demo-summary").textContent =
    `${connected} connected, ${speaking} receiving speech; ${firstAudioTimes.length} utterances started; ${first}; ` +
    `${underruns} underruns; ${refused} refused.`;
}

$("load-demo-start").addEventListener("click", start);
$("load-demo-stop").addEventListener("click", stop);
globalThis.voxgateLoadDemo = demo; // for the console

const START_MS = 80; // of audio, before the player would start
const PAUSE_MS = [500, 2500]; // shortest and longest pause between two utterances
const RETRY_MS = 1000;
const SENTENCES = [
  "The train to the coast leaves from platform four in ten minutes.",
  "I have found three places that are open now, and two of them take reservations.",
  "Tomorrow will be sunny in the morning, with a little rain later in the day.",
  "Your parcel was handed over this afternoon. Is there anything else that I can do for you?",
  "Take the second street on the left, then walk along the river until you see the bridge.",
];

// One utterance after another on a socket, with a player that only counts. `state` is one of connecting, waiting, queued,
// speaking, late, refused, gone; `changed(listener)` is called when it changes.
export class Listener {
  constructor(origin, { choices, pace, token, changed }) {
    Object.assign(this, { choices, changed, state: "connecting", queued: 0 });
    this.firstAudioTimes = []; // of each utterance, in ms from the first text
    this.underruns = 0;
    this.refused = 0;
    this.count = 0;
    this.timers = new Set();
    this.writer = new Writer({
      pace,
      write: (text) => this.send({ type: "text", text }),
      ended: () => this.send({ type: "end" }),
    });
    this.socket = new SpeechSocket(
      origin,
      {
        session: () => this.later(Math.random() * PAUSE_MS[1], () => this.speak()),
        control: (message) => this.control(message),
        audio: (packet) => this.audio(packet),
        closed: () => this.stop("gone"),
      },
      { token, resume: false },
    );
  }

  stop(state = "gone") {
    this.writer.stop();
    this.timers.forEach(clearTimeout);
    this.socket.close();
    this.setState(state);
  }

  speak() {
    this.utterance = `listener-${++this.count}`;
    Object.assign(this, { since: performance.now(), startedAt: null, rate: 0, received: 0 });
    this.send({ type: "start", ...this.choices });
    this.writer.start(SENTENCES[Math.floor(Math.random() * SENTENCES.length)]);
    this.setState("waiting");
  }

  control(message) {
    if (message.utterance !== this.utterance) return;
    if (message.type === "queued") this.setState("queued");
    if (message.type === "started") {
      this.rate = message.format.sample_rate;
      this.setState("waiting");
    }
    if (message.type === "done") this.pauseBeforeNext();
    if (message.type === "error") {
      this.writer.stop();
      this.refused++;
      this.setState("refused");
      this.later(message.retry_after_ms ?? RETRY_MS, () => this.speak());
    }
  }

  audio(packet) {
    const now = performance.now();
    this.received += (1000 * packet.samples) / this.rate;
    if (this.startedAt === null && this.received >= START_MS) {
      this.startedAt = now;
      this.firstAudioTimes.push(now - this.since);
      this.setState("speaking");
    } else if (this.startedAt !== null && now - this.startedAt > this.received - (1000 * packet.samples) / this.rate) {
      // Everything received before had been played.
      this.underruns++;
      this.startedAt = now - this.received + (1000 * packet.samples) / this.rate;
      this.setState("late");
    }
  }

  pauseBeforeNext() {
    this.setState("waiting");
    const unplayed = Math.max(0, this.received - (performance.now() - (this.startedAt ?? performance.now())));
    const [least, most] = PAUSE_MS;
    this.later(unplayed + least + Math.random() * (most - least), () => this.speak());
  }

  send(message) {
    this.socket.send({ ...message, utterance: this.utterance });
  }

  later(ms, act) {
    const timer = setTimeout(() => {
      this.timers.delete(timer);
      act();
    }, ms);
    this.timers.add(timer);
  }

  setState(state) {
    this.state = state;
    this.changed(this);
  }
}
