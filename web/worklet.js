// A ring buffer on the audio thread. Starts when enough is there, waits again after a miss, fades out when stopped.

const CAPACITY_S = 60;
const START_S = 0.085;
const GROW_S = 0.005; // each underrun makes the next start a little later
const LONGEST_START_S = 0.3;
const LONGEST_WAIT_S = 0.12; // less than the threshold is played too when nothing follows
const FADE_S = 0.01;
const RECENT_S = 0.3; // text this young is still on its way to becoming sound
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

  reset(turn) {
    this.turn = turn; // counts utterances, so that a late report is not taken for the next one's
    this.threshold = START_S * sampleRate;
    this.waits = 0; // silences for want of text; those that are nobody's but the gateway's are underruns
    this.dry = false;
    this.textAt = currentTime;
    this.written = 0;
    this.played = 0;
    this.underruns = 0;
    this.dropped = 0;
    this.running = false;
    this.patience = LONGEST_WAIT_S * sampleRate;
    this.ended = false;
    this.heard = false;
    this.fading = null;
  }

  begin({ turn }) {
    this.reset(turn);
  }

  push({ samples }) {
    if (this.dry) this.explain(currentTime - this.textAt < RECENT_S);
    const room = this.ring.length - (this.written - this.played);
    this.dropped += Math.max(0, samples.length - room);
    for (let i = 0; i < Math.min(samples.length, room); i++) {
      this.ring[(this.written + i) % this.ring.length] = samples[i];
    }
    this.written += Math.min(samples.length, room);
  }

  // Something was written, or asked to be spoken to its end.
  text() {
    this.textAt = currentTime;
    if (this.dry) this.explain(true);
  }

  // What came first after a silence tells its reason.
  explain(forWantOfText) {
    this.dry = false;
    if (forWantOfText) {
      this.waits++;
    } else {
      this.underruns++;
      this.threshold = Math.min(this.threshold + GROW_S * sampleRate, LONGEST_START_S * sampleRate);
    }
  }

  end() {
    this.ended = true;
    if (this.written === this.played) this.report("ended");
  }

  stop() {
    this.fading = FADE_S * sampleRate;
  }

  report(type) {
    const { turn, played, written, underruns, waits, dropped } = this;
    this.port.postMessage({ type, turn, played, written, underruns, waits, dropped });
  }

  process(_, [[output]]) {
    const waiting = this.written - this.played;
    if (!this.running && this.fading === null && waiting > 0) {
      this.patience -= output.length;
      this.running = this.ended || waiting >= this.threshold || this.patience <= 0;
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
      if (!this.heard && Math.abs(sample) > AUDIBLE) {
        this.heard = true;
        this.report("heard");
      }
      if (this.fading !== null) {
        sample *= Math.max(0, this.fading) / (FADE_S * sampleRate);
        if (--this.fading <= 0) {
          this.running = false;
          return this.report("stopped");
        }
      }
      output[i] = sample;
    }
    return undefined;
  }

  runDry() {
    this.running = false;
    this.patience = Math.max(LONGEST_WAIT_S * sampleRate, this.threshold);
    if (this.fading !== null) return this.report("stopped");
    if (this.ended) return this.report("ended");
    this.dry = true;
    return this.report("dry");
  }
}

registerProcessor("voxgate-playback", Playback);
