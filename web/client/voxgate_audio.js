// Audio messages: their header (docs/protocol.md, "Binary messages"), and whether the audio of an utterance is complete.

import { VoxgateError } from "./voxgate_errors.js";

const HEADER_BYTES = 20;
const HEADER_VERSION = 1;
const SAMPLE_BYTES = { pcm: 2, pcm_f32: 4, mulaw: 1, alaw: 1 }; // of codecs whose payloads are plain samples

/**
 * @typedef {object} AudioFormat
 * @property {"pcm"|"pcm_f32"|"mulaw"|"alaw"|"opus"|"ogg_opus"|"mp3"|"flac"|"wav"|"wav_f32"|"wav_mulaw"|"wav_alaw"} codec
 * @property {number} [sample_rate] in Hz
 * @property {number} [packet_ms] 80, 40 or 20
 * @property {number} [bitrate] in bit/s, for opus, ogg_opus and mp3
 * @property {number} [pre_skip] samples to drop at the start of the decoded audio; set by the gateway
 */

/**
 * @typedef {object} Audio one audio message
 * @property {"audio"} type
 * @property {boolean} first
 * @property {boolean} last
 * @property {number} samples in this message
 * @property {number} number of the utterance
 * @property {number} seq counts messages from 0
 * @property {number} pts samples before this message
 * @property {Uint8Array} payload
 * @property {number} [skip_samples] decoded samples to drop at its start, because they were heard before a hold
 */

/**
 * Reads a binary message. Throws VoxgateError (`protocol_violation`).
 * @param {ArrayBuffer} buffer
 * @returns {Audio}
 */
export function parseAudio(buffer) {
  const view = new DataView(buffer);
  if (buffer.byteLength < HEADER_BYTES || view.getUint8(0) !== HEADER_VERSION) {
    throw new VoxgateError("protocol_violation", "binary message must be an audio message of version 1");
  }
  const flags = view.getUint8(1);
  return {
    type: "audio",
    first: (flags & 1) !== 0,
    last: (flags & 2) !== 0,
    samples: view.getUint16(2, true),
    number: view.getUint32(4, true),
    seq: view.getUint32(8, true),
    pts: Number(view.getBigUint64(12, true)),
    payload: new Uint8Array(buffer, HEADER_BYTES),
  };
}

/** The audio of one utterance as it arrives: without a gap, and complete. Formats are those of the utterance. */
export class ReceivedAudio {
  constructor() {
    this.nextSeq = 0;
    this.nextPts = 0;
    this.lastReceived = false;
    this.skip = 0; // samples of the next audio message that were heard
    this.rewound = false; // whether that message was received before
  }

  /** Counts a message. Returns what is wrong with it, or null. */
  accept(audio, format) {
    const bytes = SAMPLE_BYTES[format.codec];
    const follows = audio.pts === this.nextPts || (this.rewound && audio.pts < this.nextPts);
    if (audio.seq !== this.nextSeq || !follows) return `audio is missing before message ${audio.seq}`;
    if (bytes && audio.payload.length !== bytes * audio.samples) return `message ${audio.seq} has the wrong length`;
    this.nextSeq++;
    this.nextPts = audio.pts + audio.samples;
    this.rewound = false;
    this.lastReceived = audio.last;
    return null;
  }

  /** Returns the message without what was heard of it before a hold. */
  unheard(audio, format) {
    const skip = Math.min(this.skip, audio.samples);
    this.skip = 0;
    if (!skip) return audio;
    const bytes = SAMPLE_BYTES[format.codec];
    if (!bytes) return { ...audio, skip_samples: skip };
    return { ...audio, pts: audio.pts + skip, samples: audio.samples - skip, payload: audio.payload.subarray(bytes * skip) };
  }

  /** Prepares for audio that a `continued` message announces. Returns whether it follows what was received. */
  continueAt(continued) {
    if (continued.seq > this.nextSeq) return false;
    if (continued.seq < this.nextSeq) [this.nextSeq, this.rewound, this.lastReceived] = [continued.seq, true, false];
    this.skip = continued.skip_samples;
    return true;
  }

  /** Returns what is missing when the gateway has sent all, or null. */
  incomplete(done, format) {
    const received = this.nextPts - (format.pre_skip ?? 0);
    // Coded packets have a fixed length: the last one may end with padding.
    const complete = SAMPLE_BYTES[format.codec] ? received === done.samples : received >= done.samples;
    return complete && this.lastReceived ? null : `done after ${received} of ${done.samples} samples`;
  }
}
