// Runs web/worklet.js in Node over a ramp, paused in its middle: `node pause_worklet.mjs` prints the result as JSON.

const [SAMPLES, BLOCK, PAUSE_AT] = [6000, 128, 20 * 128];
const reports = [];
let Playback;
Object.assign(globalThis, {
  sampleRate: 24_000,
  currentTime: 0,
  AudioWorkletProcessor: class {
    port = { postMessage: ({ type, played }) => reports.push({ type, played }) };
  },
  registerProcessor: (_, processor) => (Playback = processor),
});
await import("../../web/worklet.js");

const player = new Playback();
const tell = (type, fields = {}) => player.port.onmessage({ data: { type, ...fields } });
const ofType = (wanted) => reports.filter(({ type }) => type === wanted);
function play(blocks) {
  const output = new Float32Array(blocks * BLOCK);
  for (let at = 0; at < output.length; at += BLOCK) player.process([], [[output.subarray(at, at + BLOCK)]]);
  return output;
}

const ramp = Float32Array.from({ length: SAMPLES }, (_, i) => (i + 1) / SAMPLES);
tell("begin", { utterance: 1 });
tell("push", { samples: ramp });
const before = play(PAUSE_AT / BLOCK);
tell("pause");
const fade = play(4);
tell("end");
const silence = play(40);
const paused = { reports: ofType("paused"), ended: ofType("ended").length };
tell("resume");
const after = play(Math.ceil(SAMPLES / BLOCK));

// The fade to silence and that from it are laid over each other.
const heard = [...before, ...after.subarray(0, SAMPLES - PAUSE_AT)];
fade.forEach((sample, i) => (heard[PAUSE_AT + i] += sample));

// A pause without sound: everything was played, and the end of the audio is told in it.
tell("begin", { utterance: 2 });
tell("push", { samples: ramp });
play(60);
tell("pause");
tell("end");
const endedInPause = ofType("ended").length;
tell("resume");

console.log(
  JSON.stringify({
    paused,
    fades: fade[0] > 0 && fade.at(-1) === 0,
    silent: silence.every((sample) => sample === 0),
    deviation: Math.max(...ramp.map((sample, i) => Math.abs(sample - heard[i]))),
    rest: after.subarray(SAMPLES - PAUSE_AT).every((sample) => sample === 0),
    endedInPause,
    ended: ofType("ended").map(({ played }) => played),
  }),
);
