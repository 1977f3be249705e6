// One utterance of a session: its text goes out while its events come in, it is held and continued, and its text taken back.

import { ReceivedAudio } from "./voxgate_audio.js";
import { MESSAGE_REFUSED, NON_FATAL, REFUSES_MESSAGE, VoxgateError } from "./voxgate_errors.js";

const ANSWER_TIMEOUT_MS = 10_000;
const HOLD_SLACK_MS = 1000; // between looks whether a hold that is over was ended by `continue`, whose answer is under way
const MAX_UNREAD = 4096; // events of one utterance (5 minutes of default packets); reading a WebSocket cannot be paused

/** @typedef {import("./voxgate_audio.js").Audio} Audio */
/** @typedef {import("./voxgate_audio.js").AudioFormat} AudioFormat */

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
 * @template T
 * @typedef {{promise: Promise<T>, resolve(message: T): void, reject(error: VoxgateError): void}} Answer
 */

/**
 * An answer that is waited for, which rejects with `timeout`. `settled` is called when it is not any more.
 * @param {string} call
 * @param {() => void} [settled]
 * @returns {Answer<any>}
 */
function answerTo(call, settled) {
  const answer = /** @type {any} */ ({});
  answer.promise = new Promise((resolve, reject) => {
    const late = () => answer.reject(new VoxgateError("timeout", `the gateway did not answer ${call}`));
    const timer = setTimeout(late, ANSWER_TIMEOUT_MS);
    const settle = (how) => (value) => (settled?.(), clearTimeout(timer), how(value));
    [answer.resolve, answer.reject] = [settle(resolve), settle(reject)];
  });
  return answer;
}

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
    this.audio = new ReceivedAudio();
    /** @type {SpeechEvent[]} */
    this.queue = [];
    this.ended = false;
    /** @type {VoxgateError|null} */
    this.error = null;
    /** @type {(value?: unknown) => void} */
    this.wake = () => {};
    this.reading = false;
    /** @type {Answer<Interrupted>|null} to an interrupt */
    this.answer = null;
    this.calls = 0;
    this.textEnded = false;
    /** @type {VoxgateError|null} refusal of an earlier call, raised by the next one about the text */
    this.refusal = null;
    /** @type {number|undefined} `hold_ms` of the pending interrupt */
    this.pendingHold = undefined;
    /** @type {Interrupted|null} the answer while it is held */
    this.held = null;
    /** @type {SpeechEvent[]|null} unread audio until it is held, nothing afterwards */
    this.aside = null;
    /** @type {any} */
    this.holdTimer = null;
    /** @type {Answer<Continued>|null} */
    this.continuing = null;
    /** @type {Answer<Retracted>[]} to retractions without an answer, in order */
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
  async interrupt(playedMs, { holdMs } = {}) {
    if (this.error) throw this.error;
    if (this.done?.type === "interrupted") return this.done;
    if (holdMs === undefined) {
      this.queue.length = 0;
      this.finish(null);
    } else {
      this.setAside();
    }
    if (this.answer && this.pendingHold !== holdMs) {
      const again = () => this.interrupt(playedMs, { holdMs });
      return this.answer.promise.then(again, again);
    }
    if (!this.answer) {
      const played = playedMs === undefined ? {} : { played_ms: Math.round(playedMs) };
      this.command({ type: "interrupt", ...played, ...(holdMs === undefined ? {} : { hold_ms: holdMs }) });
      this.answer = answerTo("the interrupt", () => (this.answer = null));
      this.pendingHold = holdMs;
    }
    return this.answer.promise;
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
    if (!this.continuing) {
      this.command({ type: "continue" });
      this.continuing = answerTo("`continue`", () => (this.continuing = null));
    }
    return this.continuing.promise;
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
    this.command({ type: "retract", characters });
    const answer = answerTo("the retraction");
    this.retractions.push(answer);
    return answer.promise;
  }

  /**
   * All events in order; throws the VoxgateError that ended the utterance, and `already_reading` while another loop
   * iterates. Leaving the loop stops the speech.
   * @returns {AsyncGenerator<SpeechEvent, void, void>}
   */
  async *[Symbol.asyncIterator]() {
    if (this.reading) throw new VoxgateError("already_reading", "one loop at a time may iterate over an utterance");
    this.reading = true;
    try {
      for (;;) {
        for (let next = this.queue.shift(); next; next = this.queue.shift()) yield next;
        if (this.error) throw this.error;
        if (this.ended) return;
        await new Promise((resolve) => (this.wake = resolve));
      }
    } finally {
      this.reading = false;
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
    const problem = message.type === "audio" ? this.audio.accept(message, this.format) : null;
    if (problem) return this.fail(new VoxgateError("protocol_violation", problem));
    if (message.type === "audio") message = this.audio.unheard(message, this.format);
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
    const short = message.type === "done" ? this.audio.incomplete(message, this.format) : null;
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
    if (!this.audio.continueAt(message)) {
      return this.fail(new VoxgateError("protocol_violation", `continued behind message ${this.audio.nextSeq}`));
    }
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
