// Keeps one socket open: waits for the voice to load, for room, and comes back after a loss with growing pauses.

import { token } from "./key.js";
import { SpeechSocket } from "./voxgate.js";

const READY_POLL_MS = 1000;
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 8000;

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// `on` has state(name, detail), session(message, token), control(message), audio(packet) and lost().
export class Connection {
  constructor(origin, on) {
    this.origin = origin;
    this.on = on;
    this.socket = null;
    this.session = null;
    this.keyed = false; // the gateway wants keys
    this.pause = FIRST_PAUSE_MS;
  }

  async run() {
    for (;;) {
      try {
        const limits = await this.untilReady();
        this.keyed = limits.key_needed === true;
        await this.untilClosed(this.keyed ? await this.token() : null);
      } catch {
        this.on.state("offline", "The gateway does not answer. Trying again…");
      }
      // Spread, so that the listeners of a restarted gateway do not all come back at once.
      await sleep(this.pause * (0.5 + Math.random()));
      this.pause = Math.min(2 * this.pause, LONGEST_PAUSE_MS);
    }
  }

  // A browser cannot read why an upgrade was refused, so it asks before.
  async untilReady() {
    const began = performance.now();
    for (;;) {
      const ready = await fetch("/readyz", { cache: "no-store" });
      const limits = ready.ok ? await (await fetch("/v1/limits", { cache: "no-store" })).json() : null;
      if (limits && limits.accepting !== false) return limits;
      if (limits) {
        this.on.state("full", "Every place is taken. Waiting for one…");
      } else {
        const { reason = "the voice is loading" } = await ready.json().catch(() => ({}));
        const seconds = Math.round((performance.now() - began) / 1000);
        this.on.state("loading", `${reason[0].toUpperCase()}${reason.slice(1)} (${seconds} s)`);
      }
      await sleep(READY_POLL_MS);
    }
  }

  token() {
    this.on.state("key", "An API key is needed");
    return token();
  }

  untilClosed(token) {
    this.on.state("connecting", "Connecting…");
    return new Promise((resolve) => {
      this.socket = new SpeechSocket(this.origin, {
        session: (message) => {
          this.session = message;
          this.pause = FIRST_PAUSE_MS;
          this.on.session(message, token);
        },
        control: (message) => this.on.control(message),
        audio: (packet) => this.on.audio(packet),
        closed: (event) => {
          this.session = null;
          this.on.state("offline", `Connection lost${event.reason ? ` (${event.reason})` : ""}. Trying again…`);
          this.on.lost();
          resolve();
        },
      }, token);
    });
  }

  get open() {
    return this.session !== null;
  }

  send(message) {
    this.socket?.send(message);
  }
}
