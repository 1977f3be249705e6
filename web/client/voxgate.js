// JavaScript client of the native protocol (docs/protocol.md): files without dependencies, for browsers and Node 22.
// Gateways serve them at /voxgate.js, /voxgate_socket.js and /voxgate_restore.js; `npm pack` in this folder makes a package of them and of the
// types in their comments. `connect`, Session and Utterance are the interface; SpeechSocket is the socket below them.
//
//   const session = await connect("ws://localhost:8000");
//   const utterance = session.utterance({ words: true });
//   utterance.send("Hello there.");
//   utterance.end();
//   for await (const event of utterance) if (event.type === "audio") play(event.payload);

export { parseAudio, SPEECH_PATH, SpeechSocket, speechUrl, VoxgateError } from "./voxgate_socket.js";
import { SpeechSocket, VoxgateError } from "./voxgate_socket.js";

export const PROTOCOL = 1;
const SAMPLE_BYTES = { pcm: 2, pcm_f32: 4, mulaw: 1, alaw: 1 }; // of codecs whose payloads are plain samples
const OPEN_TIMEOUT_MS = 10_000;
const INTERRUPT_TIMEOUT_MS = 10_000;
const HOLD_SLACK_MS = 1000; // between looks whether a hold that is over was ended by `continue`, whose answer is under way
const RETRACT_TIMEOUT_MS = 10_000;
const MAX_UNREAD = 4096; // events of one utterance (5 minutes of default packets); reading a WebSocket cannot be paused
// These answer a mistake of the client, which the next connection would meet again (docs/protocol.md, "Errors").
const MISTAKE_CLOSE_CODES = new Set([1003, 1007, 1008, 1009]);
const MAX_REMEMBERED = 8; // ended utterances that can still be interrupted while their last audio is playing

/**
 * @typedef {object} AudioFormat
 * @property {"pcm"|"pcm_f32"|"mulaw"|"alaw"|"opus"|"ogg_opus"|"mp3"|"flac"|"wav"|"wav_f32"|"wav_mulaw"|"wav_alaw"} codec
 * @property {number} [sample_rate] in Hz
 * @property {number} [packet_ms] 80, 40 or 20
 * @property {number} [bitrate] in bit/s, for opus, ogg_opus and mp3
 * @property {number} [pre_skip] samples to drop at the start of the decoded audio; set by the gateway
 */

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

/** @typedef {import("./voxgate_socket.js").Audio} Audio */

/**
 * @typedef {{text: string, start: number, end: number, start_ms: number, end_ms: number}} Word `text` as spoken; `start`
 *   and `end` are offsets in the text as sent, counted as the option `offsets` says
 * @typedef {{type: "done", reason: "end"|"length", characters: number, frames: number, samples: number,
 *   audio_ms: number, ttfa_ms?: number, pronunciations?: string[]}} Done `frames` of the talker; `pronunciations`: terms
 *   that were spoken in another form
 * @typedef {{type: "interrupted", played_ms: number, text_spoken: string, text_remaining: string, hold_ms?: number}} Interrupted
 *   with `hold_ms` the utterance is kept for so long
 * @typedef {{type: "continued", seq: number, skip_samples: number, played_ms: number}} Continued a held utterance goes on
 *   at `played_ms`, in message `seq`
 * @typedef {{type: "retracted", characters: number, text: string, void_from: number, flush_at?: number, samples?: number,
 *   audio_ms?: number, checkpoint?: string[]}} Retracted `text` was taken back, the first `characters` characters stay; words that begin at `void_from` or
 *   later and mouth shapes from `audio_ms` on are void
 * @typedef {{type: "queued", position: number, eta_ms?: number}} Queued
 * @typedef {{type: "started", number: number, voice: string, language: string, seed: number, format: AudioFormat,
 *   packet_samples: number}} Started
 * @typedef {{type: "words", words: Word[], approximate: boolean}} Words
 * @typedef {{viseme: "sil"|"PP"|"FF"|"TH"|"DD"|"kk"|"CH"|"SS"|"nn"|"RR"|"aa"|"E"|"I"|"O"|"U", start_ms: number}} Viseme a
 *   mouth shape, from `start_ms` of the audio to the next
 * @typedef {{type: "visemes", visemes: Viseme[]}} Visemes mouth shapes of audio that follows
 * @typedef {{type: "generated", samples: number, audio_ms: number}} Generated all audio is made, so its length is known
 * @typedef {{type: "starving", audio_ms: number}} Starving the talker waits for text; so much audio is left to play
 * @typedef {{type: "warning", code: string, message: string}} Warning
 * @typedef {{type: "reconnecting"}} Reconnecting the connection was lost, and another one is being opened: audio is late
 * @typedef {{type: "resumed", moved: boolean}} Resumed the utterance goes on over another connection, `moved` to another
 *   gateway or not; nothing is missing
 * @typedef {Audio|Queued|Started|Words|Visemes|Generated|Starving|Warning|Reconnecting|Resumed|Retracted|Done|Interrupted|Continued} SpeechEvent what
 *   iteration over an utterance yields
 */

/**
 * Opens a session. Rejects with a VoxgateError: `unreachable` (browsers do not report why an upgrade was refused;
 * request `GET /v1/limits`), `timeout`, `protocol_violation`, `unauthorized` for a token that cannot be sent.
 * @param {string} url the gateway's address, ws or http (with TLS: wss or https), with or without the path
 * @param {{token?: string|null, authMessage?: boolean, timeoutMs?: number, resume?: boolean}} [options] `authMessage`: send
 *   the token in the first message instead of the handshake; `resume`: replace a lost connection, if the gateway offers it
 * @returns {Promise<Session>}
 */
export function connect(url, { token = null, authMessage = false, timeoutMs = OPEN_TIMEOUT_MS, resume = true } = {}) {
  return new Promise((resolve, reject) => {
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

// After these codes the gateway continues the utterance, and so does this client.
const NON_FATAL = new Set(["text_too_long", "unknown_utterance", "utterance_ended"]);
// After these the gateway continues it too, but text may be missing.
const MESSAGE_REFUSED = new Set(["bad_message", "duplicate_utterance", "not_held", "rate_limited"]);

const REFUSES_MESSAGE = new Set([...NON_FATAL, ...MESSAGE_REFUSED]);

/** One utterance, made by `Session.utterance`. Text is sent and events are read by iteration at the same time. */
export class Utterance {
  constructor(id, format, send) {
    this.id = id;
    /** @type {AudioFormat} as requested; as granted, with `pre_skip`, once it has started */
    this.format = format;
    this.number = -1;
    /** Whether the gateway has ended it. */
    this.over = false;
    /** @type {Done|Interrupted|null} */
    this.done = null;
    this.transmit = send;
    this.nextSeq = 0;
    this.nextPts = 0;
    this.lastReceived = false;
    /** @type {SpeechEvent[]} */
    this.queue = [];
    this.ended = false;
    /** @type {VoxgateError|null} */
    this.error = null;
    /** @type {(value?: unknown) => void} */
    this.wake = () => {};
    /** @type {{resolve(message: Interrupted): void, reject(error: VoxgateError): void}|null} */
    this.answer = null;
    this.calls = 0;
    this.textEnded = false;
    /** @type {VoxgateError|null} refusal of an earlier call, raised by the next one about the text */
    this.refusal = null;
    /** @type {Promise<Interrupted>|null} the promise of a pending answer */
    this.interrupting = null;
    /** @type {number|undefined} `hold_ms` of the pending interrupt */
    this.pendingHold = undefined;
    /** @type {Interrupted|null} the answer while it is held */
    this.held = null;
    /** @type {SpeechEvent[]|null} unread audio until it is held, nothing afterwards */
    this.aside = null;
    /** @type {any} */
    this.holdTimer = null;
    /** @type {{promise: Promise<Continued>, resolve(message: Continued): void, reject(error: VoxgateError): void}|null} */
    this.continuing = null;
    this.skip = 0; // samples of the next audio message that were heard
    this.rewound = false; // whether that message was received before
    /** @type {{resolve(message: Retracted): void, reject(error: VoxgateError): void}[]} retractions without an answer, in order */
    this.retractions = [];
  }

  /** Sends a fragment of the text, of any length. @param {string} text */
  send(text) {
    this.raiseRefusal();
    this.command({ type: "text", text });
  }

  /** Has the text sent so far spoken without waiting for more; more may follow. */
  flush() {
    this.raiseRefusal();
    this.command({ type: "flush" });
  }

  /** Ends the text. */
  end() {
    this.raiseRefusal();
    this.textEnded = true;
    this.command({ type: "end" });
  }

  /** Reports the playback position, in samples as `pts` counts them. @param {number} playedSamples */
  ack(playedSamples) {
    if (!this.over) this.command({ type: "ack", played_samples: playedSamples });
  }

  /**
   * Stops the speech and drops unread events. Resolves to the `interrupted` message with the text spoken up to
   * `playedMs` and the rest; rejects with a VoxgateError. Concurrent calls share one answer.
   *
   * With `holdMs`, at most `limits.hold_max_ms`, the utterance is kept for so long, and `continueSpeech` has it go on. Only
   * audio behind the answer's `played_ms` is dropped then; without `hold_ms` in the answer, the utterance is over.
   * @param {number} [playedMs]
   * @param {{holdMs?: number}} [options]
   * @returns {Promise<Interrupted>}
   */
  interrupt(playedMs, { holdMs } = {}) {
    if (this.error) return Promise.reject(this.error);
    if (this.done?.type === "interrupted") return Promise.resolve(this.done);
    if (holdMs === undefined) {
      this.queue.length = 0;
      this.finish(null);
    } else {
      this.setAside();
    }
    if (this.interrupting && this.pendingHold !== holdMs) {
      const again = () => this.interrupt(playedMs, { holdMs });
      return this.interrupting.then(again, again);
    }
    this.interrupting ??= new Promise((resolve, reject) => {
      const late = () => this.answer?.reject(new VoxgateError("timeout", "the gateway did not answer the interrupt"));
      const timer = setTimeout(late, INTERRUPT_TIMEOUT_MS);
      const settle = (how) => (value) => ((this.interrupting = this.answer = null), clearTimeout(timer), how(value));
      this.answer = { resolve: settle(resolve), reject: settle(reject) };
      this.pendingHold = holdMs;
      const played = playedMs === undefined ? {} : { played_ms: Math.round(playedMs) };
      this.command({ type: "interrupt", ...played, ...(holdMs === undefined ? {} : { hold_ms: holdMs }) });
    });
    return this.interrupting;
  }

  /**
   * Has the held utterance go on from what was heard: the audio that was not follows, then the rest. Of its first message,
   * plain samples come without those that were heard; of others, `skip_samples` are to be dropped once they are decoded.
   * Resolves to the `continued` message; rejects with a VoxgateError: `utterance_ended` when it is not kept any more,
   * `not_held`, or the error that ended it.
   * @returns {Promise<Continued>}
   */
  continueSpeech() {
    if (this.error) return Promise.reject(this.error);
    if (!this.held) return Promise.reject(new VoxgateError(this.over ? "utterance_ended" : "not_held", "the utterance must be held"));
    if (this.continuing) return this.continuing.promise;
    const pending = /** @type {any} */ ({});
    pending.promise = new Promise((resolve, reject) => {
      const late = () => pending.reject(new VoxgateError("timeout", "the gateway did not continue the utterance"));
      const timer = setTimeout(late, INTERRUPT_TIMEOUT_MS);
      const settle = (how) => (value) => ((this.continuing = null), clearTimeout(timer), how(value));
      [pending.resolve, pending.reject] = [settle(resolve), settle(reject)];
    });
    this.continuing = pending;
    this.command({ type: "continue" });
    return pending.promise;
  }

  /**
   * Takes back all text but its first `characters` characters that was not spoken yet; resolves to the `retracted` message. More
   * text may follow at once, also after `end()`, which has to be called again. Rejects with a VoxgateError.
   * @param {number} [characters] counted as the option `offsets` says
   * @returns {Promise<Retracted>}
   */
  async retract(characters = 0) {
    if (this.error) throw this.error;
    if (this.ended) throw new VoxgateError("utterance_ended", "the utterance has ended");
    this.raiseRefusal();
    this.textEnded = false;
    return new Promise((resolve, reject) => {
      const entry = { resolve: (value) => (clearTimeout(timer), resolve(value)), reject: (error) => (clearTimeout(timer), reject(error)) };
      const timer = setTimeout(() => reject(new VoxgateError("timeout", "the gateway did not answer the retraction")), RETRACT_TIMEOUT_MS);
      this.retractions.push(entry);
      this.command({ type: "retract", characters });
    });
  }

  /**
   * All events in order; throws the VoxgateError that ended the utterance. Leaving the loop stops the speech.
   * @returns {AsyncGenerator<SpeechEvent, void, void>}
   */
  async *[Symbol.asyncIterator]() {
    try {
      for (;;) {
        for (let next = this.queue.shift(); next; next = this.queue.shift()) yield next;
        if (this.error) throw this.error;
        if (this.ended) return;
        await new Promise((resolve) => (this.wake = resolve));
      }
    } finally {
      if (!this.over && !this.answer) this.command({ type: "interrupt" });
    }
  }

  command(message) {
    this.transmit({ ...message, utterance: this.id, id: `${message.type}-${++this.calls}` });
  }

  raiseRefusal() {
    const refusal = this.refusal;
    this.refusal = null;
    if (refusal) throw refusal;
  }

  /**
   * Whether the utterance goes on when a call of this kind is refused: its caller still gets the error.
   * @param {string} call
   */
  survives(call) {
    if (call === "ack" || call === "continue" || (call === "interrupt" && !this.ended)) return true;
    return (call === "text" || call === "flush") && !this.textEnded;
  }

  receive(message) {
    if (this.ended && message.type !== "interrupted" && message.type !== "error") return;
    if (message.type === "error" && message.id?.startsWith("retract-") && REFUSES_MESSAGE.has(message.code)) {
      this.retractions.shift()?.reject(new VoxgateError(message.code, message.message, message));
      return;
    }
    if (message.type === "retracted") this.retractions.shift()?.resolve(message);
    const problem = message.type === "audio" ? this.gap(message) : null;
    if (problem) return this.fail(new VoxgateError("protocol_violation", problem));
    if (message.type === "audio") message = this.unheard(message);
    if (message.type === "interrupted" && message.hold_ms !== undefined) return this.takeHold(message);
    if (message.type === "continued") return this.takeContinued(message);
    if (message.type === "error" && this.refusesHold(message)) return undefined;
    if (message.type === "error" && MESSAGE_REFUSED.has(message.code) && message.id !== undefined) {
      const call = message.id.split("-")[0];
      if (this.survives(call)) {
        if (call === "text" || call === "flush") this.refusal = new VoxgateError(message.code, message.message, message);
        message = { ...message, type: "warning" };
      }
    }
    if (message.type === "error" && NON_FATAL.has(message.code) && !this.answer) message = { ...message, type: "warning" };
    if (message.type === "started") [this.number, this.format] = [message.number, message.format];
    if (message.type === "error") {
      this.over = !MESSAGE_REFUSED.has(message.code);
      return this.fail(new VoxgateError(message.code, message.message, message));
    }
    const short = message.type === "done" ? this.incomplete(message) : null;
    if (short) return this.fail(new VoxgateError("protocol_violation", short));
    if (this.queue.length === MAX_UNREAD) {
      this.command({ type: "interrupt" });
      return this.fail(new VoxgateError("slow_consumer", `more than ${MAX_UNREAD} events were not read`));
    }
    const unread = this.aside !== null && (message.type === "audio" || message.type === "done");
    if (unread && !this.held) this.aside?.push(message);
    else if (!unread && !this.ended) this.queue.push(message);
    if (message.type === "done" || message.type === "interrupted") {
      this.done = message;
      this.over = true;
      if (unread) return undefined;
      this.endHold();
      this.answer?.resolve(message);
      return this.finish(null);
    }
    return this.wake();
  }

  push(event) {
    this.queue.push(event);
    this.wake();
  }

  // Holds

  // Audio that was not read is put aside: it is dropped once the utterance is held.
  setAside() {
    if (this.aside) return;
    const isAudio = (event) => event.type === "audio" || event.type === "done";
    this.aside = this.queue.filter(isAudio);
    this.queue = this.queue.filter((event) => !isAudio(event));
    this.ended = false; // of a done utterance whose audio is still played
  }

  takeHold(message) {
    const position = Math.floor((message.played_ms * (this.format.sample_rate ?? 0)) / 1000) + (this.format.pre_skip ?? 0);
    const heard = (this.aside ?? []).filter((event) => event.type === "audio" && event.pts < position);
    if (!this.ended) this.queue = [...heard, ...this.queue, message];
    this.endHold();
    [this.held, this.aside, this.done, this.over] = [message, [], null, false];
    this.holdTimer = setTimeout(() => this.holdOver(), message.hold_ms);
    this.holdTimer.unref?.();
    this.answer?.resolve(message);
    this.wake();
  }

  takeContinued(message) {
    if (message.seq > this.nextSeq) return this.fail(new VoxgateError("protocol_violation", `continued behind message ${this.nextSeq}`));
    if (message.seq < this.nextSeq) [this.nextSeq, this.rewound, this.lastReceived] = [message.seq, true, false];
    this.skip = message.skip_samples;
    this.endHold();
    this.queue.push(message);
    this.continuing?.resolve(message);
    return this.wake();
  }

  // The gateway has let it go, unless it was asked to go on.
  holdOver() {
    if (!this.continuing) return this.letGo();
    this.holdTimer = setTimeout(() => this.holdOver(), HOLD_SLACK_MS);
    return undefined;
  }

  // The held utterance is over.
  letGo() {
    [this.done, this.over] = [this.held, true];
    this.endHold();
    this.continuing?.reject(new VoxgateError("utterance_ended", "the utterance is not held any more"));
    this.finish(null);
  }

  endHold() {
    clearTimeout(this.holdTimer);
    this.held = this.aside = this.holdTimer = null;
  }

  // Settles what waits for the answer that an error is. Returns whether that is all it does.
  refusesHold(message) {
    const call = (message.id ?? "").split("-")[0];
    const error = new VoxgateError(message.code, message.message, message);
    if (call === "continue" && this.continuing) {
      const over = this.held !== null && NON_FATAL.has(message.code);
      this.continuing.reject(error);
      if (over) this.letGo();
      return over;
    }
    if (call !== "interrupt" || this.ended || !this.aside) return false;
    this.answer?.reject(error);
    if (!this.held) {
      this.queue = [...this.aside, ...this.queue];
      this.aside = null;
      if (this.done) this.finish(null);
    }
    return NON_FATAL.has(message.code) || MESSAGE_REFUSED.has(message.code);
  }

  unheard(audio) {
    const skip = Math.min(this.skip, audio.samples);
    this.skip = 0;
    if (!skip) return audio;
    const bytes = SAMPLE_BYTES[this.format.codec];
    if (!bytes) return { ...audio, skip_samples: skip };
    return { ...audio, pts: audio.pts + skip, samples: audio.samples - skip, payload: audio.payload.subarray(bytes * skip) };
  }

  gap(audio) {
    const bytes = SAMPLE_BYTES[this.format.codec];
    const follows = audio.pts === this.nextPts || (this.rewound && audio.pts < this.nextPts);
    if (audio.seq !== this.nextSeq || !follows) return `audio is missing before message ${audio.seq}`;
    if (bytes && audio.payload.length !== bytes * audio.samples) return `message ${audio.seq} has the wrong length`;
    this.nextSeq++;
    this.nextPts = audio.pts + audio.samples;
    this.rewound = false;
    this.lastReceived = audio.last;
    return null;
  }

  incomplete(done) {
    const received = this.nextPts - (this.format.pre_skip ?? 0);
    // Coded packets have a fixed length: the last one may end with padding.
    const complete = SAMPLE_BYTES[this.format.codec] ? received === done.samples : received >= done.samples;
    return complete && this.lastReceived ? null : `done after ${received} of ${done.samples} samples`;
  }

  fail(error) {
    this.endHold();
    this.answer?.reject(error);
    this.continuing?.reject(error);
    this.finish(error);
  }

  finish(error) {
    if (!this.ended) this.error = error;
    this.ended = true;
    const over = error ?? new VoxgateError("utterance_ended", "the utterance has ended");
    for (const each of this.retractions.splice(0)) each.reject(over);
    this.wake();
  }
}
