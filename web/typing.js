// Text while it is written: which part of it is due to be spoken, what a change means for text already sent, and a
// writer that types by itself. Nothing here uses the page or the socket.

// People type more slowly than the voice speaks: spoken key by key, words would be torn apart. Text is therefore sent by
// phrases: up to a punctuation mark, or after a few words, fewer for the first phrase.
const MARK = /[.?!,;:—…]["'”’»)\]]*\s+|[。？！，、；：]\s*/gu;
const WORD = /[\p{L}\p{N}]\S*(?=\s)/gu; // complete: followed by white space
const FIRST_WORDS = 2;
const LATER_WORDS = 4;

// The number of characters of `pending`, the text not sent yet, that are to be sent now.
// `first`: nothing is being spoken; `paused`: the user has stopped typing.
export function due(pending, { first, paused }) {
  if (paused || pending.includes("\n")) return pending.length;
  const mark = [...pending.matchAll(MARK)].at(-1);
  const words = pending.match(WORD)?.length ?? 0;
  const enough = words >= (first ? FIRST_WORDS : LATER_WORDS);
  return Math.max(mark ? mark.index + mark[0].length : 0, enough ? pending.search(/\S*$/) : 0);
}

// Compares the text area's `value` with `sent`, the text sent from position `start` on. Returns one of
//   { kind: "none" }
//   { kind: "append", text }   text was added after the sent text
//   { kind: "edit", from }     sent text was changed and has to be spoken again from `from`, the start of a word
export function change(value, start, sent) {
  if (value.slice(0, start + sent.length).endsWith(sent) && value.length >= start + sent.length) {
    const text = value.slice(start + sent.length);
    return text ? { kind: "append", text } : { kind: "none" };
  }
  const now = value.slice(start);
  let same = 0;
  while (same < sent.length && same < now.length && sent[same] === now[same]) same++;
  return { kind: "edit", from: wordStart(value, start + same) };
}

export function wordStart(text, at) {
  while (at > 0 && !/\s/.test(text[at - 1])) at--;
  return at;
}

const TOKEN = /\s*\S{1,5}/g;
const TOKENS_PER_WORD = 1.4; // of language models, in English

export const DEMO =
  "Good evening. These words are written one piece at a time, the way a language model writes them, and you hear " +
  "each of them long before the last one is written. Press Escape to see which of them were spoken.";

// Passes a text to `write` in pieces like a language model's, at `pace()` words per second, while `ready()` is true; then
// calls `ended`.
export class Writer {
  constructor({ pace, ready = () => true, write, ended }) {
    Object.assign(this, { pace, ready, write, ended, timer: null });
  }

  get writing() {
    return this.timer !== null;
  }

  start(text) {
    this.stop();
    const tokens = text.match(TOKEN) ?? [];
    const next = () => {
      this.timer = setTimeout(next, 1000 / (this.pace() * TOKENS_PER_WORD));
      if (!this.ready()) return;
      const token = tokens.shift();
      if (token !== undefined) return this.write(token);
      this.stop();
      this.ended();
    };
    this.timer = setTimeout(next);
  }

  stop() {
    clearTimeout(this.timer);
    this.timer = null;
  }
}
