// One utterance at a time, between the page, the gateway and the player. It uses SpeechSocket rather than the Session and
// Utterance of voxgate.js: an utterance here outlives its connection, since complete audio is played to its end.

import { Decoder, Player, Recording } from "./playback.js";

const ACK_MS = 250;
const INTERRUPT_TIMEOUT_MS = 2000;
const AFTER_END_CODES = new Set(["unknown_utterance", "utterance_ended"]);
const PAUSE_REFUSED_CODES = new Set(["bad_message", "rate_limited", "not_held"]); // the utterance goes on as it was
let count = 0;

// `on` has changed(), finished(), interrupted(message, utterance, pauseIsOver), queued(message), error(message), words(list)
// and failed(utterance, played_ms), when an utterance ended in its middle.
export class Speech {
  constructor(connection, on) {
    this.connection = connection;
    this.on = on;
    this.player = new Player((event) => this.playback(event));
    this.utterance = null; // the one being written or played
    this.holdTimer = null; // until the gateway lets a paused utterance go, or has to answer `continue`
    this.opusRate = 48000; // what the browser decodes Opus to; corrected by the first packet
  }

  // Opens the audio output ahead of time, so that the first utterance does not wait for it.
  prepare({ codec, sample_rate }) {
    this.player.open(codec === "opus" ? this.opusRate : sample_rate);
  }

  // Starts an utterance; there must be none, see `silence`. `choices` are fields of the `start` message.
  begin({ choices, since, start }) {
    const id = `page-${++count}`;
    this.prepare(choices.format);
    this.player.unlock();
    this.player.begin();
    this.utterance = {
      id,
      since, // performance.now() of the first key or of the click
      start, // its position in the text area
      text: "",
      ended: false, // no more text follows
      done: null,
      number: null,
      bytes: 0,
      samples: 0,
      nextSeq: 0,
      firstByte: null,
      firstAudio: null,
      acked: performance.now(),
      interrupting: false,
      paused: false, // until the gateway has continued it
      continuing: false, // the gateway was asked to
      held: null, // its answer to the pause
      heldUntil: 0, // performance.now() at which the pause is over
      repeatedTo: 0, // audio messages before this one are sent again after a pause
      recording: new Recording(),
      visemes: [], // mouth shapes, with the times from which they hold
      queued: 0, // position in the queue; 0 with a slot
      firstByteAt: null,
    };
    this.connection.send({ type: "start", utterance: id, ...choices, words: true });
    this.on.changed();
  }

  write(text) {
    this.utterance.text += text;
    this.player.text();
    this.connection.send({ type: "text", utterance: this.utterance.id, text });
  }

  flush() {
    if (!this.writable) return;
    this.player.text();
    this.connection.send({ type: "flush", utterance: this.utterance.id });
  }

  end() {
    if (!this.writable) return;
    this.utterance.ended = true;
    this.player.text();
    this.connection.send({ type: "end", utterance: this.utterance.id });
  }

  // Stops playback at once; `on.interrupted` follows with the spoken and the unspoken text.
  interrupt() {
    const current = this.utterance;
    if (!current || current.interrupting) return;
    const played_ms = this.player.played_ms;
    this.player.stop();
    clearTimeout(this.holdTimer);
    current.interrupting = true;
    current.paused = false;
    if (!this.connection.open) return this.lost(); // no answer will come
    this.connection.send({ type: "interrupt", utterance: current.id, played_ms });
  }

  // Pauses playback at once, for `hold_ms` at most; then `on.interrupted` follows. What is buffered is kept, so the audio
  // messages that the gateway sends again are not needed, and a decoder of Opus goes on without a seam.
  pause(hold_ms) {
    const current = this.utterance;
    if (!current?.format || current.paused || current.interrupting || !this.connection.open) return;
    const { played_ms } = this.player;
    this.player.pause();
    current.paused = true;
    this.connection.send({ type: "interrupt", utterance: current.id, id: `pause-${current.id}`, played_ms, hold_ms });
    this.on.changed();
  }

  // Goes on with a paused utterance once the gateway has answered.
  resume() {
    const current = this.utterance;
    if (!current?.paused || current.continuing) return;
    current.continuing = true;
    this.endHoldAfter(INTERRUPT_TIMEOUT_MS);
    // An id that begins so tells SpeechSocket what an error refuses.
    this.connection.send({ type: "continue", utterance: current.id, id: `continue-${current.id}` });
  }

  // Interrupts the utterance and waits until it has ended.
  async silence() {
    const began = performance.now();
    this.interrupt();
    while (this.utterance && performance.now() - began < INTERRUPT_TIMEOUT_MS) {
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    this.drop();
  }

  get writable() {
    return this.utterance !== null && !this.utterance.ended && !this.utterance.interrupting;
  }

  // From the gateway

  control(message) {
    const current = this.utterance;
    if (!current || message.utterance !== current.id) {
      if (message.type === "error" && !message.utterance) this.on.error(message);
      return;
    }
    switch (message.type) {
      case "queued":
        current.queued = message.position;
        this.on.queued(message);
        break;
      case "started":
        current.queued = 0;
        current.number = message.number;
        current.format = message.format;
        current.decoder = new Decoder(
          message.format,
          (samples, rate) => this.decoded(current, samples, rate),
          (error) => this.fail({ message: `Audio could not be decoded: ${error.message}` }),
        );
        this.on.changed();
        break;
      case "words":
        this.on.words(message.words);
        break;
      case "visemes":
        current.visemes.push(...message.visemes);
        break;
      case "done":
        if (current.done) break; // sent again after a pause
        current.done = message;
        current.ended = true;
        if (current.interrupting) break;
        // Rejected when an interrupt closes the decoder. Errors of decoding are reported by the decoder's callback.
        current.decoder.finish(message.samples).then(
          () => this.player.end(),
          () => {},
        );
        break;
      case "interrupted":
        if (message.hold_ms === undefined) this.close(message);
        else if (!current.interrupting) this.hold(message);
        break;
      case "continued":
        if (!current.interrupting) this.continued();
        break;
      case "warning":
        this.on.error(message);
        break;
      case "error":
        if (message.code === "text_too_long") this.on.error(message);
        else if (AFTER_END_CODES.has(message.code) && current.paused) this.endHold();
        else if (/^(pause|continue)-/.test(message.id) && PAUSE_REFUSED_CODES.has(message.code)) this.pauseRefused(message);
        else if (current.interrupting) this.close({ text_spoken: current.text, text_remaining: "" });
        else this.fail(message);
        break;
    }
  }

  audio(packet) {
    const current = this.utterance;
    if (!current || packet.number !== current.number || current.interrupting) return;
    if (packet.seq < current.repeatedTo) return;
    if (packet.seq !== current.nextSeq || packet.pts !== current.samples) {
      this.fail({ message: `Audio is missing: expected message ${current.nextSeq}, got ${packet.seq}.` });
      return;
    }
    current.nextSeq++;
    current.firstByteAt ??= performance.now();
    current.lastByteAt = performance.now();
    current.firstByte ??= current.firstByteAt - current.since;
    current.bytes += packet.payload.length;
    current.samples += packet.samples;
    current.decoder.decode(packet);
  }

  lost() {
    const current = this.utterance;
    if (!current) return;
    if (!current.done) this.fail({ message: "The connection was lost during the speech." });
    else if (current.interrupting || current.paused) this.close(current.held ?? { text_spoken: current.text, text_remaining: "" });
    // Complete audio is played to its end: a gateway that shuts down closes the connection once all of it was sent.
  }

  // Pauses

  hold(message) {
    Object.assign(this.utterance, { held: message, heldUntil: performance.now() + message.hold_ms });
    if (!this.utterance.continuing) this.endHoldAfter(message.hold_ms);
  }

  continued() {
    const current = this.utterance;
    clearTimeout(this.holdTimer);
    Object.assign(current, { paused: false, continuing: false, held: null, repeatedTo: current.nextSeq });
    if (current.firstByteAt) current.firstByteAt += performance.now() - current.lastByteAt; // the pace is that without pauses
    this.player.resume();
    this.on.changed();
  }

  // The gateway goes on as if it had not been asked to pause or to continue, and so does the page.
  pauseRefused(message) {
    const current = this.utterance;
    this.on.error(message);
    if (current.held) {
      current.continuing = false;
      this.endHoldAfter(current.heldUntil - performance.now());
    } else if (current.paused) this.continued();
    this.on.changed();
  }

  endHoldAfter(ms) {
    clearTimeout(this.holdTimer);
    this.holdTimer = setTimeout(() => this.endHold(), ms);
  }

  // The gateway has let the paused utterance go, if there is one, or does not answer.
  endHold() {
    const current = this.utterance;
    if (!current?.paused) return;
    if (current.continuing) this.connection.send({ type: "interrupt", utterance: current.id });
    this.player.stop();
    this.close(current.held ?? { text_spoken: current.text, text_remaining: "" }, true);
  }

  // From the player

  decoded(utterance, samples, rate) {
    if (utterance.format.codec === "opus") this.opusRate = rate;
    if (utterance !== this.utterance || utterance.interrupting) return;
    utterance.recording.push(samples, rate);
    this.player.push(samples, rate);
  }

  playback(event) {
    const current = this.utterance;
    if (!current) return;
    if (event.type === "audible") current.firstAudio ??= performance.now() - current.since + event.delay_ms;
    if (event.type === "ended" && !current.interrupting) {
      this.ack(current, event);
      this.utterance = null;
      this.last = current;
      this.on.finished(current);
    } else if (current.format && !current.interrupting && !current.paused) {
      const due = performance.now() - current.acked >= ACK_MS || event.type === "dry";
      if (due) this.ack(current, event);
    }
    this.on.changed();
  }

  ack(current, event) {
    current.acked = performance.now();
    const { sample_rate, pre_skip } = current.format;
    const played_samples = Math.round((event.played * sample_rate) / this.player.rate) + pre_skip; // in the units of pts
    if (!current.done) this.connection.send({ type: "ack", utterance: current.id, played_samples });
  }

  close(answer, pauseIsOver = false) {
    const current = this.utterance;
    this.drop();
    this.on.interrupted(answer, current, pauseIsOver);
  }

  fail(message) {
    const current = this.utterance;
    const { played_ms } = this.player;
    this.player.stop();
    // If only one message was refused, the gateway would continue with text missing.
    if (this.utterance && !this.utterance.done) {
      this.connection.send({ type: "interrupt", utterance: this.utterance.id });
    }
    this.drop();
    this.on.error(message);
    if (current) this.on.failed(current, played_ms);
    this.on.changed();
  }

  drop() {
    clearTimeout(this.holdTimer);
    if (!this.utterance) return;
    this.utterance.decoder?.close();
    this.last = this.utterance;
    this.utterance = null;
  }
}
