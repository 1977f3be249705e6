// Drives web/client/voxgate.js in Node: `node speak.mjs URL SCENARIO` prints the result as JSON.

import { createHash } from "node:crypto";
import { connect, speechUrl } from "../../web/client/voxgate.js";

const [url, scenario] = process.argv.slice(2);

async function collect(utterance) {
  const kinds = [];
  let samples = 0;
  for await (const event of utterance) {
    kinds.push(event.type);
    if (event.type === "audio") samples += event.samples;
  }
  return { kinds: [...new Set(kinds)], samples, done: utterance.done?.type, pre_skip: utterance.format.pre_skip };
}

async function failure(action) {
  try {
    return { result: await action() };
  } catch ({ name, code, retryable, message }) {
    return { name, code, retryable, message };
  }
}

function catching(action) {
  try {
    action();
  } catch (error) {
    return error;
  }
}

const scenarios = {
  async grown() {
    const session = await connect(url, { token: "vg_right-key", authMessage: true });
    const [named] = [session.info.capabilities.includes("defaults"), session.setDefaults({ voice: "bob", words: true })];
    const utterance = session.utterance();
    utterance.send("Hello there, all of you.");
    utterance.end();
    const started = [];
    for await (const event of utterance) started.push(event.type, event.voice);
    const { quota } = await session.limits();
    const [one, two] = [session.utterance({ offsets: "utf16" }), session.utterance()];
    one.send("\u{1f600} and so on, and so on");
    one.send("x".repeat(5000));
    const refused = [];
    for await (const event of one) {
      if (event.type !== "warning") continue;
      refused.push(event.code, event.characters);
      session.interrupt();
    }
    const answers = [one.done.type];
    for await (const event of two) answers.push(event.type);
    session.close();
    return { named, kinds: new Set(started).has("generated"), voice: started.includes("bob"), quota: Object.keys(quota).sort(), refused, answers };
  },
  async speak() {
    const session = await connect(url);
    const utterance = session.utterance({ words: true });
    for (const piece of ["Hel", "lo there."]) utterance.send(piece);
    utterance.end();
    const result = await collect(utterance);
    session.close();
    return { ...result, voice: session.info.default_voice };
  },
  // Fills in when the talker waits for text.
  async starving() {
    const session = await connect(url);
    const utterance = session.utterance({ starving_ms: 10_000 });
    utterance.send("Let me see");
    const told = [];
    for await (const event of utterance) {
      if (event.type !== "starving") continue;
      told.push(event.audio_ms >= 0 && event.audio_ms <= 400);
      utterance.send(", well.");
      utterance.end();
    }
    session.close();
    return { told, characters: utterance.done.characters };
  },
  async refused_fragment() {
    const session = await connect(url);
    const utterance = session.utterance();
    utterance.send("Bad.");
    const { value } = await utterance[Symbol.asyncIterator]().next();
    const thrown = ((error) => error.messageId)(catching(() => utterance.flush()));
    utterance.end();
    const { over } = utterance;
    session.close();
    return { warning: value.code, thrown, over };
  },
  async refused_message() {
    const session = await connect(url);
    const [one, two] = [session.utterance(), session.utterance()];
    one.send("Bad.");
    const { code } = await failure(() => collect(one));
    two.send("Two.");
    two.end();
    const result = { code, samples: (await collect(two)).samples };
    session.close();
    return result;
  },
  // Speech over a connection that is lost meanwhile: its audio, and what the events say about the losses.
  async disturbed() {
    const session = await connect(url);
    const utterance = session.utterance({ seed: 3, words: true });
    const changes = [];
    const hash = createHash("sha256");
    const writing = (async () => {
      for (const word of "The weather is fine today and will stay so until the end.".split(/(?<= )/)) {
        utterance.send(word);
        await new Promise((resolve) => setTimeout(resolve, 60));
      }
      utterance.end();
    })();
    let longest = 0;
    let last = performance.now();
    for await (const event of utterance) {
      if (event.type === "audio") {
        hash.update(event.payload);
        longest = Math.max(longest, performance.now() - last);
        last = performance.now();
      } else if (event.type === "reconnecting" || event.type === "resumed") changes.push(event.type);
    }
    await writing;
    session.close();
    return { changes, sha256: hash.digest("hex"), done: utterance.done.type, longest };
  },
  // Takes text back after its first words and says something else; the other gateway may take over meanwhile.
  async retracted() {
    const session = await connect(url);
    const utterance = session.utterance({ seed: 3, words: true, visemes: true, offsets: "utf16" });
    const hash = createHash("sha256");
    utterance.send("\u{1f600} is what you see when the weather is fine, all day long and at night.");
    utterance.end();
    let [words, heard, answer, changing] = [[], 0, null, null];
    for await (const event of utterance) {
      if (event.type === "audio") hash.update(event.payload);
      if (event.type === "audio" && ++heard === 5) {
        changing = utterance.retract();
        utterance.send("\u{1f600}, that is what I wanted to tell you about the weather of today.");
        utterance.end();
      } else if (event.type === "words") words.push(...event.words);
      else if (event.type === "retracted") words = words.filter((word) => word.start < event.void_from);
    }
    answer = await changing;
    const late = await failure(() => utterance.retract());
    session.close();
    return { answer, words: words.map((word) => word.text), sha256: hash.digest("hex"), done: utterance.done, late: late.code };
  },
  async given_up() {
    const session = await connect(url);
    const utterance = session.utterance();
    utterance.send("Hello there, all of you.");
    const changes = [];
    const end = await failure(async () => {
      for await (const event of utterance) if (event.type !== "audio") changes.push(event.type);
    });
    return { changes, code: end.code };
  },
  async both() {
    const session = await connect(url);
    const say = (text) => {
      const utterance = session.utterance();
      utterance.send(text);
      utterance.end();
      return collect(utterance);
    };
    const results = await Promise.all([say("Hi."), say("Hello there.")]);
    session.close();
    return results.map(({ samples }) => samples);
  },
  async interrupt() {
    const session = await connect(url);
    const utterance = session.utterance();
    utterance.send("never ended");
    for await (const event of utterance) if (event.type === "audio" && event.seq === 2) break;
    const next = session.utterance();
    next.send("Stop here");
    for await (const event of next) {
      if (event.type !== "audio" || event.seq !== 3) continue;
      const answer = await next.interrupt(161);
      session.close();
      return [answer.text_spoken, answer.text_remaining];
    }
  },
  async twice() {
    const session = await connect(url);
    const utterance = session.utterance();
    utterance.send("Stop here");
    for await (const event of utterance) {
      if (event.type !== "audio") continue;
      const answers = await Promise.all([utterance.interrupt(80), utterance.interrupt(80)]);
      answers.push(await utterance.interrupt());
      session.close();
      return answers.map(({ text_spoken }) => text_spoken);
    }
  },
  async hold() {
    const session = await connect(url);
    const utterance = session.utterance({ seed: 7 });
    utterance.send(process.argv[4]);
    utterance.end();
    let heard = Buffer.alloc(0);
    const log = [];
    const listen = async (until) => {
      for await (const event of utterance) {
        if (event.type === "audio") heard = Buffer.concat([heard, event.payload]);
        else if (event.type !== "generated") log.push(event.type);
        if (await until(event)) return;
      }
    };
    const hold = async () => {
      const playedMs = Math.floor(heard.length / 48) - 130;
      const { hold_ms } = await utterance.interrupt(playedMs, { holdMs: 5000 });
      heard = heard.subarray(0, playedMs * 48);
      await new Promise((resolve) => setTimeout(resolve, 200));
      return [playedMs, hold_ms, (await utterance.continueSpeech()).played_ms];
    };
    let first;
    await listen(({ type, seq }) => {
      if (type === "audio" && seq === 8) first ??= hold();
    });
    const second = await hold(); // of the done utterance
    await listen(() => false);
    const refused = await failure(() => utterance.continueSpeech());
    const let_go = session.utterance();
    let_go.send(process.argv[4]);
    const ended = (async () => {
      for await (const event of let_go) if (event.type === "audio" && event.seq === 2) let_go.interrupt(80, { holdMs: 100 });
    })();
    await ended;
    const late = await failure(() => let_go.continueSpeech());
    session.close();
    const sha256 = createHash("sha256").update(heard).digest("hex");
    return { sha256, first: await first, second, log, refused: refused.code, late: late.code };
  },
  async hold_refused() {
    const session = await connect(url);
    const utterance = session.utterance({ seed: 7 });
    utterance.send(process.argv[4]);
    utterance.end();
    const hash = createHash("sha256");
    let refused;
    for await (const event of utterance) {
      if (event.type !== "audio") continue;
      hash.update(event.payload);
      if (event.seq === 3) refused = failure(() => utterance.interrupt(0, { holdMs: session.info.limits.hold_max_ms + 1 }));
    }
    session.close();
    return { sha256: hash.digest("hex"), refused: (await refused).code, done: utterance.done.type };
  },
  async interrupt_lost() {
    const session = await connect(url);
    const utterance = session.utterance();
    utterance.send("Boom.");
    await failure(() => collect(utterance));
    const result = await failure(() => utterance.interrupt());
    session.close();
    return result;
  },
  async late() {
    const session = await connect(url);
    const utterance = session.utterance();
    utterance.send("All of it.");
    utterance.end();
    await collect(utterance);
    const answer = await utterance.interrupt(80);
    session.close();
    return answer.text_spoken;
  },
  async error() {
    const session = await connect(url);
    const utterance = session.utterance();
    utterance.send("Boom.");
    utterance.end();
    const result = await failure(() => collect(utterance));
    session.close();
    return result;
  },
  async lost() {
    const session = await connect(url);
    const utterance = session.utterance();
    utterance.send("Boom.");
    utterance.end();
    const result = await failure(() => collect(utterance));
    return [result, await failure(() => session.utterance())];
  },
  async unread() {
    const session = await connect(url);
    const utterance = session.utterance();
    utterance.send("x".repeat(4200));
    while (!utterance.ended) await new Promise((resolve) => setTimeout(resolve, 5));
    const result = await failure(() => collect(utterance));
    session.close();
    return result;
  },
  async second_loop() {
    const session = await connect(url);
    const utterance = session.utterance();
    utterance.send("Hello.");
    utterance.end();
    const results = await Promise.all([collect(utterance), failure(() => collect(utterance))]);
    session.close();
    return results;
  },
  // The program was busy, so that an answer may wait to be read.
  async busy() {
    const session = await connect(url);
    session.utterance();
    const now = performance.now();
    for (const later of [2100, 9000]) {
      performance.now = () => now + later;
      session.socket.checkSilence();
    }
    const { open } = session.socket;
    session.close();
    return open;
  },
  refused: () => failure(() => connect(url)),
  urls: () => ["host:1", "http://host:1", "https://host/", "wss://host/v1/speech"].map((each) => speechUrl(each)),
  async no_websocket() {
    delete globalThis.WebSocket;
    return failure(() => connect(url));
  },
  async key() {
    const session = await connect(url, { token: "vg_right-key" });
    const utterance = session.utterance();
    utterance.send("Hello.");
    utterance.end();
    const { done } = await collect(utterance);
    session.close();
    return done;
  },
  addresses: () => Promise.all(["http://[bad", "ftp://x"].map((each) => failure(() => connect(each)))),
  bad_key: () => failure(() => connect(url, { token: "a b" })),
};

console.log(JSON.stringify(await scenarios[scenario]()));
