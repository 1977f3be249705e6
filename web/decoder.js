// Packets in, exact samples out: drops the codec's pre-skip and its padding after the last real sample.

// Whether this browser decodes Opus itself; without it the page asks for 16 bit PCM.
export async function opusIsSupported(rate) {
  if (typeof AudioDecoder === "undefined") return false;
  const config = { codec: "opus", sampleRate: rate, numberOfChannels: 1 };
  return (await AudioDecoder.isConfigSupported(config).catch(() => null))?.supported === true;
}

// `output(samples, rate)` gets Float32Arrays in order. Positions are counted, not taken from timestamps.
export class Decoder {
  constructor(format, output, failed) {
    this.format = format;
    this.output = output;
    this.position = 0; // samples decoded so far, at the decoder's own rate
    this.holdFrom = Infinity; // the last packet's start, at the format's rate: how much of it is real, `done` tells
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

  // All packets are in and `samples` of them are real: let go of what was held back.
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

  // Browsers may decode Opus at 48 kHz whatever was asked for.
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
  for (let i = 0; i < samples.length; i++) samples[i] = view.getInt16(2 * i, true) / 32768;
  return samples;
}
