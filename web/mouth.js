// A mouth that takes the shapes of the speech: Oculus' fifteen visemes (docs/protocol.md, "Mouth shapes").

const $ = (id) => document.getElementById(id);
const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");

const AHEAD_MS = 40; // by which lips move before the sound of their shape
const SETTLE_MS = 50; // time constant of a movement
const CLOSED = "sil";

// Width and opening of the lips, how far they are rounded, and how much of teeth and tongue shows; each from 0 to 1.
const SHAPES = {
  sil: [0.5, 0, 0.1, 0, 0],
  PP: [0.4, 0, 0.4, 0, 0],
  FF: [0.55, 0.1, 0, 1, 0],
  TH: [0.55, 0.28, 0, 0.5, 1],
  DD: [0.6, 0.25, 0, 0.6, 0.6],
  kk: [0.6, 0.35, 0, 0.35, 0.2],
  CH: [0.35, 0.35, 0.7, 0.9, 0],
  SS: [0.7, 0.14, 0, 1, 0],
  nn: [0.6, 0.25, 0, 0.5, 0.8],
  RR: [0.38, 0.28, 0.6, 0.3, 0.2],
  aa: [0.7, 1, 0.1, 0.3, 0.4],
  E: [0.8, 0.6, 0, 0.4, 0.3],
  I: [0.95, 0.32, 0, 0.6, 0.2],
  O: [0.36, 0.75, 0.8, 0.1, 0.2],
  U: [0.18, 0.4, 1, 0, 0],
};
const [MIDDLE_X, MIDDLE_Y] = [32, 20]; // of the drawing

let form = SHAPES[CLOSED]; // what is drawn, on its way to the shape
let drawnAt = 0;

// Whether to ask for the shapes of a voice of /v1/voices.
export const wantsVisemes = (voice) => voice?.visemes === true && !reducedMotion.matches;

// The shape at a time of the audio. `visemes`: [{viseme, start_ms}] in order.
export function shapeAt(visemes, ms) {
  return visemes.findLast(({ start_ms }) => start_ms <= ms + AHEAD_MS)?.viseme ?? CLOSED;
}

// Draws the mouth on its way to a shape; hides it without one.
export function showMouth(shape, now = performance.now()) {
  $("mouth").toggleAttribute("hidden", !shape);
  if (!shape) return;
  const share = 1 - Math.exp((drawnAt - now) / SETTLE_MS);
  form = form.map((value, i) => value + share * ((SHAPES[shape] ?? SHAPES[CLOSED])[i] - value));
  drawnAt = now;
  $("mouth").dataset.shape = shape;
  draw(...form);
}

function draw(wide, open, round, teeth, tongue) {
  const width = 7 + 15 * wide;
  const lips = 3.2 + 2 * round;
  const [above, below] = [8 * open, 13 * open];
  $("mouth-lips").setAttribute("d", outline(width + 2, above + lips, below + lips * 1.25, round));
  for (const id of ["mouth-inside", "mouth-edge"]) $(id).setAttribute("d", outline(width, above, below, round));
  $("mouth-teeth").setAttribute("height", (0.75 * above + 1) * teeth);
  $("mouth-teeth").setAttribute("y", MIDDLE_Y - 0.75 * above);
  $("mouth-tongue").setAttribute("rx", width * 0.6);
  $("mouth-tongue").setAttribute("cy", MIDDLE_Y + 0.75 * below + 4 * (1 - tongue));
}

// Two curves between the corners of the mouth; they are fuller the more it is rounded.
function outline(width, above, below, round) {
  const [left, right] = [MIDDLE_X - width, MIDDLE_X + width];
  const reach = width * (0.5 - 0.4 * round);
  const curve = (from, to, y) => `C${from} ${y} ${to} ${y}`;
  const upper = `${curve(left + reach, right - reach, MIDDLE_Y - above)} ${right} ${MIDDLE_Y}`;
  return `M${left} ${MIDDLE_Y}${upper}${curve(right - reach, left + reach, MIDDLE_Y + below)} ${left} ${MIDDLE_Y}Z`;
}
