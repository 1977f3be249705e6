// Samples to the loudspeaker, one utterance at a time.

const NOTHING = { played: 0, written: 0, underruns: 0, waits: 0, dropped: 0 };

// `on(event)` gets the worklet's reports of the current utterance: heard, progress, dry, ended, stopped.
export class Player {
  constructor(on) {
    this.on = on;
    this.turn = 0;
    this.opening = null; // a promise of { context, node, analyser }
    this.rate = 0;
    this.report = { ...NOTHING };
  }

  // Browsers let sound begin only after the user did something; call this from such a moment.
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
    node.port.onmessage = ({ data }) => this.hear(data, context);
    node.port.postMessage({ type: "begin", turn: this.turn });
    this.parts = { context, node, analyser };
    return this.parts;
  }

  hear(data, context) {
    if (data.turn !== this.turn) return;
    this.report = data;
    this.on({ ...data, delay_ms: 1000 * (context.outputLatency || context.baseLatency || 0) });
  }

  begin() {
    this.turn++;
    this.report = { ...NOTHING };
    this.post({ type: "begin", turn: this.turn });
  }

  push(samples, rate) {
    this.open(rate);
    const copy = samples.slice();
    this.post({ type: "push", samples: copy }, [copy.buffer]);
  }

  // Something was written, or asked to be spoken to its end: tells waiting for text from underruns.
  text() {
    this.post({ type: "text" });
  }

  end() {
    this.post({ type: "end" });
  }

  stop() {
    this.post({ type: "stop" });
  }

  // In order, also while the worklet is still being built.
  post(message, transfer = []) {
    this.opening?.then(({ node }) => node.port.postMessage(message, transfer));
  }

  get played_ms() {
    return this.rate ? Math.round((1000 * this.report.played) / this.rate) : 0;
  }

  // For the eye: how loud each of `bars` bands is, 0 to 1.
  levels(bars) {
    const levels = new Float32Array(bars);
    if (!this.parts) return levels;
    const bins = new Uint8Array(this.parts.analyser.frequencyBinCount);
    this.parts.analyser.getByteFrequencyData(bins);
    const top = Math.min(bins.length, Math.ceil((4000 / (this.rate / 2)) * bins.length)); // speech lives below 4 kHz
    for (let i = 0; i < bars; i++) {
      // Narrow bands where voices have their pitch, wide ones above.
      const from = Math.floor(top * (i / bars) ** 1.6);
      const to = Math.max(from + 1, Math.floor(top * ((i + 1) / bars) ** 1.6));
      levels[i] = Math.max(...bins.subarray(from, to)) / 255;
    }
    return levels;
  }
}
