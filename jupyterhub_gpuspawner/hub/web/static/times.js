// Times of a page, in the reader's zone and language, and by the hub's clock.

import { all, first, write } from "./elements.js";
import { clock, duration } from "./words.js";

/** Milliseconds by which the hub's clock is ahead of the browser's, which may be minutes off. */
function skew() {
  const hub = Date.parse(first(document, "[data-now]")?.dataset.now ?? "");
  const [page] = performance.getEntriesByType?.("navigation") ?? [];
  // from the browser's cache: the page is of an earlier time
  if (!hub || !(page instanceof PerformanceNavigationTiming) || !page.transferSize) return 0;
  const ahead = hub - (performance.timeOrigin + page.responseStart);
  return Math.abs(ahead) < 5000 ? 0 : ahead;
}

const AHEAD = skew();

/** Milliseconds since the epoch by the hub's clock. */
export const now = () => Date.now() + AHEAD;

/** @param {string | undefined} iso */
export const secondsUntil = (iso) => (Date.parse(iso ?? "") - now()) / 1000;

/**
 * How much is left of a time in seconds, in words; `over` and `less` are those for none, and for less than a minute.
 * @param {number} seconds
 * @param {{over?: string, less?: string}} words
 */
export function timeLeft(seconds, { over = "", less = "" }) {
  return seconds <= 0 ? over : seconds < 60 ? less : duration(seconds);
}

/** @param {string} iso */
function relative(iso) {
  const seconds = secondsUntil(iso);
  if (Math.abs(seconds) < 5) return "now";
  return seconds > 0 ? `in ${duration(seconds)}` : `${duration(-seconds)} ago`;
}

/**
 * A day in the reader's language, "2026-07-01": the same one in every zone.
 * @param {string} text
 */
function day(text) {
  return new Date(`${text}T00:00`).toLocaleDateString([], { dateStyle: "medium" });
}

/** @param {HTMLTimeElement} element */
function show(element) {
  const iso = element.dateTime;
  const at = iso.includes("T") ? clock(new Date(iso), now()) : day(iso);
  write(element, "relative" in element.dataset ? `${relative(iso)}, ${at}` : at);
}

/**
 * Show the times in `root` in the reader's zone and language.
 * @param {ParentNode} root
 */
export function showTimes(root = document) {
  all(root, "time[datetime]", HTMLTimeElement).forEach(show);
}

/**
 * Put `text` into `element`, with a time in the place of "{time}"; an element that has not changed is not touched.
 * With `apart` the time is preceded by how far away it is: "in 20 min, 11:38".
 * @param {HTMLElement} element
 * @param {string} text
 * @param {string | null} [iso]
 */
export function say(element, text, iso, apart = false) {
  const key = `${text}|${iso || ""}`;
  if (element.dataset.said === key) return;
  element.dataset.said = key;
  const [before = "", after] = text.split("{time}");
  element.replaceChildren(before);
  if (after === undefined || !iso) return;
  const time = document.createElement("time");
  time.dateTime = iso;
  if (apart) time.dataset.relative = "";
  show(time);
  element.append(time, after);
}

showTimes();
setInterval(() => all(document, "time[data-relative]", HTMLTimeElement).forEach(show), 5000);
