// Errors of the JavaScript client, and what codes of the gateway mean for a connection or an utterance.

// These answer a mistake of the client, which the next connection would meet again (docs/protocol.md, "Errors").
export const MISTAKE_CLOSE_CODES = new Set([1003, 1007, 1008, 1009]);
// Answers to messages that the gateway received after the end of their utterance.
export const AFTER_END = new Set(["unknown_utterance", "utterance_ended"]);
// After these codes the gateway continues the utterance, and so does this client.
export const NON_FATAL = new Set(["text_too_long", ...AFTER_END]);
// After these the gateway continues it too, but text may be missing.
export const MESSAGE_REFUSED = new Set(["bad_message", "duplicate_utterance", "not_held", "rate_limited"]);
export const REFUSES_MESSAGE = new Set([...NON_FATAL, ...MESSAGE_REFUSED]);

/** Any failure of a session or an utterance. */
export class VoxgateError extends Error {
  /**
   * @param {string} code a code of docs/protocol.md, or `unreachable`, `session_lost`, `protocol_violation`, `timeout`,
   *   `unsupported`, `invalid_address`, `already_reading`
   * @param {string} message
   * @param {{id?: string, retryable?: boolean, retry_after_ms?: number, partial_audio?: boolean, param?: string, reached?: string, characters?: number}} [more]
   */
  constructor(code, message, more = {}) {
    super(`${message} (${code})`);
    this.name = "VoxgateError";
    this.code = code;
    this.retryable = more.retryable === true;
    this.retryAfterMs = more.retry_after_ms ?? null;
    this.partialAudio = more.partial_audio === true;
    this.param = more.param ?? null;
    this.reached = more.reached ?? null; // the limit that refused it
    this.messageId = more.id ?? null; // of the call that was refused, such as "text-3"
    this.characters = more.characters ?? null; // of the text, accepted when a message was refused
  }
}
