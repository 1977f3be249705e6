// The messages of a session over one connection after another (docs/protocol.md, "A lost connection").
//
// Both sides count the messages that they receive, and keep those that they sent until the other side has confirmed them.
// When a connection is lost without a close, a SpeechSocket opens another one, says how many messages it has received, and
// sends again what the gateway has not. Where the session is gone, or its gateway shuts down, another gateway goes on with
// the utterances. What is above it sees neither a gap nor a repetition.

import { parseAudio } from "./voxgate_audio.js";
import { VoxgateError } from "./voxgate_errors.js";
import { SentUtterances } from "./voxgate_restore.js";

export const SPEECH_PATH = "/v1/speech";
const SUBPROTOCOL = "voxgate.v1"; // means that unknown messages and fields are ignored
const KEPT_CHARACTERS = 1 << 20; // messages unsent or unconfirmed; with more, a lost connection ends the session
const CONFIRM_BYTES = 65_536; // received, after which they are confirmed at once; the gateway stops at four times as many
const CONFIRM_MS = 1000; // after which any received message is confirmed
const SILENCE_CHECK_MS = 500;
const SILENT_CHECKS = 4; // while messages are expected, after which the gateway is asked for one; given up after twice as many
const ATTEMPT_MS = 3000; // for one attempt to connect again
const FIRST_PAUSE_MS = 100; // between attempts; each is twice the one before, more or less at random
const LAST_PAUSE_MS = 1000;
const GIVEN_UP = 4002; // close code of a connection that is replaced; a browser cannot cut it
const MAX_TRIES_ELSEWHERE = 30; // to reach the process that has the session
const ELSEWHERE_PAUSE_MS = 50; // between them, growing by a tenth each: eight seconds in all
const MAX_TRIES_MOVABLE = 6; // the same, of a client with checkpoints, which goes on at any gateway instead
const MOVE_MS = 30_000; // after a loss, in which another gateway has to take the utterances over
const LOSS_CODES = new Set([1006, 1011]); // no close frame; no answer to a ping
const MOVABLE_CODES = new Set([1001, 1012]); // of a gateway that ends, after which utterances go on at another one
const SESSION_MESSAGES = new Set(["limits", "interrupt"]); // about no single utterance, sent to another gateway too

/** @typedef {import("./voxgate_audio.js").Audio} Audio */

/**
 * @typedef {{session(message: any): void, control(message: any): void, audio(packet: Audio): void,
 *   closed(event: {code: number, reason: string}): void, connection?(lost: boolean, moved: boolean): void,
 *   expecting?(): boolean}} Handlers of a SpeechSocket: `connection` is called when the connection is lost and another one
 *   is being opened, and when that one is, `moved` to another gateway or not; `expecting` says whether silence means a loss
 */

/**
 * The WebSocket URL of an address such as `host:8000`, `http://host:8000` or `wss://host/v1/speech`.
 * @param {string} url
 */
export function speechUrl(url) {
  const address = new URL((url.includes("://") ? url : `ws://${url}`).replace(/^http/, "ws"));
  if (address.pathname === "/") address.pathname = SPEECH_PATH;
  return address.href;
}

// A browser cannot set headers on a WebSocket, and a URL is recorded by proxies: the token is sent as a subprotocol.
function subprotocols(token) {
  if (!token) return [SUBPROTOCOL];
  if (!/^[\w!#$%&'*+.^`|~-]+$/.test(token)) {
    throw new VoxgateError("unauthorized", "a key or token in a subprotocol may have letters, digits and !#$%&'*+-.^_`|~ only");
  }
  return [SUBPROTOCOL, "token", token];
}

/** A WebSocket with parsed messages, whose lost connections are replaced. `Session` and the page are built on it. */
export class SpeechSocket {
  /**
   * @param {string} url
   * @param {Handlers} on
   * @param {{token?: string|null, authMessage?: boolean, resume?: boolean}} [options] `token`: a token or an API key, if the
   *   gateway requires one; throws VoxgateError for others, and for a malformed `url`. `authMessage`: send it in the first
   *   message instead of the handshake. `resume`: replace a lost connection, if the gateway offers it
   */
  constructor(url, on, { token = null, authMessage = false, resume = true } = {}) {
    this.url = url;
    this.on = on;
    this.token = token;
    this.inMessage = authMessage && token !== null;
    this.session = "";
    /** @type {{token: string, within_ms: number}|null} what the gateway offers */
    this.offer = null;
    this.received = 0; // messages
    this.unconfirmedBytes = 0;
    /** @type {string[]} messages sent after the first `confirmed` ones */
    this.kept = [];
    this.keptCharacters = 0;
    this.confirmed = 0;
    /** @type {string|null} identity of the model of a gateway that sends checkpoints */
    this.model = null;
    this.utterances = new SentUtterances((message) => this.transmit(message));
    this.leaving = false;
    this.closing = false;
    this.silent = 0; // checks since the last message
    /** @type {any} */
    this.confirmTimer = null;
    this.socket = this.dial(resume ? "new" : null);
    this.silenceTimer = setInterval(() => this.checkSilence(), SILENCE_CHECK_MS);
    this.adopt(this.socket);
    this.socket.onopen = () => {
      this.socket.onerror = null;
      if (this.inMessage) this.send({ type: "auth", key: token });
    };
  }

  get open() {
    return this.socket.readyState === 1;
  }

  /** Sends a message, or keeps it until the connection is replaced. @param {object} message */
  send(message) {
    if (!this.open && !this.offer) return;
    this.utterances.sent(message);
    this.transmit(message);
  }

  transmit(message) {
    const text = JSON.stringify(message);
    this.kept.push(text);
    this.keptCharacters += text.length;
    if (this.open) this.socket.send(text);
  }

  close(code = 1000) {
    this.closing = true;
    this.stopTimers();
    this.socket.close(code);
  }

  /** @param {string|null} resume */
  dial(resume) {
    const protocols = subprotocols(this.inMessage ? null : this.token);
    try {
      const address = new URL(speechUrl(this.url));
      if (this.inMessage) address.searchParams.set("auth", "message");
      if (resume) address.searchParams.set("resume", resume);
      if (resume === "new") address.searchParams.set("checkpoints", "1");
      const socket = new WebSocket(address.href, protocols);
      socket.binaryType = "arraybuffer";
      return socket;
    } catch (error) {
      const constraint = "the address must be a ws, wss, http or https URL, on a page with TLS wss or https";
      throw new VoxgateError("invalid_address", `${constraint}, got ${JSON.stringify(this.url)}: ${error}`);
    }
  }

  // Makes `socket` the present connection.
  adopt(socket) {
    this.socket = socket;
    socket.onmessage = ({ data }) => this.receive(data);
    socket.onclose = (event) => this.lose(event);
    // Some Node versions send no close event for a socket that never opened.
    socket.onerror = () => {
      if (socket.readyState === 3 || !this.offer) this.lose({ code: 1006, reason: "" });
    };
  }

  receive(data) {
    this.received++;
    this.silent = 0;
    const binary = typeof data !== "string";
    if (this.offer) this.planConfirmation(binary ? data.byteLength : data.length);
    if (binary) return this.on.audio(this.utterances.audio(parseAudio(data)));
    const message = JSON.parse(data);
    if (message.type === "received") return this.drop(message.messages);
    if (message.type !== "session") return this.control(message);
    this.offer = message.resume ?? null;
    this.model = message.model ?? null;
    this.session = message.session;
    return this.on.session(message);
  }

  control(message) {
    if (!this.model) return this.on.control(message);
    if (message.type === "going_away" && message.restore_elsewhere && this.utterances.restorable) return this.leave();
    const passed = this.utterances.control(message);
    if (passed) return this.on.control(passed);
    return message.code === "draining" ? this.leave() : undefined;
  }

  // The gateway has received that many messages.
  drop(messages) {
    for (; this.confirmed < messages && this.kept.length; this.confirmed++) {
      this.keptCharacters -= /** @type {string} */ (this.kept.shift()).length;
    }
  }

  planConfirmation(bytes) {
    this.unconfirmedBytes += bytes;
    if (this.unconfirmedBytes >= CONFIRM_BYTES) this.confirm();
    else this.confirmTimer ??= setTimeout(() => this.confirm(), CONFIRM_MS);
  }

  confirm() {
    clearTimeout(this.confirmTimer);
    this.confirmTimer = null;
    if (!this.open) return;
    this.unconfirmedBytes = 0;
    this.send({ type: "received", messages: this.received });
  }

  // Counts checks, not time: a program that was busy, or suspended, has not read what arrived meanwhile.
  checkSilence() {
    if (!this.offer || !this.open || !this.on.expecting?.()) this.silent = 0;
    else if (++this.silent === SILENT_CHECKS) this.send({ type: "ping" });
    else if (this.silent > 2 * SILENT_CHECKS) this.lose({ code: 1006, reason: "no answer" });
  }

  stopTimers() {
    clearInterval(this.silenceTimer);
    clearTimeout(this.confirmTimer);
    this.confirmTimer = null;
  }

  // The present connection is lost or closed.
  lose(event) {
    const { socket } = this;
    socket.onmessage = socket.onclose = socket.onerror = null;
    const { code, reason } = event;
    const leaves = this.model !== null && MOVABLE_CODES.has(code);
    if (this.offer && !this.closing && (LOSS_CODES.has(code) || leaves) && this.keptCharacters <= KEPT_CHARACTERS) {
      socket.close(GIVEN_UP);
      this.replace({ code, reason }, leaves);
    } else {
      this.stopTimers();
      this.on.closed({ code, reason });
    }
  }

  async replace(event, leaves) {
    const lost = this.socket;
    const begun = performance.now();
    this.on.connection?.(true, false);
    const resumed = !leaves && (await this.resume(lost, begun + /** @type {any} */ (this.offer).within_ms));
    if (this.socket !== lost) return resumed ? this.on.connection?.(false, false) : undefined;
    if (this.model && (await this.move(begun + MOVE_MS))) return undefined;
    if (this.socket !== lost) return undefined; // another gateway has taken over meanwhile
    this.stopTimers();
    return this.on.closed(event);
  }

  // Resolves to whether the session goes on over a new connection.
  async resume(lost, deadline) {
    let pause = FIRST_PAUSE_MS;
    let elsewhere = 0;
    while (performance.now() < deadline && this.socket === lost) {
      const outcome = await this.attempt(Math.min(ATTEMPT_MS, deadline - performance.now()));
      if (outcome === "resumed") return true;
      if (outcome === "refused" || this.closing) return false;
      if (outcome === "elsewhere" && ++elsewhere === (this.model ? MAX_TRIES_MOVABLE : MAX_TRIES_ELSEWHERE)) return false;
      const wait = outcome === "elsewhere" ? ELSEWHERE_PAUSE_MS * 1.1 ** elsewhere : pause;
      if (outcome === "failed") pause = Math.min(2 * pause, LAST_PAUSE_MS);
      await new Promise((resolve) => setTimeout(resolve, wait * (0.5 + Math.random())));
    }
    return false;
  }

  // Has another gateway take over in the background; the present one is read until then.
  async leave() {
    if (this.leaving || this.closing) return;
    this.leaving = true;
    await this.move(performance.now() + MOVE_MS);
    this.leaving = false;
  }

  // Begins a session at another gateway with the same model. Resolves to whether that took over.
  async move(deadline) {
    const before = this.socket;
    for (let pause = FIRST_PAUSE_MS; performance.now() < deadline; pause = Math.min(2 * pause, LAST_PAUSE_MS)) {
      const found = await this.begin(Math.min(ATTEMPT_MS, deadline - performance.now()));
      if (this.closing || this.socket !== before) {
        found?.socket.close();
        return false;
      }
      if (found) {
        this.takeOver(found.socket, found.session, deadline);
        before.onmessage = before.onclose = before.onerror = null;
        before.close(1000);
        this.on.connection?.(false, true);
        return true;
      }
      await new Promise((resolve) => setTimeout(resolve, pause * (0.5 + Math.random())));
    }
    return false;
  }

  // Resolves to a new connection and its `session` message; to null when there is none with the same model.
  begin(timeoutMs) {
    return new Promise((resolve) => {
      const socket = this.dial("new");
      const end = (session) => {
        clearTimeout(timer);
        socket.onmessage = socket.onclose = socket.onerror = socket.onopen = null;
        if (!session) socket.close();
        resolve(session ? { socket, session } : null);
      };
      const timer = setTimeout(() => end(null), timeoutMs);
      socket.onclose = socket.onerror = () => end(null);
      socket.onopen = () => {
        if (this.inMessage) socket.send(JSON.stringify({ type: "auth", key: this.token }));
      };
      socket.onmessage = ({ data }) => {
        const message = typeof data === "string" ? JSON.parse(data) : {};
        end(message.type === "session" && message.model === this.model && message.resume ? message : null);
      };
    });
  }

  takeOver(socket, session, deadline) {
    const others = this.kept.filter((text) => {
      const { type, utterance } = JSON.parse(text);
      return SESSION_MESSAGES.has(type) && utterance === undefined;
    });
    [this.kept, this.keptCharacters, this.confirmed] = [[], 0, this.inMessage ? 1 : 0];
    [this.received, this.unconfirmedBytes, this.silent] = [1, 0, 0];
    [this.offer, this.session] = [session.resume, session.session];
    this.adopt(socket);
    for (const message of this.utterances.restore(deadline)) this.transmit(message);
    for (const text of others) this.transmit(JSON.parse(text));
  }

  // Resolves to "resumed", "refused", "failed", or "elsewhere" when another process has the session.
  attempt(timeoutMs) {
    return new Promise((resolve) => {
      const socket = this.dial(this.session);
      const end = (outcome) => {
        clearTimeout(timer);
        if (outcome !== "resumed") {
          socket.onmessage = socket.onclose = socket.onerror = socket.onopen = null;
          socket.close(GIVEN_UP);
        }
        resolve(outcome);
      };
      const timer = setTimeout(() => end("failed"), timeoutMs);
      socket.onclose = socket.onerror = () => end("failed");
      socket.onopen = () => {
        const resume = { type: "resume", token: this.offer?.token, received: this.received };
        socket.send(JSON.stringify(this.inMessage ? { ...resume, key: this.token } : resume));
      };
      socket.onmessage = ({ data }) => {
        const answer = typeof data === "string" ? JSON.parse(data) : {};
        if (answer.code === "resume_elsewhere") return end("elsewhere");
        if (answer.type !== "resumed" || this.closing) return end("refused");
        this.offer = answer.resume;
        this.drop(answer.received);
        this.silent = 0;
        this.adopt(socket);
        for (const text of this.kept) socket.send(text);
        return end("resumed");
      };
    });
  }
}
