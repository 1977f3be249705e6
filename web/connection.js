// Connects the page to the gateway: waits until it is ready and has capacity, gets a token where it requires keys, and
// opens a new session, with growing pauses, when a lost connection could not be resumed.

import { SpeechSocket } from "./voxgate.js";

const $ = (id) => document.getElementById(id);
const KEY_STORAGE = "voxgate-key";
const TOKEN_TTL_S = 3600; // the socket ends with its token
const READY_POLL_MS = 1000;
const MIN_PAUSE_MS = 500;
const MAX_PAUSE_MS = 8000;

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Keeps one socket open. `on` has state(name, detail), session(message, token), control(message), audio(packet), lost(),
// resumed(moved), to another gateway or not, expecting(): whether the gateway has something to send.
export class Connection {
  constructor(origin, on) {
    this.origin = origin;
    this.on = on;
    this.socket = null;
    this.session = null;
    this.keyRequired = false;
    this.pause = MIN_PAUSE_MS;
  }

  async run() {
    for (;;) {
      try {
        const limits = await this.untilReady();
        this.keyRequired = limits.key_needed === true;
        await this.untilClosed(this.keyRequired ? await this.token() : null);
      } catch {
        this.on.state("offline", "The gateway does not answer. Retrying…");
      }
      // Jitter: the clients of a restarted gateway must not all reconnect at once.
      await sleep(this.pause * (0.5 + Math.random()));
      this.pause = Math.min(2 * this.pause, MAX_PAUSE_MS);
    }
  }

  // A browser does not report why an upgrade was refused, so the limits are requested first.
  async untilReady() {
    const began = performance.now();
    for (;;) {
      const ready = await fetch("/readyz", { cache: "no-store" });
      const limits = ready.ok ? await (await fetch("/v1/limits", { cache: "no-store" })).json() : null;
      if (limits && limits.accepting !== false) return limits;
      if (limits) {
        this.on.state("full", "All connections are in use. Waiting for one…");
      } else {
        const { reason = "the voice model is loading" } = await ready.json().catch(() => ({}));
        const seconds = Math.round((performance.now() - began) / 1000);
        this.on.state("loading", `${reason[0].toUpperCase()}${reason.slice(1)} (${seconds} s)`);
      }
      await sleep(READY_POLL_MS);
    }
  }

  token() {
    this.on.state("key", "An API key is required");
    return token();
  }

  untilClosed(token) {
    this.on.state("connecting", "Connecting…");
    return new Promise((resolve) => {
      this.socket = new SpeechSocket(this.origin, {
        session: (message) => {
          this.session = message;
          this.pause = MIN_PAUSE_MS;
          this.on.session(message, token);
        },
        control: (message) => this.on.control(message),
        audio: (packet) => this.on.audio(packet),
        connection: (lost, moved) => {
          if (lost) this.on.state("reconnecting", "Connection lost. Resuming…");
          else this.on.resumed(moved);
        },
        expecting: () => this.on.expecting(),
        closed: (event) => {
          this.session = null;
          this.on.state("offline", `Connection lost${event.reason ? ` (${event.reason})` : ""}. Reconnecting…`);
          this.on.lost();
          resolve();
        },
      }, { token });
    });
  }

  get open() {
    return this.session !== null;
  }

  send(message) {
    this.socket?.send(message);
  }
}

// Keys: the visitor's key stays in this tab. Sockets are opened with short-lived tokens that are made with it.


// Resolves to a new token; asks the visitor for a key if none is stored or it is refused. Rejects without a gateway.
export async function token() {
  for (;;) {
    const key = sessionStorage.getItem(KEY_STORAGE) ?? (await enteredKey());
    const body = JSON.stringify({ ttl_s: TOKEN_TTL_S });
    const answer = await fetch("/v1/tokens", { method: "POST", headers: { Authorization: `Bearer ${key}` }, body });
    if (answer.ok) {
      sessionStorage.setItem(KEY_STORAGE, key);
      if (!$("key-form").hidden) $("text").focus(); // the focused form disappears
      $("key-form").hidden = true;
      return (await answer.json()).token;
    }
    const reason = { 401: "This key is not valid.", 403: "This key has no right to speak." }[answer.status];
    if (!reason) throw new Error(`no token: ${answer.status}`);
    sessionStorage.removeItem(KEY_STORAGE);
    $("key-error").textContent = reason;
    $("key").select();
  }
}

function enteredKey() {
  $("key-form").hidden = false;
  $("key").focus();
  return new Promise((resolve) => {
    $("key-form").onsubmit = (event) => {
      event.preventDefault();
      const key = $("key").value.trim();
      // Other characters are not allowed in a header.
      if (/^[\x21-\x7e]+$/.test(key)) resolve(key);
      else $("key-error").textContent = "A key must have letters, digits and punctuation only.";
    };
  });
}
