// Saving the audio as a file and copying the utterance as code.

import { choices } from "./choices.js";

const MESSAGE_MS = 2000;
const $ = (id) => document.getElementById(id);

// `text()` returns the text to be spoken, `utterance()` the current or last utterance.
export function wireTools(text, utterance, connection) {
  $("download").addEventListener("click", () => utterance()?.recording.download("voxgate.wav"));
  for (const [id, write] of [["copy-python", asPython], ["copy-curl", asCurl]]) {
    $(id).addEventListener("click", async () => {
      const code = write(choices(), text() || "Hello there.", location.origin, connection.keyRequired);
      const copied = await navigator.clipboard.writeText(code).then(() => true, () => false);
      $("copied").textContent = copied ? "Copied" : "The browser denied access to the clipboard";
      setTimeout(() => ($("copied").textContent = ""), MESSAGE_MS);
    });
  }
  $("writing-pace").addEventListener("input", () => ($("pace-shown").textContent = $("writing-pace").value));
}

// JSON strings are valid Python strings.
const python = (value) => JSON.stringify(value);
const shell = (value) => `'${value.replaceAll("'", "'\\''")}'`;

// A Python program that speaks `text`. Options are those of choices(); `key` tells whether the gateway requires one.
export function asPython({ voice, language, instructions, normalise }, text, origin, key) {
  const given = Object.entries({ voice, language, instructions }).filter(([, value]) => value !== undefined);
  const fields = [...given.map(([name, value]) => `${name}=${python(value)}`)];
  if (normalise) fields.push("normalise=True");
  const server = [python(origin.replace(/^http/, "ws"))];
  if (key) server.push(`key=os.environ["VOXGATE_API_KEY"]`);
  return `import asyncio
${key ? "import os\n" : ""}import wave

from voxgate.client import connect


async def main() -> None:
    async with connect(${server.join(", ")}) as session:
        async with session.utterance(${[...fields, 'pacing="none"'].join(", ")}) as utterance:
            await utterance.send(${python(text)})
            await utterance.end()
            with wave.open("speech.wav", "wb") as file:
                file.setnchannels(1)
                file.setsampwidth(2)
                file.setframerate(24_000)
                async for audio in utterance.audio():
                    file.writeframes(audio.payload)


asyncio.run(main())
`;
}

// The same as a curl command.
export function asCurl({ voice, instructions }, text, origin, key) {
  const body = { model: "voxgate", input: text, voice, instructions, response_format: "wav" };
  const header = key ? ' \\\n  -H "Authorization: Bearer $VOXGATE_API_KEY"' : "";
  return `curl ${origin}/v1/audio/speech${header} \\
  -H 'Content-Type: application/json' \\
  -d ${shell(JSON.stringify(body))} \\
  -o speech.wav
`;
}
