// Writes by itself, in pieces of words and at the pace of a language model.

const TOKEN = /\s*\S{1,5}/g;
const TOKENS_PER_WORD = 1.4; // in English, as language models cut it

export const DEMO =
  "Good evening. These words are written one piece at a time, the way a language model writes them, and you hear " +
  "each of them long before the last one is there. Press Escape, and I will tell you where I stopped.";

// Hands `text` to `write` piece by piece, `pace()` words a second; `ready()` false holds it back. Then calls `ended`.
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
