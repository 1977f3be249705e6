// Shows an utterance: its measurements, the highlighted words, the level of the audio.

const $ = (id) => document.getElementById(id);
const BARS = 64;
const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");

const ms = (value) => (value === null || value === undefined ? "–" : `${Math.round(value)} ms`);

export function showNumbers(utterance, player, label) {
  $("since").textContent = `after the ${label}`;
  $("first-audio").textContent = ms(utterance.firstAudio);
  $("first-byte").textContent = ms(utterance.firstByte);
  const { played, written, underruns, waits } = player.report;
  $("buffer").textContent = player.rate ? ms((1000 * (written - played)) / player.rate) : "–";
  $("underruns").textContent = underruns;
  $("waits").textContent = waits ? `and ${waits} × waiting for text` : "gaps in the audio";
  const seconds = utterance.samples / (utterance.format?.sample_rate ?? 1);
  $("bitrate").textContent = seconds ? `${Math.round((8 * utterance.bytes) / seconds / 1000)} kbit/s` : "–";
  // Audio is sent ahead by a bounded time, then at the pace of playback: above 1 at first, later near 1, below 1 if late.
  const elapsed = (utterance.lastByteAt - utterance.firstByteAt) / 1000;
  $("pace").textContent = elapsed > 0.2 ? `${(seconds / elapsed).toFixed(2)} ×` : "–";
  $("queue").textContent = utterance.queued ? `${utterance.queued}.` : "–";
  $("duration").textContent = `${(player.played_ms / 1000).toFixed(1)} s`;
}

// Highlights the utterance's text from `from` to `spoken`, and the current word from there to `end`; `follow` scrolls to it.
export function showHighlight(text, from, spoken, end, follow = false) {
  $("highlight-spoken").textContent = text.slice(from, spoken);
  $("highlight-word").textContent = text.slice(spoken, end);
  $("highlight-rest").textContent = text.slice(end);
  // Text before the utterance is not highlighted.
  $("highlight-spoken").previousSibling?.remove();
  $("highlight").prepend(text.slice(0, from));
  if (follow && end > spoken) scrollIntoView($("text"), $("highlight-word"));
  $("highlight").scrollTop = $("text").scrollTop;
}

function scrollIntoView(area, word) {
  const top = word.offsetTop;
  const bottom = top + word.offsetHeight;
  if (top < area.scrollTop || bottom > area.scrollTop + area.clientHeight) {
    area.scrollTop = (top + bottom - area.clientHeight) / 2;
  }
}

// Draws bars for the present audio, or a line of dots without any.
export function showLevels(player, active) {
  const canvas = $("levels");
  const width = canvas.clientWidth * devicePixelRatio;
  const height = canvas.clientHeight * devicePixelRatio;
  if (canvas.width !== Math.round(width)) [canvas.width, canvas.height] = [Math.round(width), Math.round(height)];
  const brush = canvas.getContext("2d");
  brush.clearRect(0, 0, canvas.width, canvas.height);
  brush.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(active ? "--accent" : "--line");
  const levels = active && !reducedMotion.matches ? player.levels(BARS) : new Float32Array(BARS);
  const step = canvas.width / BARS;
  levels.forEach((level, i) => {
    const barHeight = Math.max(2 * devicePixelRatio, level * canvas.height * 0.9);
    brush.beginPath();
    brush.roundRect(i * step + step * 0.3, (canvas.height - barHeight) / 2, step * 0.4, barHeight, step * 0.2);
    brush.fill();
  });
}
