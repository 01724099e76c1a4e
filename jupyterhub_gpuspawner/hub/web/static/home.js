// The cards of a user's servers and the messages to them, kept up to date.

import { all, first, one, write } from "./elements.js";
import { keepUpToDate, page } from "./hub.js";
import { secondsUntil, showTimes, timeLeft } from "./times.js";

/**
 * What is new: the servers' names in order, their cards where they have changed, and the messages.
 * @typedef {{order: string[], cards: Record<string, string | HTMLElement>, messages: string | undefined}} Home
 */

const CHANGING = ["waiting", "starting", "stopping"];

/** @param {string} html */
const parsed = (html) => document.importNode(new DOMParser().parseFromString(html, "text/html").body, true);

let shownMessages = "";

/** @param {string | undefined} html */
function showMessages(html) {
  const place = first(document, "#gpuspawner-messages");
  if (!place || html === undefined || html === shownMessages) return;
  shownMessages = html;
  const fresh = parsed(html);
  if (fresh.textContent?.trim() === place.textContent?.trim()) return;
  place.replaceChildren(...fresh.childNodes);
  showTimes(place);
}

const CONTROLS = "a, button, summary, [tabindex]";

/**
 * What a link, a button or a fold of a card is for: the same in the card that replaces it.
 * @param {Element} control
 */
function purpose(control) {
  const fold = control.closest("details")?.dataset.fold ?? "";
  const action = control instanceof HTMLButtonElement ? control.form?.action : undefined;
  return `${control.tagName} ${control.getAttribute("href") ?? action ?? control.ariaLabel ?? ""} ${fold}`;
}

/**
 * Keeps the time left up to date; a change is announced once, when it happens.
 * @param {HTMLElement} place
 */
function servers(place) {
  const cards = one(document, "#gpuspawner-cards");
  const news = one(document, "#gpuspawner-news");
  const say = place.dataset;
  /** @type {Map<string | undefined, string>} */
  const warned = new Map();
  const minute = 60;

  /** @param {boolean} spoken */
  function tick(spoken) {
    for (const card of all(cards, ":scope > *")) {
      const ends = first(card, "[data-ends]");
      if (!ends) continue;
      const left = secondsUntil(ends.dataset.ends);
      const level = left <= 0 ? "timeIsOver" : left <= 5 * minute ? "verySoon" : left <= 15 * minute ? "soon" : "";
      const text = (level && say[level]) ?? "";
      const warning = one(card, "[data-warning]");
      write(one(card, "[data-left]"), timeLeft(left, say));
      warning.hidden = !text;
      warning.textContent = text;
      const began = Date.parse(ends.dataset.began ?? "");
      const end = Date.parse(ends.dataset.ends ?? "");
      const bar = first(card, ".gs-time > .gs-bar");
      if (bar && began < end) {
        const spent = 100 - (100 * left * 1000) / (end - began);
        first(bar, "svg", SVGElement)?.setAttribute("width", `${Math.max(0, Math.min(100, spent)).toFixed(1)}%`);
        bar.classList.toggle("wait", level !== "");
        bar.classList.toggle("good", level === "");
      }
      const { serverName, title } = card.dataset;
      if (spoken && level && warned.get(serverName) !== level) {
        news.textContent = `${title}: ${text}`;
      }
      warned.set(serverName, level);
    }
  }

  /**
   * What a card that replaces another one keeps: what was open, and the focus.
   * @param {HTMLElement} old
   * @param {HTMLElement} put
   */
  function replace(old, put) {
    const open = new Map(all(old, "details", HTMLDetailsElement).map((fold) => [fold.dataset.fold, fold.open]));
    for (const fold of all(put, "details", HTMLDetailsElement)) fold.open = open.get(fold.dataset.fold) ?? fold.open;
    const active = document.activeElement;
    const focused = active && old.contains(active) && purpose(active);
    old.replaceWith(put);
    if (!focused) return;
    all(put, CONTROLS)
      .find((each) => purpose(each) === focused)
      ?.focus();
  }

  /** @param {Home} home */
  function show(home) {
    showMessages(home.messages);
    const known = new Map(all(cards, ":scope > *").map((card) => [card.dataset.serverName ?? "", card]));
    /** @type {string[]} */
    const told = [];
    for (const [name, html] of Object.entries(home.cards)) {
      const put = html instanceof HTMLElement ? html : one(parsed(html), "[data-server-name]");
      const old = known.get(name);
      if (old?.isEqualNode(put) || (put.dataset.version && old?.dataset.version === put.dataset.version)) continue;
      for (const token of all(put, "input[name=_xsrf]", HTMLInputElement))
        token.value = window.jhdata?.xsrf_token ?? token.value;
      if (old?.dataset.state !== put.dataset.state) told.push(put.dataset.news ?? "");
      if (old) replace(old, put);
      known.set(name, put);
      showTimes(put);
    }
    for (const [name, card] of known) if (!home.order.includes(name)) card.remove();
    home.order.forEach((name, n) => {
      const card = known.get(name);
      if (card && cards.children[n] !== card) cards.insertBefore(card, cards.children[n] ?? null);
    });
    tick(true);
    if (told.length) news.textContent = told.join(" ");
  }

  /** The whole page; returns it, or null where the hub does not answer. */
  async function look() {
    const fresh = await page();
    const place = fresh && first(fresh, "#gpuspawner-servers");
    if (fresh && place) {
      /** @type {[string, HTMLElement][]} */
      const whole = all(place, "#gpuspawner-cards > *").map((card) => [card.dataset.serverName ?? "", card]);
      show({
        order: whole.map(([name]) => name),
        cards: Object.fromEntries(whole),
        messages: first(fresh, "#gpuspawner-messages")?.innerHTML,
      });
    }
    return place && fresh;
  }

  /** For the script of an extension, which shows what it is told; with `live` it decides when to look, too. */
  const home = { show, look, live: false };
  const changing = () => all(cards, ":scope > *").some((card) => CHANGING.includes(card.dataset.state ?? ""));
  keepUpToDate(
    () => home.live || look(),
    () => !home.live && changing(),
  );
  tick(false);
  setInterval(() => tick(true), 5_000);
  return home;
}

const place = first(document, "#gpuspawner-servers");
export const home = place && servers(place);
