// The cards of a user's servers and the messages to them, kept up to date.

import { all, first, one, write } from "./elements.js";
import { keepUpToDate, page } from "./hub.js";
import { secondsUntil, showTimes, timeLeft } from "./times.js";

/**
 * Shows the messages of a newer page.
 * @param {Document} fresh
 */
function showMessages(fresh) {
  const [was, is] = [document, fresh].map((each) => first(each, "#gpuspawner-messages"));
  if (!was || !is || was.dataset.version === is.dataset.version) return;
  was.replaceChildren(...document.importNode(is, true).childNodes);
  was.dataset.version = is.dataset.version;
  showTimes(was);
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

  /** @param {Element} list */
  const byName = (list) => new Map(all(list, ":scope > *").map((card) => [card.dataset.serverName, card]));

  async function look() {
    const found = await page();
    const fresh = found && first(found, "#gpuspawner-cards");
    if (!fresh) return;
    showMessages(found);
    const was = byName(cards);
    const is = byName(fresh);
    const changed = [...is].filter(([name, card]) => was.get(name)?.dataset.version !== card.dataset.version);
    if (!changed.length && was.size === is.size) return;
    const told = changed.filter(([name, card]) => was.get(name)?.dataset.state !== card.dataset.state);
    for (const [name, card] of was) if (!is.has(name)) card.remove();
    /** @type {Element | null} */
    let before = null;
    for (const [name, card] of is) {
      const old = was.get(name);
      const same = old?.dataset.version === card.dataset.version;
      const put = same && old ? old : document.importNode(card, true);
      if (!same && old) {
        const open = new Map(all(old, "details", HTMLDetailsElement).map((fold) => [fold.dataset.fold, fold.open]));
        for (const fold of all(put, "details", HTMLDetailsElement))
          fold.open = open.get(fold.dataset.fold) ?? fold.open;
        const active = document.activeElement;
        const focused = active && old.contains(active) && purpose(active);
        old.replaceWith(put);
        if (focused)
          all(put, CONTROLS)
            .find((each) => purpose(each) === focused)
            ?.focus();
      } else if (!old) {
        if (before) before.after(put);
        else cards.prepend(put);
      }
      before = put;
    }
    showTimes(cards);
    tick(true);
    if (told.length) news.textContent = told.map(([, card]) => card.dataset.news).join(" ");
  }

  tick(false);
  setInterval(() => tick(true), 5_000);
  keepUpToDate(look, () => all(cards, ":scope > *").some((card) => /^st(art|opp)ing$/.test(card.dataset.state ?? "")));
}

const serversPlace = first(document, "#gpuspawner-servers");
if (serversPlace) servers(serversPlace);
