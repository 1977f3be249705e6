// The sound of an utterance as a file: mono, 16 bit.

const HEADER_BYTES = 44;

// What was decoded of one utterance so far.
export class Recording {
  constructor() {
    this.chunks = [];
    this.rate = 0;
    this.length = 0;
  }

  push(samples, rate) {
    this.chunks.push(samples.slice());
    this.rate = rate;
    this.length += samples.length;
  }

  wav() {
    const data = new ArrayBuffer(HEADER_BYTES + 2 * this.length);
    const view = new DataView(data);
    const ascii = (at, text) => [...text].forEach((char, i) => view.setUint8(at + i, char.charCodeAt(0)));
    ascii(0, "RIFF");
    view.setUint32(4, data.byteLength - 8, true);
    ascii(8, "WAVEfmt ");
    view.setUint32(16, 16, true);
    view.setUint16(20, 1, true); // PCM
    view.setUint16(22, 1, true); // one channel
    view.setUint32(24, this.rate, true);
    view.setUint32(28, 2 * this.rate, true);
    view.setUint16(32, 2, true);
    view.setUint16(34, 16, true);
    ascii(36, "data");
    view.setUint32(40, 2 * this.length, true);
    let at = HEADER_BYTES;
    for (const chunk of this.chunks) {
      for (const sample of chunk) {
        view.setInt16(at, Math.max(-32768, Math.min(32767, Math.round(32768 * sample))), true);
        at += 2;
      }
    }
    return new Blob([data], { type: "audio/wav" });
  }

  download(name) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(this.wav());
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }
}
