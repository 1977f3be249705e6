// What a client keeps of its utterances so that another gateway can go on with them (docs/protocol.md, "Another replica").
//
// It sees every message of a session in both directions. What is above it sees no second `started`, no parts of
// checkpoints, and the numbers of the first gateway.

import { AFTER_END, MESSAGE_REFUSED } from "./voxgate_errors.js";

const TEXT_CHARACTERS = 8000; // of text in one message when it is sent again
const PARTS_CHARACTERS = 16_000; // of checkpoint parts in one message
const RESTORE_PAUSE_MS = 250; // least pause before a gateway that had no room for an utterance is asked again
const FIRST_OWN_NUMBER = 2 ** 31; // numbers for utterances that start after a move, which no gateway gives

const codePoints = (text) => [...text].length;
const length = (text, utf16) => (utf16 ? text.length : codePoints(text));
const slice = (text, begin, end, utf16) => (utf16 ? text.slice(begin, end) : [...text].slice(begin, end).join(""));

const PIECES = new Set(["text", "flush", "end", "retract"]); // types of messages that decide how an utterance sounds

/** The utterances of a session that have not ended. */
export class SentUtterances {
  /** @param {(message: any) => void} send sends a message to the present gateway */
  constructor(send) {
    this.send = send;
    /** @type {Map<string, any>} */
    this.active = new Map();
    /** @type {Map<number, any>} utterances by the number that the present gateway gave them */
    this.byNumber = new Map();
    this.defaults = {};
    this.moved = false;
    this.nextNumber = FIRST_OWN_NUMBER;
  }

  /** Whether another gateway can go on with every utterance. */
  get restorable() {
    return [...this.active.values()].every((each) => each.parts.length > 0 || !received(each));
  }

  /** Keeps a message that is sent. @param {any} message */
  sent(message) {
    const { type, utterance } = message;
    if (type === "defaults") {
      const { type: _, id: __, ...options } = message;
      this.defaults = options;
    } else if (type === "start") {
      const now = performance.now();
      for (const [name, each] of this.active) if (each.heldUntil && each.heldUntil < now) this.active.delete(name);
      const start = { ...this.defaults, ...message };
      this.active.set(utterance, {
        start, pieces: [], parts: [], messages: 0, last: false, words: [], visemes: [], started: null, number: 0,
        interrupt: null, repeat: false, refused: false, restoringUntil: 0, timer: 0, heldUntil: 0,
      });
    }
    const entry = this.active.get(utterance);
    if (!entry) return;
    if (PIECES.has(type)) entry.pieces.push(message);
    else if (type === "interrupt") entry.interrupt = message;
  }

  /**
   * Reads a control message; returns what is passed on, null for nothing.
   * @param {any} message
   */
  control(message) {
    if (message.type === "interrupted" && message.hold_ms !== undefined) return this.held(message);
    const entry = this.active.get(message.utterance);
    if (!entry) return message.type === "checkpoint" ? null : message;
    switch (message.type) {
      case "checkpoint":
        entry.parts.push(message.part);
        return null;
      case "started":
        return this.started(entry, message);
      case "words":
        entry.words.push(...message.words.map((word) => ({ start: word.start, end_ms: word.end_ms })));
        return message;
      case "visemes":
        entry.visemes.push(...message.visemes.map((viseme) => viseme.start_ms));
        return message;
      case "retracted":
        retracted(entry, message);
        return message;
      case "done":
        this.repeatInterrupt(entry);
        this.active.delete(message.utterance);
        return message;
      case "interrupted":
        this.active.delete(message.utterance);
        return message;
      case "continued":
        [entry.messages, entry.last] = [message.seq, entry.last && message.seq === entry.messages];
        entry.heldUntil = 0;
        return message;
      case "error":
        return this.failed(entry, message) ? message : null;
    }
    return message;
  }

  // An utterance is held, perhaps one that was done.
  held(message) {
    const { utterance } = message;
    const known = [...this.byNumber.values()].reverse().find((each) => each.start.utterance === utterance);
    const entry = this.active.get(utterance) ?? known;
    if (!entry) return message;
    this.active.set(utterance, entry);
    [entry.interrupt, entry.heldUntil] = [null, performance.now() + message.hold_ms];
    return message;
  }

  started(entry, message) {
    const again = entry.started !== null;
    clearTimeout(entry.timer);
    [entry.restoringUntil, entry.timer] = [0, 0];
    this.byNumber.set(message.number, entry);
    if (!again) entry.number = this.moved ? this.nextNumber++ : message.number;
    entry.started = message;
    return again ? null : { ...message, number: entry.number };
  }

  // Returns whether the error is passed on.
  failed(entry, message) {
    const { code, utterance } = message;
    if (!entry.started && (code === "draining" || (entry.refused && AFTER_END.has(code)))) {
      entry.refused = true; // another gateway will begin it
      return false;
    }
    if (AFTER_END.has(code)) {
      // Of a message that is sent again once a gateway goes on with the utterance.
      if (code === "unknown_utterance" && message.id !== undefined && (entry.restoringUntil || entry.timer)) return false;
      if (entry.heldUntil && message.id?.startsWith("continue-")) this.active.delete(utterance);
      if (message.id?.startsWith("retract-")) this.forget(entry, message.id);
      return !entry.repeat;
    }
    const refusesMessage = message.id !== undefined && MESSAGE_REFUSED.has(code);
    if (!refusesMessage && this.asksAgain(entry, message)) return false;
    if (code === "text_too_long") this.forget(entry, message.id);
    else if (refusesMessage) this.forget(entry, message.id);
    else this.active.delete(utterance);
    return true;
  }

  forget(entry, id) {
    const at = id === undefined ? entry.pieces.length - 1 : entry.pieces.findIndex((piece) => piece.id === id);
    if (at >= 0) entry.pieces.splice(at, 1);
  }

  asksAgain(entry, message) {
    const until = entry.restoringUntil;
    entry.restoringUntil = 0;
    const pause = Math.max(RESTORE_PAUSE_MS, message.retry_after_ms ?? 0);
    if (!until || !message.retryable || performance.now() + pause >= until) return false;
    clearTimeout(entry.timer);
    entry.timer = setTimeout(() => {
      entry.timer = 0;
      if (this.active.get(entry.start.utterance) === entry) for (const each of this.begin(entry, until)) this.send(each);
    }, pause);
    return true;
  }

  repeatInterrupt(entry) {
    if (entry.repeat && entry.interrupt) this.send(entry.interrupt);
    entry.repeat = false;
  }

  /**
   * Counts an audio message, and gives it the number that is known above.
   * @param {any} packet
   */
  audio(packet) {
    const entry = this.byNumber.get(packet.number);
    if (!entry) return packet;
    this.repeatInterrupt(entry);
    entry.messages++;
    entry.last = packet.last;
    return { ...packet, number: entry.number };
  }

  /**
   * Yields what the next gateway needs to go on with every utterance.
   * @param {number} until when a gateway that refuses one is no longer asked again
   */
  *restore(until) {
    this.moved = true;
    this.byNumber.clear();
    for (const [name, entry] of this.active) {
      if (entry.heldUntil) this.active.delete(name); // the next gateway does not have it
      else yield* this.begin(entry, until);
    }
    if (Object.keys(this.defaults).length) yield { type: "defaults", id: "defaults", ...this.defaults };
  }

  *begin(entry, until) {
    clearTimeout(entry.timer);
    [entry.restoringUntil, entry.timer, entry.repeat, entry.refused] = [until, 0, true, false];
    const { start, started, pieces, parts } = entry;
    const { utterance } = start;
    const chosen = started && { voice: started.voice, language: started.language, seed: started.seed };
    if (!started || !(parts.length || received(entry))) {
      yield { ...start, ...chosen };
    } else {
      const batches = inBatches(parts);
      yield {
        ...start,
        ...chosen,
        type: "restore",
        checkpoint: batches[0],
        received: {
          messages: entry.messages,
          last: entry.last,
          words: entry.words.length,
          words_end_ms: entry.words.at(-1)?.end_ms ?? 0,
          visemes: entry.visemes.length,
        },
        characters: pieces.reduce((sum, piece) => sum + codePoints(piece.text ?? ""), 0),
      };
      for (const batch of batches.slice(1)) yield { type: "checkpoint", utterance, parts: batch };
    }
    yield* texts(utterance, pieces);
  }
}

// Whether something of the utterance was received: otherwise it can begin again.
const received = (entry) => entry.messages > 0 || entry.words.length > 0 || entry.visemes.length > 0;

// Text between flushes is joined, and divided between code points.
function* texts(utterance, pieces) {
  let waiting = "";
  const written = function* () {
    const characters = [...waiting];
    for (let at = 0; at < characters.length; at += TEXT_CHARACTERS) {
      yield { type: "text", utterance, id: "text-0", text: characters.slice(at, at + TEXT_CHARACTERS).join("") };
    }
    waiting = "";
  };
  let ended = false;
  for (const piece of pieces) {
    if (piece.type === "text") {
      waiting += piece.text;
      continue;
    }
    yield* written();
    if (piece.type === "end") ended = true;
    else if (piece.type === "flush") yield { type: "flush", utterance, id: "flush-0" };
    else if (piece.type === "retract") {
      // What was received may include what is spoken at the end of the text.
      if (ended) yield { type: "end", utterance, id: "end-0" };
      ended = false;
      yield piece;
    }
  }
  yield* written();
  if (ended) yield { type: "end", utterance, id: "end-0" };
}

// Keeps the text that the answer to the first retraction leaves, divided where the answer says; parts so far are void.
function retracted(entry, { characters, void_from: voidFrom, flush_at: flushAt = 0, audio_ms: audioMs, checkpoint = [] }) {
  const utf16 = entry.start.offsets === "utf16";
  entry.parts = [...checkpoint];
  entry.words = entry.words
    .filter(({ start }) => start < voidFrom)
    .map(({ start, end_ms }) => ({ start, end_ms: Math.min(end_ms, audioMs ?? Infinity) }));
  if (audioMs !== undefined) entry.visemes = entry.visemes.filter((start) => start < audioMs);
  const number = entry.pieces.findIndex((piece) => piece.type === "retract");
  if (number < 0) return;
  const kept = [];
  let at = 0;
  for (const piece of entry.pieces.slice(0, number)) {
    if (piece.type === "flush" && at <= characters) kept.push(piece);
    if (piece.type !== "text") continue;
    const text = slice(piece.text, 0, Math.max(0, characters - at), utf16);
    const divided = Math.max(0, flushAt - at);
    const [before, behind] = [slice(text, 0, divided, utf16), slice(text, divided, undefined, utf16)];
    if (before) kept.push({ ...piece, text: before });
    if (before && at + length(before, utf16) === flushAt) kept.push({ ...piece, type: "flush" });
    if (behind) kept.push({ ...piece, text: behind });
    at += length(piece.text, utf16);
  }
  entry.pieces = [...kept, ...entry.pieces.slice(number + 1)];
}

function inBatches(parts) {
  /** @type {string[][]} */
  const batches = [[]];
  let size = 0;
  for (const part of parts) {
    if (size && size + part.length > PARTS_CHARACTERS) {
      batches.push([]);
      size = 0;
    }
    batches[batches.length - 1].push(part);
    size += part.length;
  }
  return batches;
}
