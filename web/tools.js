// What can be taken along: the sound as a file, the utterance as code.

import { choices } from "./choices.js";
import { asCurl, asPython } from "./snippets.js";

const SHOWN_MS = 2000;
const $ = (id) => document.getElementById(id);

// `text()` is what would be said, `utterance()` the last that was.
export function wireTools(text, utterance, connection) {
  $("download").addEventListener("click", () => utterance()?.recording.download("voxgate.wav"));
  for (const [id, write] of [["copy-python", asPython], ["copy-curl", asCurl]]) {
    $(id).addEventListener("click", async () => {
      const code = write(choices(), text() || "Hello there.", location.origin, connection.keyed);
      const copied = await navigator.clipboard.writeText(code).then(() => true, () => false);
      $("copied").textContent = copied ? "Copied" : "This browser does not let the page copy";
      setTimeout(() => ($("copied").textContent = ""), SHOWN_MS);
    });
  }
  $("writing-pace").addEventListener("input", () => ($("pace-shown").textContent = $("writing-pace").value));
}
