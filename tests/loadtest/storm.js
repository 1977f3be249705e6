// Connection storm for k6 (https://k6.io): sockets open at a growing rate, speak a sentence and leave; a tenth of them cut
// the connection during the speech.
//
//   k6 run -e URL=ws://127.0.0.1:8000/v1/speech -e SOCKETS=2000 -e SECONDS=60 tests/loadtest/storm.js

import { check } from "k6";
import { Counter, Rate, Trend } from "k6/metrics";
import { clearTimeout, setTimeout } from "k6/timers";
import { WebSocket } from "k6/websockets";

const URL = __ENV.URL || "ws://127.0.0.1:8000/v1/speech";
const SOCKETS = Number(__ENV.SOCKETS || 500);
const SECONDS = Number(__ENV.SECONDS || 30);
const TEXT = "The bakery on the corner sells fresh bread every morning. ";
const LEAVING = 0.1;
const LONGEST_MS = 30000;
const FLAG_LAST = 2;

const firstAudio = new Trend("voxgate_first_audio_ms", true);
const connecting = new Trend("voxgate_connect_ms", true);
const refused = new Counter("voxgate_refused");
const broken = new Rate("voxgate_broken");

export const options = {
  discardResponseBodies: true,
  scenarios: {
    storm: {
      executor: "ramping-arrival-rate",
      startRate: 1,
      timeUnit: "1s",
      preAllocatedVUs: Math.min(SOCKETS, 1000),
      maxVUs: SOCKETS,
      stages: [
        { duration: `${Math.ceil(SECONDS / 3)}s`, target: Math.ceil((2 * SOCKETS) / SECONDS) },
        { duration: `${Math.ceil((2 * SECONDS) / 3)}s`, target: Math.ceil((2 * SOCKETS) / SECONDS) },
      ],
    },
  },
  thresholds: {
    // A full gateway may refuse connections, but must complete what it accepted.
    voxgate_broken: ["rate<0.001"],
    voxgate_connect_ms: ["p(95)<250"],
  },
};

export default function () {
  const began = Date.now();
  const leaving = Math.random() < LEAVING;
  const socket = new WebSocket(URL);
  socket.binaryType = "arraybuffer";
  let opened = false;
  let over = false;
  let nextSeq = 0;
  let spoken = 0;
  let deadline = null;

  const finish = (whole) => {
    if (over) return;
    over = true;
    clearTimeout(deadline);
    broken.add(!whole);
    check(whole, { "spoken whole, or refused with a reason": (yes) => yes });
    socket.close();
  };

  socket.onopen = () => {
    opened = true;
    connecting.add(Date.now() - began);
    const utterance = "u";
    socket.send(JSON.stringify({ type: "start", utterance, format: { codec: "opus" } }));
    for (const word of TEXT.split(/(?<= )/)) socket.send(JSON.stringify({ type: "text", utterance, text: word }));
    socket.send(JSON.stringify({ type: "end", utterance }));
    spoken = Date.now();
    deadline = setTimeout(() => finish(false), LONGEST_MS);
  };

  socket.onmessage = (event) => {
    if (typeof event.data === "string") {
      const message = JSON.parse(event.data);
      if (message.type === "done") finish(true);
      if (message.type === "error") {
        refused.add(1, { code: message.code });
        finish(message.retryable);
      }
      return;
    }
    const header = new DataView(event.data);
    const seq = header.getUint32(8, true);
    if (seq !== nextSeq) finish(false);
    nextSeq = seq + 1;
    if (seq === 0) firstAudio.add(Date.now() - spoken);
    if (leaving && seq >= 2 && !(header.getUint8(1) & FLAG_LAST)) finish(true);
  };

  socket.onerror = () => {
    if (!opened) refused.add(1, { code: "handshake" });
    over = true;
  };
  socket.onclose = () => finish(opened && leaving);
}
