// JavaScript client of the native protocol (docs/protocol.md): files without dependencies, for browsers and Node 22.
// This one is the entry, which imports the others. Gateways serve them all at their names, such as /voxgate.js; `npm pack` in this
// folder makes a package of them and of the types in their comments. `connect`, Session and Utterance are the interface; SpeechSocket
// is the socket below them.
//
//   const session = await connect("ws://localhost:8000");
//   const utterance = session.utterance({ words: true });
//   utterance.send("Hello there.");
//   utterance.end();
//   for await (const event of utterance) if (event.type === "audio") play(event.payload);

import { parseAudio } from "./voxgate_audio.js";
import { MISTAKE_CLOSE_CODES, VoxgateError } from "./voxgate_errors.js";
import { SPEECH_PATH, SpeechSocket, speechUrl } from "./voxgate_socket.js";
import { Utterance } from "./voxgate_utterance.js";

export { parseAudio, SPEECH_PATH, SpeechSocket, speechUrl, Utterance, VoxgateError };

export const PROTOCOL = 1;
const OPEN_TIMEOUT_MS = 10_000;
const MAX_REMEMBERED = 8; // ended utterances that can still be interrupted while their last audio is playing

/** @typedef {import("./voxgate_audio.js").Audio} Audio */
/** @typedef {import("./voxgate_audio.js").AudioFormat} AudioFormat */
/** @typedef {import("./voxgate_utterance.js").Word} Word */
/** @typedef {import("./voxgate_utterance.js").Words} Words */
/** @typedef {import("./voxgate_utterance.js").Viseme} Viseme */
/** @typedef {import("./voxgate_utterance.js").Visemes} Visemes */
/** @typedef {import("./voxgate_utterance.js").Queued} Queued */
/** @typedef {import("./voxgate_utterance.js").Started} Started */
/** @typedef {import("./voxgate_utterance.js").Generated} Generated */
/** @typedef {import("./voxgate_utterance.js").Starving} Starving */
/** @typedef {import("./voxgate_utterance.js").Warning} Warning */
/** @typedef {import("./voxgate_utterance.js").Reconnecting} Reconnecting */
/** @typedef {import("./voxgate_utterance.js").Resumed} Resumed */
/** @typedef {import("./voxgate_utterance.js").Retracted} Retracted */
/** @typedef {import("./voxgate_utterance.js").Interrupted} Interrupted */
/** @typedef {import("./voxgate_utterance.js").Continued} Continued */
/** @typedef {import("./voxgate_utterance.js").Done} Done */
/** @typedef {import("./voxgate_utterance.js").SpeechEvent} SpeechEvent */

/**
 * @typedef {object} Options options of an utterance; the gateway chooses those left out
 * @property {string} [voice]
 * @property {string} [language]
 * @property {string} [instructions]
 * @property {AudioFormat} [format] default: 16-bit PCM at 24 kHz
 * @property {object} [sampling]
 * @property {number} [seed]
 * @property {"streaming"|"non_streaming"} [layout] start speaking with the first words, or after the whole text
 * @property {boolean} [trim_silence] remove silence before the first word
 * @property {boolean} [words] whether to send word times
 * @property {boolean} [visemes] whether to send mouth shapes, for voices whose `visemes` in /v1/voices is true
 * @property {boolean} [normalise]
 * @property {"playback"|"none"} [pacing]
 * @property {number} [lead_ms] how far audio is sent ahead of playback, at most `limits.lead_max_ms`
 * @property {number} [starving_ms] asks for `starving` when the talker waits for text and less audio than this is left
 * @property {"code_points"|"utf16"} [offsets] what offsets and lengths of text count; strings here count `utf16` units
 * @property {string} [traceparent] the trace that the utterance is a part of (W3C Trace Context)
 * @property {string[]} [markup] dialects of markup in the text that are not read aloud
 * @property {number} [rate] how fast to speak, 0.5 to 2; 1 is the voice's own rate
 * @property {number} [volume] how loud to speak, 0 to 2; 1 is the voice's own volume
 * @property {{term: string, spoken: string, case_sensitive?: boolean, word_boundaries?: boolean}[]} [pronunciations]
 * @property {string[]} [dictionaries] ids of pronunciation dictionaries
 */

/**
 * Opens a session. Rejects with a VoxgateError: `unreachable` (browsers do not report why an upgrade was refused;
 * request `GET /v1/limits`), `timeout`, `protocol_violation`, `invalid_address`, `unauthorized` for a token that cannot be sent,
 * and `unsupported` where there is no WebSocket.
 * @param {string} url the gateway's address, ws or http (with TLS: wss or https), with or without the path
 * @param {{token?: string|null, authMessage?: boolean, timeoutMs?: number, resume?: boolean}} [options] `authMessage`: send
 *   the token in the first message instead of the handshake; `resume`: replace a lost connection, if the gateway offers it
 * @returns {Promise<Session>}
 */
export function connect(url, { token = null, authMessage = false, timeoutMs = OPEN_TIMEOUT_MS, resume = true } = {}) {
  return new Promise((resolve, reject) => {
    if (typeof WebSocket === "undefined") {
      throw new VoxgateError("unsupported", "there must be a global WebSocket, as in browsers and Node 22");
    }
    const session = new Session();
    const fail = (code, message, retryable = true) => {
      clearTimeout(timer);
      reject(new VoxgateError(code, message, { retryable }));
      socket.close();
    };
    const socket = new SpeechSocket(
      url,
      {
        session: (info) => {
          if (info.protocol !== PROTOCOL) {
            return fail("protocol_violation", `protocol version must be ${PROTOCOL}, the gateway has ${info.protocol}`, false);
          }
          clearTimeout(timer);
          session.info = info;
          return resolve(session);
        },
        control: (message) => session.receive(message),
        audio: (packet) => session.receive(packet),
        closed: ({ code, reason }) => {
          session.lose(code, reason);
          fail("unreachable", `no gateway answers at ${url}`);
        },
        connection: (lost, moved) => session.onConnection(lost, moved),
        expecting: () => session.expecting,
      },
      { token, authMessage, resume },
    );
    const timer = setTimeout(() => fail("timeout", `no session message within ${timeoutMs} ms`), timeoutMs);
    session.socket = socket;
  });
}

/** One connection, made by `connect`. It carries any number of utterances at the same time. */
export class Session {
  constructor() {
    /** @type {any} the gateway's session message: `limits`, `formats`, `default_voice` ... */
    this.info = null;
    /** @type {number|null} set when the gateway has announced its shutdown; it accepts no new utterances */
    this.goingAwayMs = null;
    /** @type {VoxgateError|null} the reason after the socket has closed */
    this.lost = null;
    this.socket = /** @type {any} */ (null);
    /** @type {{resolve(message: any): void, reject(error: VoxgateError): void}[]} */
    this.limitsAsked = [];
    this.count = 0;
    this.utterances = new Map();
  }

  /**
   * Starts an utterance; text can be sent at once. Throws after the connection was lost.
   * @param {Options} [options]
   */
  utterance(options = {}) {
    if (this.lost) throw this.lost;
    const ended = [...this.utterances.values()].filter((each) => each.over);
    for (const each of ended.slice(0, -MAX_REMEMBERED)) this.utterances.delete(each.id);
    const id = `u${++this.count}`;
    const format = options.format ?? { codec: "pcm", sample_rate: 24_000 };
    const utterance = new Utterance(id, format, (message) => this.socket.send(message));
    this.utterances.set(id, utterance);
    this.socket.send({ type: "start", utterance: id, ...options, format });
    return utterance;
  }

  /**
   * Sets options of the utterances that start from now on, in place of earlier ones; `utterance` always gives a format.
   * @param {Options} [options]
   */
  setDefaults(options = {}) {
    this.socket.send({ type: "defaults", id: "defaults", ...options });
  }

  /**
   * Resolves to the limits of the connection and of the key, and what is left now.
   * @returns {Promise<{limits: any, quota: any}>}
   */
  limits() {
    if (this.lost) return Promise.reject(this.lost);
    const answer = new Promise((resolve, reject) => this.limitsAsked.push({ resolve, reject }));
    this.socket.send({ type: "limits" });
    return answer;
  }

  /** Stops all utterances, those included whose audio is sent and not played yet; their events say where. */
  interrupt() {
    this.socket.send({ type: "interrupt", id: "interrupt-all" });
  }

  close() {
    this.socket.close();
  }

  receive(message) {
    if (message.type === "limits") {
      this.limitsAsked.shift()?.resolve(message);
    } else if (message.type === "audio") {
      for (const each of this.utterances.values()) if (each.number === message.number) each.receive(message);
    } else if (message.type === "going_away") {
      this.goingAwayMs = message.deadline_ms;
    } else if (message.utterance !== undefined) {
      this.utterances.get(message.utterance)?.receive(message);
    } else if (message.type === "error") {
      // It refuses a single message: the utterances go on.
      console.warn(`voxgate: ${message.message} (${message.code})`);
    }
  }

  /** Whether messages of the gateway are expected, so that silence means a loss. */
  get expecting() {
    return [...this.utterances.values()].some((each) => !each.over && !each.ended);
  }

  // The connection was lost, or is replaced.
  onConnection(lost, moved) {
    if (moved) for (const each of this.utterances.values()) if (each.held) each.letGo(); // another gateway does not have it
    const event = /** @type {any} */ (lost ? { type: "reconnecting" } : { type: "resumed", moved });
    for (const each of this.utterances.values()) if (!each.ended) each.push(event);
  }

  lose(code, reason) {
    const text = `connection lost: ${reason || "no reason given"}, ${code}`;
    this.lost = new VoxgateError("session_lost", text, { retryable: !MISTAKE_CLOSE_CODES.has(code) });
    for (const each of this.utterances.values()) each.fail(this.lost);
    for (const each of this.limitsAsked.splice(0)) each.reject(this.lost);
    this.utterances.clear();
  }
}
