// The wire (docs/protocol.md): control messages as JSON, audio behind a 20-byte header.

export const SPEECH_PATH = "/v1/speech";
const HEADER_BYTES = 20;
const VERSION = 1;

export function parseAudio(buffer) {
  const view = new DataView(buffer);
  if (buffer.byteLength < HEADER_BYTES || view.getUint8(0) !== VERSION) {
    throw new Error("not an audio message of version 1");
  }
  const flags = view.getUint8(1);
  return {
    first: (flags & 1) !== 0,
    last: (flags & 2) !== 0,
    samples: view.getUint16(2, true),
    number: view.getUint32(4, true),
    seq: view.getUint32(8, true),
    pts: Number(view.getBigUint64(12, true)),
    payload: new Uint8Array(buffer, HEADER_BYTES),
  };
}

// One socket. `on` has session(message), control(message), audio(packet) and closed(event). `token` where keys are needed.
export class SpeechSocket {
  constructor(origin, on, token = null) {
    const query = token ? `?token=${encodeURIComponent(token)}` : "";
    this.socket = new WebSocket(origin.replace(/^http/, "ws") + SPEECH_PATH + query);
    this.socket.binaryType = "arraybuffer";
    this.socket.onclose = (event) => on.closed(event);
    this.socket.onmessage = ({ data }) => {
      if (typeof data !== "string") return on.audio(parseAudio(data));
      const message = JSON.parse(data);
      return message.type === "session" ? on.session(message) : on.control(message);
    };
  }

  send(message) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }

  close() {
    this.socket.close(1000);
  }
}
