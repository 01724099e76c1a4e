// Durations and times, in one form on every page.

/** Milliseconds by which the hub's clock is ahead of the browser's, which may be minutes off. */
function skew() {
  const hub = Date.parse(document.querySelector("[data-now]")?.dataset.now ?? "");
  const [page] = performance.getEntriesByType?.("navigation") ?? [];
  if (!hub || !page?.transferSize) return 0; // from the browser's cache: the page is of an earlier time
  const ahead = hub - (performance.timeOrigin + page.responseStart);
  return Math.abs(ahead) < 5000 ? 0 : ahead;
}

const AHEAD = skew();

/** Milliseconds since the epoch by the hub's clock. */
export const now = () => Date.now() + AHEAD;

/** "45 s", "12 min", "1 h 30 min", "2 days 12 h": rounded down, as the hub says durations (words.py). */
export function duration(seconds) {
  const whole = Math.max(0, Math.floor(seconds + 0.001));
  if (whole < 60) return `${whole} s`;
  const [minutes, hours] = [Math.floor(whole / 60), Math.floor(whole / 3600)];
  const parts =
    hours < 48
      ? [
          [hours, "h"],
          [minutes % 60, "min"],
        ]
      : [
          [Math.floor(hours / 24), "days"],
          [hours % 24, "h"],
        ];
  return parts
    .filter(([count]) => count)
    .map(([count, unit]) => `${count} ${unit}`)
    .join(" ");
}

/** The time of day in the reader's zone and language, with the date where it is not today (hub/times.py). */
function clock(at) {
  if (at.toDateString() === new Date(now()).toDateString()) return at.toLocaleTimeString([], { timeStyle: "short" });
  return at.toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
}

function relative(at) {
  const seconds = (at - now()) / 1000;
  if (Math.abs(seconds) < 5) return "now";
  return seconds > 0 ? `in ${duration(seconds)}` : `${duration(-seconds)} ago`;
}

/** A day in the reader's language, "2026-07-01": the same one in every zone. */
function day(text) {
  return new Date(`${text}T00:00`).toLocaleDateString([], { dateStyle: "medium" });
}

function write(element) {
  if (!element.dateTime.includes("T")) {
    element.textContent = day(element.dateTime);
    return;
  }
  const at = new Date(element.dateTime);
  const text = "relative" in element.dataset ? `${relative(at)}, ${clock(at)}` : clock(at);
  if (element.textContent !== text) element.textContent = text;
}

/** Show the times in `root` in the reader's zone and language. */
export function showTimes(root = document) {
  for (const element of root.querySelectorAll("time[datetime]")) write(element);
}

/**
 * Put `text` into `element`, with a time in the place of "{time}"; an element that has not changed is not touched.
 * With `apart` the time is preceded by how far away it is: "in 20 min, 11:38".
 */
export function say(element, text, iso, apart = false) {
  const key = `${text}|${iso || ""}`;
  if (element.dataset.said === key) return;
  element.dataset.said = key;
  const [before, after] = text.split("{time}");
  element.replaceChildren(before);
  if (after === undefined || !iso) return;
  const time = document.createElement("time");
  time.dateTime = iso;
  if (apart) time.dataset.relative = "";
  write(time);
  element.append(time, after);
}

showTimes();
setInterval(() => {
  for (const element of document.querySelectorAll("time[data-relative]")) write(element);
}, 5000);
