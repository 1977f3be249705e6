// From packets to the loudspeaker and to a file: decoder, player and recording of one utterance at a time.

const NO_REPORT = { type: "none", played: 0, written: 0, underruns: 0, waits: 0, dropped: 0, at: 0 };
const RUNNING = new Set(["audible", "progress"]); // reports after which playback goes on
const REPORT_S = 0.2; // more than between two reports
const WAV_HEADER_BYTES = 44;
const FULL_SCALE = 32768; // of 16-bit samples

// Whether this browser decodes Opus; otherwise the page requests 16-bit PCM.
export async function opusIsSupported(rate) {
  if (typeof AudioDecoder === "undefined") return false;
  const config = { codec: "opus", sampleRate: rate, numberOfChannels: 1 };
  return (await AudioDecoder.isConfigSupported(config).catch(() => null))?.supported === true;
}

// Decodes packets and drops the codec's pre-skip and the padding after the last sample. `output(samples, rate)` gets
// Float32Arrays in order. Positions are counted, because browsers round timestamps.
export class Decoder {
  constructor(format, output, failed) {
    this.format = format;
    this.output = output;
    this.position = 0; // samples decoded so far, at the decoder's rate
    this.holdFrom = Infinity; // start of the last packet, at the format's rate; `finish` gets its length
    this.held = [];
    this.rate = format.sample_rate;
    this.opus = null;
    if (format.codec === "opus") {
      this.opus = new AudioDecoder({ output: (data) => this.take(data), error: failed });
      this.opus.configure({ codec: "opus", sampleRate: format.sample_rate, numberOfChannels: 1 });
    }
  }

  decode(packet) {
    if (packet.last) this.holdFrom = packet.pts;
    if (packet.payload.length === 0) return;
    if (this.opus) {
      const timestamp = Math.round((1e6 * packet.pts) / this.format.sample_rate);
      this.opus.decode(new EncodedAudioChunk({ type: "key", timestamp, data: packet.payload }));
    } else {
      this.emit(pcmToFloat(packet.payload));
    }
  }

  // Outputs what was held back: the utterance has `samples` samples.
  async finish(samples) {
    if (this.opus?.state === "configured") await this.opus.flush();
    const end = (samples + this.format.pre_skip) * this.scale;
    for (const { at, chunk } of this.held) {
      const length = Math.min(chunk.length, Math.round(end) - at);
      if (length > 0) this.output(chunk.subarray(0, length), this.rate);
    }
    this.close();
  }

  close() {
    this.held = [];
    if (this.opus && this.opus.state !== "closed") this.opus.close();
  }

  // Browsers may decode Opus at 48 kHz, whatever rate was requested.
  get scale() {
    return this.rate / this.format.sample_rate;
  }

  take(data) {
    this.rate = data.sampleRate;
    const chunk = new Float32Array(data.numberOfFrames);
    data.copyTo(chunk, { planeIndex: 0, format: "f32-planar" });
    data.close();
    this.emit(chunk);
  }

  emit(chunk) {
    const at = this.position;
    this.position += chunk.length;
    const skip = Math.min(chunk.length, Math.max(0, Math.round(this.format.pre_skip * this.scale) - at));
    const hold = Math.min(chunk.length, Math.max(skip, Math.round(this.holdFrom * this.scale) - at));
    if (hold > skip) this.output(chunk.subarray(skip, hold), this.rate);
    if (hold < chunk.length) this.held.push({ at: at + hold, chunk: chunk.subarray(hold) });
  }
}

function pcmToFloat(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const samples = new Float32Array(bytes.byteLength / 2);
  for (let i = 0; i < samples.length; i++) samples[i] = view.getInt16(2 * i, true) / FULL_SCALE;
  return samples;
}

// Plays one utterance at a time in an audio worklet. `on(event)` gets the worklet's reports of the current utterance:
// audible, progress, dry, ended, stopped, paused.
export class Player {
  constructor(on) {
    this.on = on;
    this.utterance = 0;
    this.opening = null; // a promise of { context, node, analyser }
    this.rate = 0;
    this.report = { ...NO_REPORT };
  }

  // Browsers allow sound only after an action of the user; call this from such an event.
  unlock() {
    this.opening.then(({ context }) => context.resume());
  }

  open(rate) {
    if (this.rate === rate) return;
    this.opening?.then(({ context }) => context.close());
    this.rate = rate;
    this.opening = this.build(rate);
  }

  async build(rate) {
    const context = new AudioContext({ sampleRate: rate, latencyHint: "interactive" });
    await context.audioWorklet.addModule("worklet.js");
    const node = new AudioWorkletNode(context, "voxgate-playback", { numberOfInputs: 0, outputChannelCount: [1] });
    const analyser = new AnalyserNode(context, { fftSize: 1024, smoothingTimeConstant: 0.6 });
    node.connect(analyser).connect(context.destination);
    node.port.onmessage = ({ data }) => this.receive(data, context);
    node.port.postMessage({ type: "begin", utterance: this.utterance });
    this.parts = { context, node, analyser };
    return this.parts;
  }

  receive(data, context) {
    if (data.utterance !== this.utterance) return;
    this.report = data;
    this.on({ ...data, delay_ms: 1000 * (context.outputLatency || context.baseLatency || 0) });
  }

  begin() {
    this.utterance++;
    this.report = { ...NO_REPORT };
    this.post({ type: "begin", utterance: this.utterance });
  }

  push(samples, rate) {
    this.open(rate);
    const copy = samples.slice();
    this.post({ type: "push", samples: copy }, [copy.buffer]);
  }

  // Text was sent, or its end: distinguishes waiting for text from underruns.
  text() {
    this.post({ type: "text" });
  }

  end() {
    this.post({ type: "end" });
  }

  stop() {
    this.post({ type: "stop" });
  }

  // Keeps what is buffered; `resume` goes on with the sample at which it paused.
  pause() {
    this.post({ type: "pause" });
  }

  resume() {
    this.post({ type: "resume" });
  }

  // Keeps the order, also while the worklet is being loaded.
  post(message, transfer = []) {
    this.opening?.then(({ node }) => node.port.postMessage(message, transfer));
  }

  get played_ms() {
    return this.rate ? Math.round((1000 * this.report.played) / this.rate) : 0;
  }

  // The position that is heard now, by the audio clock between two reports.
  get heard_ms() {
    if (!this.parts || !this.rate) return 0;
    const { context } = this.parts;
    const since = RUNNING.has(this.report.type) ? Math.min(REPORT_S, context.currentTime - this.report.at) : 0;
    const latency = context.outputLatency || context.baseLatency || 0;
    return 1000 * Math.max(0, this.report.played / this.rate + since - latency);
  }

  // The loudness of each of `bars` frequency bands, 0 to 1, for display.
  levels(bars) {
    const levels = new Float32Array(bars);
    if (!this.parts) return levels;
    const bins = new Uint8Array(this.parts.analyser.frequencyBinCount);
    this.parts.analyser.getByteFrequencyData(bins);
    const top = Math.min(bins.length, Math.ceil((4000 / (this.rate / 2)) * bins.length)); // most of speech is below 4 kHz
    for (let i = 0; i < bars; i++) {
      // Narrow bands at the pitch of voices, wider ones above.
      const from = Math.floor(top * (i / bars) ** 1.6);
      const to = Math.max(from + 1, Math.floor(top * ((i + 1) / bars) ** 1.6));
      levels[i] = Math.max(...bins.subarray(from, to)) / 255;
    }
    return levels;
  }
}

// The decoded audio of one utterance, which can be saved as a mono 16-bit WAV file.
export class Recording {
  constructor() {
    this.chunks = [];
    this.rate = 0;
    this.length = 0;
  }

  push(samples, rate) {
    this.chunks.push(samples.slice());
    this.rate = rate;
    this.length += samples.length;
  }

  wav() {
    const data = new ArrayBuffer(WAV_HEADER_BYTES + 2 * this.length);
    const view = new DataView(data);
    const ascii = (at, text) => [...text].forEach((char, i) => view.setUint8(at + i, char.charCodeAt(0)));
    ascii(0, "RIFF");
    view.setUint32(4, data.byteLength - 8, true);
    ascii(8, "WAVEfmt ");
    view.setUint32(16, 16, true);
    view.setUint16(20, 1, true); // PCM
    view.setUint16(22, 1, true); // one channel
    view.setUint32(24, this.rate, true);
    view.setUint32(28, 2 * this.rate, true);
    view.setUint16(32, 2, true);
    view.setUint16(34, 16, true);
    ascii(36, "data");
    view.setUint32(40, 2 * this.length, true);
    let at = WAV_HEADER_BYTES;
    for (const chunk of this.chunks) {
      for (const sample of chunk) {
        view.setInt16(at, Math.max(-FULL_SCALE, Math.min(FULL_SCALE - 1, Math.round(FULL_SCALE * sample))), true);
        at += 2;
      }
    }
    return new Blob([data], { type: "audio/wav" });
  }

  download(name) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(this.wav());
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }
}
