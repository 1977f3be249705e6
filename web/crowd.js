// Several sessions at once: a small demonstration of load, with a seat for each listener and figures for all.

import { choices } from "./choices.js";
import { token } from "./key.js";
import { Listener } from "./listener.js";

const ENTER_MS = 60; // between two of them: people do not come all at the same moment
const FIGURES_MS = 250;
const $ = (id) => document.getElementById(id);
const crowd = { listeners: [], entering: null, figures: null };

async function start() {
  stop();
  $("crowd-start").disabled = true;
  const wanted = Math.max(1, Math.min(Number($("crowd-size").max), Math.round(Number($("crowd-size").value)) || 1));
  $("crowd-size").value = wanted;
  const limits = await (await fetch("/v1/limits", { cache: "no-store" })).json();
  const options = {
    choices: choices(),
    pace: () => Number($("writing-pace").value),
    token: limits.key_needed ? await token() : null,
  };
  $("crowd-stop").disabled = false;
  crowd.figures = setInterval(showFigures, FIGURES_MS);
  crowd.entering = setInterval(() => {
    const seat = $("crowd-seats").appendChild(document.createElement("li"));
    crowd.listeners.push(
      new Listener(location.origin, { ...options, changed: ({ state }) => (seat.dataset.state = state) }),
    );
    if (crowd.listeners.length >= wanted) clearInterval(crowd.entering);
  }, ENTER_MS);
}

function stop() {
  clearInterval(crowd.entering);
  clearInterval(crowd.figures);
  crowd.listeners.forEach((listener) => listener.stop());
  if (crowd.listeners.length) showFigures();
  crowd.listeners = [];
  $("crowd-seats").replaceChildren();
  $("crowd-start").disabled = false;
  $("crowd-stop").disabled = true;
}

function showFigures() {
  const sum = (what) => crowd.listeners.reduce((total, listener) => total + what(listener), 0);
  const here = sum(({ state }) => state !== "gone");
  const speaking = sum(({ state }) => state === "speaking" || state === "late");
  const firstSounds = crowd.listeners.flatMap(({ firstSounds }) => firstSounds).sort((a, b) => a - b);
  const at = (share) => `${Math.round(firstSounds[Math.floor(share * (firstSounds.length - 1))])} ms`;
  const heard = firstSounds.length ? `first sound after ${at(0.5)} (median), ${at(0.95)} (19 of 20)` : "nothing heard yet";
  const underruns = sum((listener) => listener.underruns);
  const refused = sum((listener) => listener.refused);
  $("crowd-summary").textContent =
    `${here} listening, ${speaking} hear speech now; ${firstSounds.length} utterances begun; ${heard}; ` +
    `${underruns} underruns; ${refused} refused.`;
}

$("crowd-start").addEventListener("click", start);
$("crowd-stop").addEventListener("click", stop);
globalThis.voxgateCrowd = crowd; // for the console
