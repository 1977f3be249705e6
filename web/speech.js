// One utterance at a time, from text to sound: the page says what to say, this talks to the gateway and the player.

import { Decoder } from "./decoder.js";
import { Player } from "./player.js";
import { Recording } from "./recording.js";

const ACK_MS = 250;
const ANSWER_MS = 2000; // longest wait for the answer to an interrupt
let count = 0;

// `on` has changed(), finished(), interrupted(message, utterance), queued(message), trouble(message), words(list) and
// broken(utterance, played_ms), when an utterance ended in the middle.
export class Speech {
  constructor(connection, on) {
    this.connection = connection;
    this.on = on;
    this.player = new Player((event) => this.playback(event));
    this.utterance = null; // the one being written or heard
    this.opusRate = 48000; // what the browser decodes Opus to; corrected by the first packet
  }

  // Builds the way to the loudspeaker ahead of time, so that the first utterance does not wait for it.
  prepare({ codec, sample_rate }) {
    this.player.open(codec === "opus" ? this.opusRate : sample_rate);
  }

  // Only when silent; see `silence`. `choices` are fields of the `start` message.
  begin({ choices, since, start }) {
    const id = `page-${++count}`;
    this.prepare(choices.format);
    this.player.unlock();
    this.player.begin();
    this.utterance = {
      id,
      since, // performance.now() of the first key or of the button
      start, // where in the text area it begins
      text: "",
      ended: false, // no more text follows
      done: null,
      number: null,
      bytes: 0,
      samples: 0,
      nextSeq: 0,
      firstByte: null,
      firstSound: null,
      acked: performance.now(),
      interrupting: false,
      recording: new Recording(),
      queued: 0, // the last position in the queue; 0 while it holds a slot
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

  // Silence now; `on.interrupted` follows with what was heard and what was not.
  interrupt() {
    const current = this.utterance;
    if (!current || current.interrupting) return;
    const played_ms = this.player.played_ms;
    this.player.stop();
    current.interrupting = true;
    if (!this.connection.open) return this.lost(); // nobody is there to answer
    this.connection.send({ type: "interrupt", utterance: current.id, played_ms });
  }

  // Interrupts what is being said and waits until it is over.
  async silence() {
    const began = performance.now();
    this.interrupt();
    while (this.utterance && performance.now() - began < ANSWER_MS) {
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
      if (message.type === "error" && !message.utterance) this.on.trouble(message);
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
      case "done":
        current.done = message;
        current.ended = true;
        if (current.interrupting) break;
        // An interrupt meanwhile closes the decoder, which rejects this; what cannot be decoded is told by the decoder.
        current.decoder.finish(message.samples).then(
          () => this.player.end(),
          () => {},
        );
        break;
      case "interrupted":
        this.close(message);
        break;
      case "warning":
        this.on.trouble(message);
        break;
      case "error":
        if (message.code === "text_too_long") this.on.trouble(message);
        else if (current.interrupting) this.close({ text_spoken: current.text, text_remaining: "" });
        else this.fail(message);
        break;
    }
  }

  audio(packet) {
    const current = this.utterance;
    if (!current || packet.number !== current.number || current.interrupting) return;
    if (packet.seq !== current.nextSeq || packet.pts !== current.samples) {
      this.fail({ message: `Audio is missing: message ${packet.seq} came instead of ${current.nextSeq}.` });
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
    if (!current.done) this.fail({ message: "The connection was lost in the middle of the speech." });
    else if (current.interrupting) this.close({ text_spoken: current.text, text_remaining: "" });
    // What is complete is heard to its end: a gateway that shuts down closes when all of it was sent.
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
    if (event.type === "heard") current.firstSound ??= performance.now() - current.since + event.delay_ms;
    if (event.type === "ended" && !current.interrupting) {
      this.ack(current, event);
      this.utterance = null;
      this.last = current;
      this.on.finished(current);
    } else if (current.format && !current.interrupting) {
      const due = performance.now() - current.acked >= ACK_MS || event.type === "dry";
      if (due) this.ack(current, event);
    }
    this.on.changed();
  }

  ack(current, event) {
    current.acked = performance.now();
    const { sample_rate, pre_skip } = current.format;
    const played_samples = Math.round((event.played * sample_rate) / this.player.rate) + pre_skip; // as pts counts
    if (!current.done) this.connection.send({ type: "ack", utterance: current.id, played_samples });
  }

  close(answer) {
    const current = this.utterance;
    this.drop();
    this.on.interrupted(answer, current);
  }

  fail(message) {
    const current = this.utterance;
    const { played_ms } = this.player;
    this.player.stop();
    // Where only a message was refused the gateway would go on, with a hole in the text.
    if (this.utterance && !this.utterance.done) {
      this.connection.send({ type: "interrupt", utterance: this.utterance.id });
    }
    this.drop();
    this.on.trouble(message);
    if (current) this.on.broken(current, played_ms);
    this.on.changed();
  }

  drop() {
    if (!this.utterance) return;
    this.utterance.decoder?.close();
    this.last = this.utterance;
    this.utterance = null;
  }
}
