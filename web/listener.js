// One of a crowd: a socket, one utterance after another, and a player that only counts.

import { SpeechSocket } from "./voxgate.js";
import { Writer } from "./writer.js";

const START_MS = 80; // of sound, before it would begin to play
const PAUSE_MS = [500, 2500]; // between two utterances
const RETRY_MS = 1000;
const SENTENCES = [
  "The train to the coast leaves from platform four in ten minutes.",
  "I have found three places that are open now, and two of them take reservations.",
  "Tomorrow will be sunny in the morning, with a little rain later in the day.",
  "Your parcel was handed over this afternoon. Is there anything else that I can do for you?",
  "Take the second street on the left, then walk along the river until you see the bridge.",
];

// `state` is one of connecting, waiting, queued, speaking, late, refused, gone. `changed()` is called when it changes.
export class Listener {
  constructor(origin, { choices, pace, token, changed }) {
    Object.assign(this, { choices, changed, state: "connecting", queued: 0 });
    this.firstSounds = []; // ms from the first text to the first sound, each utterance
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
      token,
    );
  }

  stop(state = "gone") {
    this.writer.stop();
    this.timers.forEach(clearTimeout);
    this.socket.close();
    this.become(state);
  }

  speak() {
    this.utterance = `crowd-${++this.count}`;
    Object.assign(this, { since: performance.now(), began: null, rate: 0, received: 0 });
    this.send({ type: "start", ...this.choices });
    this.writer.start(SENTENCES[Math.floor(Math.random() * SENTENCES.length)]);
    this.become("waiting");
  }

  control(message) {
    if (message.utterance !== this.utterance) return;
    if (message.type === "queued") this.become("queued");
    if (message.type === "started") {
      this.rate = message.format.sample_rate;
      this.become("waiting");
    }
    if (message.type === "done") this.rest();
    if (message.type === "error") {
      this.writer.stop();
      this.refused++;
      this.become("refused");
      this.later(message.retry_after_ms ?? RETRY_MS, () => this.speak());
    }
  }

  audio(packet) {
    const now = performance.now();
    this.received += (1000 * packet.samples) / this.rate;
    if (this.began === null && this.received >= START_MS) {
      this.began = now;
      this.firstSounds.push(now - this.since);
      this.become("speaking");
    } else if (this.began !== null && now - this.began > this.received - (1000 * packet.samples) / this.rate) {
      // All that was there had been played before this came.
      this.underruns++;
      this.began = now - this.received + (1000 * packet.samples) / this.rate;
      this.become("late");
    }
  }

  rest() {
    this.become("waiting");
    const left = Math.max(0, this.received - (performance.now() - (this.began ?? performance.now())));
    const [least, most] = PAUSE_MS;
    this.later(left + least + Math.random() * (most - least), () => this.speak());
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

  become(state) {
    this.state = state;
    this.changed(this);
  }
}
