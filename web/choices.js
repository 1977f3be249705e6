// The options of the next utterance: voice, language, instructions, audio.

import { wantsVisemes } from "./mouth.js";
import { opusIsSupported } from "./playback.js";

export const RATE = 24000;
const $ = (id) => document.getElementById(id);
let voices = [];
let lastRequest; // arguments of the last listVoices

// The fields of a `start` message; options left out are chosen by the gateway. `other`: a voice of `allVoices` to use
// instead of the chosen one, with those options that it has.
export function choices(other) {
  const voice = other ?? voices.find(({ name }) => name === $("voice").value);
  const instructions = $("instructions").value.trim();
  const language = $("language").value;
  const has = { language: !other || other.languages.includes(language), instructions: !other || other.instructions };
  return {
    voice: other?.name ?? ($("voice").value || undefined),
    language: (has.language && language !== "auto" && language) || undefined,
    instructions: (has.instructions && !$("instructions").disabled && instructions) || undefined,
    normalise: $("normalise").checked || undefined,
    visemes: wantsVisemes(voice) || undefined,
    format: { codec: $("codec").value, sample_rate: RATE },
  };
}

// The voices, as /v1/voices lists them.
export const allVoices = () => voices;

export async function listVoices(session, token) {
  lastRequest = [session, token];
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await (await fetch(session.voices, { headers })).json();
  if (!answer.voices) throw new Error(answer.message);
  if (JSON.stringify(answer.voices) === JSON.stringify(voices)) return; // keep a list that is open
  voices = answer.voices;
  const chosen = $("voice").value || localStorage.getItem("voice") || session.default_voice;
  $("voice").replaceChildren(...voices.map(({ name, display }) => new Option(display || name, name)));
  voices.forEach(({ description }, i) => ($("voice").options[i].title = description));
  $("voice").value = voices.some(({ name }) => name === chosen) ? chosen : session.default_voice;
  showVoiceOptions();
}

export async function listCodecs() {
  const options = [new Option("PCM", "pcm")];
  if (await opusIsSupported(RATE)) options.unshift(new Option("Opus", "opus"));
  $("codec").replaceChildren(...options);
}

// Offers the languages of the chosen voice, and instructions if it takes any.
function showVoiceOptions() {
  const voice = voices.find(({ name }) => name === $("voice").value);
  const languages = voice?.languages ?? ["auto"];
  const chosen = $("language").value || localStorage.getItem("language");
  $("language").replaceChildren(...languages.map((name) => new Option(title(name), name)));
  $("language").value = languages.includes(chosen) ? chosen : "auto";
  $("instructions").disabled = !voice?.instructions;
  $("instructions").placeholder = voice?.instructions ? "Cheerful, a little out of breath" : "Not supported by this voice";
}

const title = (name) => (name === "auto" ? "Automatic" : name[0].toUpperCase() + name.slice(1).replaceAll("_", " "));

$("voice").addEventListener("change", showVoiceOptions);
// Voices can be added and removed while the page is open, so the list is refreshed before it is used.
for (const event of ["focus", "pointerenter"]) {
  $("voice").addEventListener(event, () => lastRequest && listVoices(...lastRequest).catch(() => {})); // keep the old list
}
for (const id of ["voice", "language"]) {
  $(id).addEventListener("change", () => localStorage.setItem(id, $(id).value));
}
