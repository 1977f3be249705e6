// The same utterance as code: what the visitor chose here, ready to be pasted elsewhere.

// What JSON escapes, Python reads the same way.
const python = (value) => JSON.stringify(value);
const shell = (value) => `'${value.replaceAll("'", "'\\''")}'`;

// `options` as from choices(), `key` whether the gateway wants one.
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

export function asCurl({ voice, instructions }, text, origin, key) {
  const body = { model: "voxgate", input: text, voice, instructions, response_format: "wav" };
  const header = key ? ' \\\n  -H "Authorization: Bearer $VOXGATE_API_KEY"' : "";
  return `curl ${origin}/v1/audio/speech${header} \\
  -H 'Content-Type: application/json' \\
  -d ${shell(JSON.stringify(body))} \\
  -o speech.wav
`;
}
