// Playback on the audio thread from a ring buffer: starts once enough is buffered, buffers again after an underrun, fades
// out when stopped or paused.

const CAPACITY_S = 60;
const START_S = 0.085;
const START_INCREMENT_S = 0.005; // added to the start threshold by each underrun
const MAX_START_S = 0.3;
const MAX_START_WAIT_S = 0.12; // after this, less than the threshold is played too
const FADE_S = 0.01;
const TEXT_LATENCY_S = 0.3; // audio missing within this time after text is not late
const REPORT_S = 0.05;
const AUDIBLE = 0.002; // full scale is 1

class Playback extends AudioWorkletProcessor {
  constructor() {
    super();
    this.ring = new Float32Array(CAPACITY_S * sampleRate);
    this.sinceReport = 0;
    this.reset(0);
    this.port.onmessage = ({ data }) => this[data.type](data);
  }

  reset(utterance) {
    this.utterance = utterance; // a number, to distinguish late reports from those of the next utterance
    this.threshold = START_S * sampleRate;
    this.waits = 0; // interruptions because text was missing; all others are underruns
    this.dry = false;
    this.textAt = currentTime;
    this.written = 0;
    this.played = 0;
    this.underruns = 0;
    this.dropped = 0;
    this.running = false;
    this.startWait = MAX_START_WAIT_S * sampleRate;
    this.ended = false;
    this.audible = false;
    this.fading = null; // samples left of a fade to silence
    this.paused = false;
    this.resumeAt = 0; // position of the pause
    this.rising = 0; // samples left of the fade from silence after it
  }

  begin({ utterance }) {
    this.reset(utterance);
  }

  push({ samples }) {
    if (this.dry) this.explain(currentTime - this.textAt < TEXT_LATENCY_S);
    const free = this.ring.length - (this.written - this.played);
    this.dropped += Math.max(0, samples.length - free);
    for (let i = 0; i < Math.min(samples.length, free); i++) {
      this.ring[(this.written + i) % this.ring.length] = samples[i];
    }
    this.written += Math.min(samples.length, free);
  }

  // Text was sent, or its end.
  text() {
    this.textAt = currentTime;
    if (this.dry) this.explain(true);
  }

  // Counts an interruption: whether text or audio comes first after it tells its cause.
  explain(textWasMissing) {
    this.dry = false;
    if (textWasMissing) {
      this.waits++;
    } else {
      this.underruns++;
      this.threshold = Math.min(this.threshold + START_INCREMENT_S * sampleRate, MAX_START_S * sampleRate);
    }
  }

  end() {
    this.ended = true;
    if (!this.paused && this.written === this.played) this.report("ended");
  }

  stop() {
    this.paused = false;
    this.fading = FADE_S * sampleRate;
  }

  // What is buffered is kept.
  pause() {
    this.paused = true;
    this.dry = false; // the pause is no underrun
    this.resumeAt = this.played;
    if (this.running) this.fading = FADE_S * sampleRate;
    else this.report("paused");
  }

  resume() {
    this.paused = false;
    this.fading = null;
    if (this.running) return; // it had not become silent
    this.rising = FADE_S * sampleRate;
    this.startWait = MAX_START_WAIT_S * sampleRate;
    if (this.ended && this.written === this.played) this.report("ended");
  }

  report(type) {
    const { utterance, played, written, underruns, waits, dropped } = this;
    this.port.postMessage({ type, utterance, played, written, underruns, waits, dropped, at: currentTime });
  }

  process(_, [[output]]) {
    const buffered = this.written - this.played;
    if (!this.running && !this.paused && this.fading === null && buffered > 0) {
      this.startWait -= output.length;
      this.running = this.ended || buffered >= this.threshold || this.startWait <= 0;
    }
    if (this.running) this.render(output);
    this.sinceReport += output.length;
    if (this.sinceReport >= REPORT_S * sampleRate) {
      this.sinceReport = 0;
      if (this.running) this.report("progress");
    }
    return true;
  }

  render(output) {
    for (let i = 0; i < output.length; i++) {
      if (this.played === this.written) return this.runDry();
      let sample = this.ring[this.played % this.ring.length];
      this.played++;
      if (!this.audible && Math.abs(sample) > AUDIBLE) {
        this.audible = true;
        this.report("audible");
      }
      if (this.fading !== null) {
        sample *= Math.max(0, this.fading) / (FADE_S * sampleRate);
        if (--this.fading <= 0) return this.faded();
      }
      if (this.rising > 0) sample *= 1 - this.rising-- / (FADE_S * sampleRate);
      output[i] = sample;
    }
    return undefined;
  }

  faded() {
    this.running = false;
    if (!this.paused) return this.report("stopped");
    this.fading = null;
    this.played = this.resumeAt; // the faded samples are played again, rising: both together have the full level
    return this.report("paused");
  }

  runDry() {
    this.running = false;
    this.startWait = Math.max(MAX_START_WAIT_S * sampleRate, this.threshold);
    if (this.fading !== null) return this.faded();
    if (this.ended) return this.report("ended");
    this.dry = true;
    return this.report("dry");
  }
}

registerProcessor("voxgate-playback", Playback);
