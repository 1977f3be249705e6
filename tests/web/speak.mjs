// Drives web/client/voxgate.js in Node: `node speak.mjs URL SCENARIO` prints the result as JSON.

import { createHash } from "node:crypto";
import { connect, speechUrl } from "../../web/client/voxgate.js";

const [url, scenario] = process.argv.slice(2);

function say(session, text, options) {
  const utterance = session.utterance(options);
  utterance.send(text);
  utterance.end();
  return utterance;
}

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
  async grown(session) {
    const [named] = [session.info.capabilities.includes("defaults"), session.setDefaults({ voice: "bob", words: true })];
    const utterance = say(session, "Hello there, all of you.");
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
    return { named, kinds: new Set(started).has("generated"), voice: started.includes("bob"), quota: Object.keys(quota).sort(), refused, answers };
  },
  async speak(session) {
    const utterance = session.utterance({ words: true });
    for (const piece of ["Hel", "lo there."]) utterance.send(piece);
    utterance.end();
    return { ...(await collect(utterance)), voice: session.info.default_voice };
  },
  // Fills in when the talker waits for text.
  async starving(session) {
    const utterance = session.utterance({ starving_ms: 10_000 });
    utterance.send("Let me see");
    const told = [];
    for await (const event of utterance) {
      if (event.type !== "starving") continue;
      told.push(event.audio_ms >= 0 && event.audio_ms <= 400);
      utterance.send(", well.");
      utterance.end();
    }
    return { told, characters: utterance.done.characters };
  },
  async refused_fragment(session) {
    const utterance = session.utterance();
    utterance.send("Bad.");
    const { value } = await utterance[Symbol.asyncIterator]().next();
    const thrown = ((error) => error.messageId)(catching(() => utterance.flush()));
    utterance.end();
    return { warning: value.code, thrown, over: utterance.over };
  },
  async refused_message(session) {
    const [one, two] = [session.utterance(), session.utterance()];
    one.send("Bad.");
    const { code } = await failure(() => collect(one));
    two.send("Two.");
    two.end();
    return { code, samples: (await collect(two)).samples };
  },
  // Speech over a connection that is lost meanwhile: its audio, and what the events say about the losses.
  async disturbed(session) {
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
    return { changes, sha256: hash.digest("hex"), done: utterance.done.type, longest };
  },
  // Takes text back after its first words and says something else; the other gateway may take over meanwhile.
  async retracted(session) {
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
    return { answer, words: words.map((word) => word.text), sha256: hash.digest("hex"), done: utterance.done, late: late.code };
  },
  async given_up(session) {
    const utterance = session.utterance();
    utterance.send("Hello there, all of you.");
    const changes = [];
    const end = await failure(async () => {
      for await (const event of utterance) if (event.type !== "audio") changes.push(event.type);
    });
    return { changes, code: end.code };
  },
  async both(session) {
    const results = await Promise.all(["Hi.", "Hello there."].map((text) => collect(say(session, text))));
    return results.map(({ samples }) => samples);
  },
  async interrupt(session) {
    const utterance = session.utterance();
    utterance.send("never ended");
    for await (const event of utterance) if (event.type === "audio" && event.seq === 2) break;
    const next = session.utterance();
    next.send("Stop here");
    for await (const event of next) {
      if (event.type !== "audio" || event.seq !== 3) continue;
      const answer = await next.interrupt(161);
      return [answer.text_spoken, answer.text_remaining];
    }
  },
  async twice(session) {
    const utterance = session.utterance();
    utterance.send("Stop here");
    for await (const event of utterance) {
      if (event.type !== "audio") continue;
      const answers = await Promise.all([utterance.interrupt(80), utterance.interrupt(80)]);
      answers.push(await utterance.interrupt());
      return answers.map(({ text_spoken }) => text_spoken);
    }
  },
  async hold(session) {
    const utterance = say(session, process.argv[4], { seed: 7 });
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
    const sha256 = createHash("sha256").update(heard).digest("hex");
    return { sha256, first: await first, second, log, refused: refused.code, late: late.code };
  },
  async hold_refused(session) {
    const utterance = say(session, process.argv[4], { seed: 7 });
    const hash = createHash("sha256");
    let refused;
    for await (const event of utterance) {
      if (event.type !== "audio") continue;
      hash.update(event.payload);
      if (event.seq === 3) refused = failure(() => utterance.interrupt(0, { holdMs: session.info.limits.hold_max_ms + 1 }));
    }
    return { sha256: hash.digest("hex"), refused: (await refused).code, done: utterance.done.type };
  },
  async interrupt_lost(session) {
    const utterance = session.utterance();
    utterance.send("Boom.");
    await failure(() => collect(utterance));
    return failure(() => utterance.interrupt());
  },
  async late(session) {
    const utterance = say(session, "All of it.");
    await collect(utterance);
    return (await utterance.interrupt(80)).text_spoken;
  },
  async error(session) {
    return failure(() => collect(say(session, "Boom.")));
  },
  async lost(session) {
    const result = await failure(() => collect(say(session, "Boom.")));
    return [result, await failure(() => session.utterance())];
  },
  async unread(session) {
    const utterance = session.utterance();
    utterance.send("x".repeat(4200));
    while (!utterance.ended) await new Promise((resolve) => setTimeout(resolve, 5));
    return failure(() => collect(utterance));
  },
  async second_loop(session) {
    const utterance = say(session, "Hello.");
    return Promise.all([collect(utterance), failure(() => collect(utterance))]);
  },
  // The program was busy, so that an answer may wait to be read.
  async busy(session) {
    session.utterance();
    const now = performance.now();
    for (const later of [2100, 9000]) {
      performance.now = () => now + later;
      session.socket.checkSilence();
    }
    return session.socket.open;
  },
  refused: () => failure(() => connect(url)),
  urls: () => ["host:1", "http://host:1", "https://host/", "wss://host/v1/speech"].map((each) => speechUrl(each)),
  async no_websocket() {
    delete globalThis.WebSocket;
    return failure(() => connect(url));
  },
  async key(session) {
    return (await collect(say(session, "Hello."))).done;
  },
  bad_url: () => failure(() => connect("http://[bad")),
  ftp: () => failure(() => connect("ftp://host")),
  bad_key: () => failure(() => connect(url, { token: "a b" })),
};

const options = { grown: { token: "vg_right-key", authMessage: true }, key: { token: "vg_right-key" } };
const session = scenarios[scenario].length ? await connect(url, options[scenario]) : null;
console.log(JSON.stringify(await scenarios[scenario](session)));
session?.close();
