// What the page shows about an utterance: numbers, the light behind the words, the level of the sound.

const $ = (id) => document.getElementById(id);
const BARS = 64;
const calm = matchMedia("(prefers-reduced-motion: reduce)");

const ms = (value) => (value === null || value === undefined ? "–" : `${Math.round(value)} ms`);

export function showNumbers(utterance, player, label) {
  $("since").textContent = `after the ${label}`;
  $("first-sound").textContent = ms(utterance.firstSound);
  $("first-byte").textContent = ms(utterance.firstByte);
  const { played, written, underruns, waits } = player.report;
  $("buffer").textContent = player.rate ? ms((1000 * (written - played)) / player.rate) : "–";
  $("underruns").textContent = underruns;
  $("waits").textContent = waits ? `and ${waits} × waiting for text` : "gaps in the sound";
  const seconds = utterance.samples / (utterance.format?.sample_rate ?? 1);
  $("bitrate").textContent = seconds ? `${Math.round((8 * utterance.bytes) / seconds / 1000)} kbit/s` : "–";
  // Sent ahead by a bounded lead, then at the pace of playback: above 1 in the beginning, near 1 later; below is late.
  const took = (utterance.lastByteAt - utterance.firstByteAt) / 1000;
  $("pace").textContent = took > 0.2 ? `${(seconds / took).toFixed(2)} ×` : "–";
  $("queue").textContent = utterance.queued ? `${utterance.queued}.` : "–";
  $("duration").textContent = `${(player.played_ms / 1000).toFixed(1)} s`;
}

// Lights the text area's text up to `said` characters, and the word from there to `now`; `follow` keeps that in sight.
export function showEcho(text, from, said, now, follow = false) {
  $("said").textContent = text.slice(from, said);
  $("now").textContent = text.slice(said, now);
  $("rest").textContent = text.slice(now);
  // What comes before the utterance is neither said nor waiting.
  $("said").previousSibling?.remove();
  $("echo").prepend(text.slice(0, from));
  if (follow && now > said) keepInSight($("text"), $("now"));
  $("echo").scrollTop = $("text").scrollTop;
}

function keepInSight(area, word) {
  const top = word.offsetTop;
  const bottom = top + word.offsetHeight;
  if (top < area.scrollTop || bottom > area.scrollTop + area.clientHeight) {
    area.scrollTop = (top + bottom - area.clientHeight) / 2;
  }
}

// Bars for the sound of now; a line of dots when there is none.
export function showLevels(player, active) {
  const canvas = $("levels");
  const width = canvas.clientWidth * devicePixelRatio;
  const height = canvas.clientHeight * devicePixelRatio;
  if (canvas.width !== Math.round(width)) [canvas.width, canvas.height] = [Math.round(width), Math.round(height)];
  const brush = canvas.getContext("2d");
  brush.clearRect(0, 0, canvas.width, canvas.height);
  brush.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(active ? "--accent" : "--line");
  const levels = active && !calm.matches ? player.levels(BARS) : new Float32Array(BARS);
  const step = canvas.width / BARS;
  levels.forEach((level, i) => {
    const tall = Math.max(2 * devicePixelRatio, level * canvas.height * 0.9);
    brush.beginPath();
    brush.roundRect(i * step + step * 0.3, (canvas.height - tall) / 2, step * 0.4, tall, step * 0.2);
    brush.fill();
  });
}
