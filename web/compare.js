// Speaks one text in every voice in a row.

const PAUSE_MS = 400; // of silence between two voices

// Spoken if there is no other text.
export const SAMPLE = "Good evening. Shall I read you the news, or would you like to know how the weather will be tomorrow?";

export class Comparison {
  // `speak(voice)` begins an utterance in a voice; `shown(voice, number, count)` is called before, and without arguments
  // when the comparison has ended.
  constructor({ speak, shown }) {
    Object.assign(this, { speak, shown, left: [], count: 0, timer: null });
    this.running = false;
  }

  // Starts with the first of `voices`, as /v1/voices lists them.
  start(voices) {
    this.stop();
    if (!voices.length) return;
    Object.assign(this, { left: [...voices], count: voices.length, running: true });
    this.next();
  }

  // The present voice has been played to its end.
  finished() {
    if (this.running) this.timer = setTimeout(() => this.next(), this.left.length ? PAUSE_MS : 0);
  }

  stop() {
    clearTimeout(this.timer);
    if (!this.running) return;
    this.running = false;
    this.shown();
  }

  next() {
    const voice = this.left.shift();
    if (!voice) return this.stop();
    this.shown(voice, this.count - this.left.length, this.count);
    this.speak(voice);
  }
}
