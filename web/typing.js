// What a change of the text means for speech that has already begun. Pure: no page, no socket.

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
