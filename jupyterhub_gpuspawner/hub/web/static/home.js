// The cards of a user's servers and the messages to them, kept up to date.

import { keepUpToDate, page } from "./hub.js";
import { duration, now, showTimes } from "./times.js";

/** Shows the messages of a newer page. */
function showMessages(fresh) {
  const [was, is] = [document, fresh].map((each) => each.getElementById("gpuspawner-messages"));
  if (!was || !is || was.dataset.version === is.dataset.version) return;
  was.replaceChildren(...document.importNode(is, true).childNodes);
  was.dataset.version = is.dataset.version;
  showTimes(was);
}

const CONTROLS = "a, button, summary, [tabindex]";

/** What a link, a button or a fold of a card is for: the same in the card that replaces it. */
function purpose(control) {
  const fold = control.closest("details")?.dataset.fold ?? "";
  return `${control.tagName} ${control.getAttribute("href") ?? control.form?.action ?? control.ariaLabel ?? ""} ${fold}`;
}

// keeps the time left up to date; a change is announced once, when it happens
function servers(place) {
  const cards = document.getElementById("gpuspawner-cards");
  const news = document.getElementById("gpuspawner-news");
  const say = place.dataset;
  const warned = new Map();
  const minute = 60_000;

  function span(left) {
    if (left <= 0) return say.over;
    if (left < minute) return say.less;
    return duration(left / 1000);
  }

  function tick(spoken) {
    for (const card of cards.children) {
      const ends = card.querySelector("[data-ends]");
      if (!ends) continue;
      const left = Date.parse(ends.dataset.ends) - now();
      const level = left <= 0 ? "timeIsOver" : left <= 5 * minute ? "verySoon" : left <= 15 * minute ? "soon" : "";
      const text = level && say[level];
      const warning = card.querySelector("[data-warning]");
      card.querySelector("[data-left]").textContent = span(left);
      warning.hidden = !text;
      warning.textContent = text;
      const { serverName, title } = card.dataset;
      if (spoken && level && warned.get(serverName) !== level) {
        news.textContent = `${title}: ${text}`;
      }
      warned.set(serverName, level);
    }
  }

  const byName = (list) => new Map([...list.children].map((card) => [card.dataset.serverName, card]));

  async function look() {
    const found = await page();
    const fresh = found?.getElementById("gpuspawner-cards");
    if (!fresh) return;
    showMessages(found);
    const was = byName(cards);
    const is = byName(fresh);
    const changed = [...is].filter(([name, card]) => was.get(name)?.dataset.version !== card.dataset.version);
    if (!changed.length && was.size === is.size) return;
    const told = changed.filter(([name, card]) => was.get(name)?.dataset.state !== card.dataset.state);
    for (const [name, card] of was) if (!is.has(name)) card.remove();
    let before = null;
    for (const [name, card] of is) {
      const old = was.get(name);
      const same = old && old.dataset.version === card.dataset.version;
      const put = same ? old : document.importNode(card, true);
      if (!same && old) {
        const open = new Map([...old.querySelectorAll("details")].map((fold) => [fold.dataset.fold, fold.open]));
        for (const fold of put.querySelectorAll("details")) fold.open = open.get(fold.dataset.fold) ?? fold.open;
        const focused = old.contains(document.activeElement) && purpose(document.activeElement);
        old.replaceWith(put);
        if (focused) [...put.querySelectorAll(CONTROLS)].find((each) => purpose(each) === focused)?.focus();
      } else if (!old) {
        before ? before.after(put) : cards.prepend(put);
      }
      before = put;
    }
    showTimes(cards);
    tick(true);
    if (told.length) news.textContent = told.map(([, card]) => card.dataset.news).join(" ");
  }

  tick(false);
  setInterval(() => tick(true), 5_000);
  keepUpToDate(look, () => [...cards.children].some((card) => /^st(art|opp)ing$/.test(card.dataset.state)));
}

const serversPlace = document.getElementById("gpuspawner-servers");
if (serversPlace) servers(serversPlace);
