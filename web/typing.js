// What is said of a text while it is written, and what a change of it means for speech that has already begun.
// Pure: no page, no socket.

// A person writes slower than the voice speaks: said key by key, a word would break off in its middle. So whole phrases
// are said: at a mark that ends one, or after a few words, fewer where silence is to be broken.
const MARK = /[.?!,;:—…]["'”’»)\]]*\s+|[。？！，、；：]\s*/gu;
const WORD = /[\p{L}\p{N}]\S*(?=\s)/gu; // followed by white space: complete
const FIRST_WORDS = 2;
const LATER_WORDS = 4;

// How many characters of `pending`, the text not sent yet, are to be said now.
// `first`: nothing is being said; `paused`: the writer stopped for a moment.
export function due(pending, { first, paused }) {
  if (paused || pending.includes("\n")) return pending.length;
  const mark = [...pending.matchAll(MARK)].at(-1);
  const words = pending.match(WORD)?.length ?? 0;
  const enough = words >= (first ? FIRST_WORDS : LATER_WORDS);
  return Math.max(mark ? mark.index + mark[0].length : 0, enough ? pending.search(/\S*$/) : 0);
}

// `said`: the text that was sent, from `start` on, as it stood in the text area. Returns one of
//   { kind: "none" }
//   { kind: "append", text }   more was written after what was sent
//   { kind: "edit", from }     sent text was changed; what follows has to be said again from `from`, a word's start
export function change(value, start, said) {
  if (value.slice(0, start + said.length).endsWith(said) && value.length >= start + said.length) {
    const text = value.slice(start + said.length);
    return text ? { kind: "append", text } : { kind: "none" };
  }
  const now = value.slice(start);
  let same = 0;
  while (same < said.length && same < now.length && said[same] === now[same]) same++;
  return { kind: "edit", from: wordStart(value, start + same) };
}

export function wordStart(text, at) {
  while (at > 0 && !/\s/.test(text[at - 1])) at--;
  return at;
}
