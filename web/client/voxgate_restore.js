// What a client keeps of its utterances so that another gateway can go on with them (docs/protocol.md, "Another replica").
//
// It sees every message of a session in both directions. What is above it sees no second `started`, no parts of
// checkpoints, and the numbers of the first gateway.

const TEXT_CHARACTERS = 8000; // of text in one message when it is sent again
const PARTS_CHARACTERS = 16_000; // of checkpoint parts in one message
const RESTORE_PAUSE_MS = 250; // least pause before a gateway that had no room for an utterance is asked again
const FIRST_OWN_NUMBER = 2 ** 31; // numbers for utterances that start after a move, which no gateway gives
const AFTER_END_CODES = new Set(["unknown_utterance", "utterance_ended"]);
const MESSAGE_REFUSED_CODES = new Set(["bad_message", "duplicate_utterance", "rate_limited", "not_held"]);

const codePoints = (text) => [...text].length;

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
    return [...this.active.values()].every((each) => !each.started || each.parts.length > 0);
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
        start, pieces: [], ended: false, parts: [], messages: 0, last: false, words: 0, visemes: 0, started: null, number: 0,
        interrupt: null, repeat: false, refused: false, restoringUntil: 0, heldUntil: 0,
      });
    }
    const entry = this.active.get(utterance);
    if (!entry) return;
    if (type === "text") entry.pieces.push({ id: message.id, text: message.text });
    else if (type === "flush") entry.pieces.push({ id: message.id, text: null });
    else if (type === "end") entry.ended = true;
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
        entry.words += message.words.length;
        return message;
      case "visemes":
        entry.visemes += message.visemes.length;
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
    entry.restoringUntil = 0;
    this.byNumber.set(message.number, entry);
    if (!again) entry.number = this.moved ? this.nextNumber++ : message.number;
    entry.started = message;
    return again ? null : { ...message, number: entry.number };
  }

  // Returns whether the error is passed on.
  failed(entry, message) {
    const { code, utterance } = message;
    if (!entry.started && (code === "draining" || (entry.refused && AFTER_END_CODES.has(code)))) {
      entry.refused = true; // another gateway will begin it
      return false;
    }
    if (AFTER_END_CODES.has(code)) {
      if (entry.heldUntil && message.id?.startsWith("continue-")) this.active.delete(utterance);
      return !entry.repeat;
    }
    if (this.asksAgain(entry, message)) return false;
    if (code === "text_too_long") this.forget(entry, message.id);
    else if (MESSAGE_REFUSED_CODES.has(code) && message.id !== undefined) this.forget(entry, message.id);
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
    [entry.restoringUntil, entry.repeat, entry.refused] = [until, true, false];
    const { start, started, pieces, parts } = entry;
    const { utterance } = start;
    if (!started) {
      yield start;
    } else {
      const batches = inBatches(parts);
      yield {
        ...start,
        type: "restore",
        voice: started.voice,
        language: started.language,
        seed: started.seed,
        checkpoint: batches[0],
        received: { messages: entry.messages, last: entry.last, words: entry.words, visemes: entry.visemes },
        characters: pieces.reduce((sum, piece) => sum + codePoints(piece.text ?? ""), 0),
      };
      for (const batch of batches.slice(1)) yield { type: "checkpoint", utterance, parts: batch };
    }
    yield* texts(utterance, pieces);
    if (entry.ended) yield { type: "end", utterance, id: "end-0" };
  }
}

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
  for (const { text } of pieces) {
    if (text !== null) {
      waiting += text;
    } else {
      yield* written();
      yield { type: "flush", utterance, id: "flush-0" };
    }
  }
  yield* written();
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
