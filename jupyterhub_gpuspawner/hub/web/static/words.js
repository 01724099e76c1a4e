// Durations and times of day in words, as Python says them (words.py, hub/times.py): on pages, and in JupyterLab.

/**
 * "45 s", "12 min", "1 h 30 min", "2 days 12 h": rounded down.
 * @param {number} seconds
 */
export function duration(seconds) {
  const whole = Math.max(0, Math.floor(seconds + 0.001));
  if (whole < 60) return `${whole} s`;
  const hours = Math.floor(whole / 3600);
  const [more, less] =
    hours < 48
      ? [`${hours} h`, `${Math.floor(whole / 60) % 60} min`]
      : [`${Math.floor(hours / 24)} days`, `${hours % 24} h`];
  return [more, less].filter((part) => !part.startsWith("0 ")).join(" ");
}

/**
 * The time of day in the reader's zone and language, with the date where it is not today.
 * @param {Date} at
 * @param {number} now milliseconds since the epoch
 */
export function clock(at, now) {
  if (at.toDateString() === new Date(now).toDateString()) return at.toLocaleTimeString([], { timeStyle: "short" });
  return at.toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
}
