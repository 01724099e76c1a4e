// The page of a course, kept up to date by a stream of events.

import { all, copyOnClick, first, one, write } from "../elements.js";
import { keepUpToDate } from "../hub.js";
import { secondsUntil, showTimes, timeLeft } from "../times.js";

const PATIENCE = 10_000;

/**
 * What the hub tells of a course: its head, and tiles that have changed, as HTML.
 * @typedef {{version: string, order: string[], head: string, tiles: Record<string, string>}} Told
 */

/** @param {string} html */
function parsed(html) {
  return new DOMParser().parseFromString(html, "text/html").body;
}

/**
 * Shows what the hub sends: the head, and the tiles that have changed; what somebody opened or selected stays so.
 * @param {HTMLElement} page
 */
function course(page) {
  const head = one(document, "#gpuspawner-head");
  const tiles = first(document, "#gpuspawner-tiles");
  const away = one(document, "#gpuspawner-away");
  const news = one(document, "#gpuspawner-news");
  const say = page.dataset;
  let version = say.version ?? "";
  let shownHead = "";
  /** @type {EventSource | null} */
  let stream = null;
  let silence = 0;

  function tick() {
    for (const left of all(page, "[data-ends]")) {
      write(one(left, "[data-left]"), timeLeft(secondsUntil(left.dataset.ends), say));
    }
  }

  /**
   * What was selected and opened stays so. Returns what finds the focused part of the old tile in the new one.
   * @param {HTMLElement} old
   * @param {HTMLElement} put
   */
  function keep(old, put) {
    const before = one(old, "input[type=checkbox]", HTMLInputElement);
    const after = one(put, "input[type=checkbox]", HTMLInputElement);
    after.checked = before.checked && before.value === after.value; // a selection is of one server
    for (const fold of all(put, "details", HTMLDetailsElement)) {
      const was = first(old, `details.${fold.classList[0]}`, HTMLDetailsElement);
      if (was && old.dataset.state === put.dataset.state) fold.open = was.open;
    }
    const focused = document.activeElement;
    if (!focused || !old.contains(focused)) return "";
    const value = focused.getAttribute("value");
    return value ? `[value="${CSS.escape(value)}"]` : focused.tagName;
  }

  /** @param {string} html */
  function showHead(html) {
    if (html === shownHead) return;
    shownHead = html;
    const open = first(head, ".gpuspawner-recent", HTMLDetailsElement)?.open;
    head.replaceChildren(...document.importNode(parsed(html), true).childNodes);
    const recent = first(head, ".gpuspawner-recent", HTMLDetailsElement);
    if (recent && open === false) recent.open = false;
    showTimes(head);
  }

  /** @param {Told} told */
  function show(told) {
    version = told.version;
    if (!tiles || !told.order.length) {
      location.reload();
      return;
    }
    showHead(told.head);
    const known = new Map(all(tiles, ":scope > *").map((each) => [each.dataset.user, each]));
    /** @type {HTMLElement[]} */
    const helped = [];
    let focus = () => {};
    for (const [user, html] of Object.entries(told.tiles)) {
      const put = document.importNode(one(parsed(html), "li"), true);
      const old = known.get(user);
      if (old?.dataset.version === put.dataset.version) continue;
      const focused = old && keep(old, put);
      if (focused) focus = () => first(put, focused)?.focus();
      old?.remove(); // only tiles that have changed move
      known.set(user, put);
      showTimes(put);
      if (put.classList.contains("help") && !old?.classList.contains("help")) helped.push(put);
    }
    told.order.forEach((user, n) => {
      const tile = known.get(user);
      if (tile && tiles.children[n] !== tile) tiles.insertBefore(tile, tiles.children[n] ?? null);
    });
    while (tiles.children.length > told.order.length) tiles.lastElementChild?.remove();
    focus();
    tick();
    count();
    if (helped.length) {
      news.textContent = helped.map((each) => `${each.dataset.user}: ${one(each, ".gs-state").textContent}`).join(", ");
    }
  }

  // the hub ends a stream now and then, and the browser opens another one: that is no news
  function lost() {
    clearTimeout(silence);
    silence = setTimeout(() => {
      away.hidden = stream?.readyState === EventSource.OPEN;
    }, PATIENCE);
  }

  function listen() {
    if (stream && stream.readyState !== EventSource.CLOSED) return;
    stream = new EventSource(`${say.stream}?version=${version}`);
    stream.addEventListener("open", () => {
      clearTimeout(silence);
      away.hidden = true;
    });
    stream.addEventListener("message", (event) => show(JSON.parse(event.data)));
    stream.addEventListener("elsewhere", close); // too many tabs: this one looks again in half a minute
    stream.addEventListener("error", lost);
  }

  function close() {
    clearTimeout(silence);
    stream?.close();
  }

  const boxes = () => all(page, "#gpuspawner-tiles input[type=checkbox]", HTMLInputElement);

  function count() {
    const number = boxes().filter((box) => box.checked).length;
    const shown = first(document, "#gpuspawner-selected");
    if (shown) write(shown, number ? (say.selected ?? "").replace("{number}", `${number}`) : "");
  }

  /** @param {Event} event */
  function select({ target }) {
    const wanted = target instanceof HTMLElement && target.dataset.select;
    if (!wanted) return;
    for (const box of boxes())
      box.checked = wanted === "help" && (box.closest("li")?.classList.contains("help") ?? false);
    count();
  }

  if (tiles) {
    const choose = one(document, "#gpuspawner-select");
    choose.hidden = false;
    choose.addEventListener("click", select);
    tiles.addEventListener("change", count);
    count();
  }
  tick();
  setInterval(tick, 5_000);
  listen();
  keepUpToDate(listen);
  document.addEventListener("visibilitychange", () => document.visibilityState === "hidden" && close());
  addEventListener("pagehide", close);
}

function copyLink() {
  const copy = first(document, "#gpuspawner-copy", HTMLButtonElement);
  if (!copy) return;
  const link = one(document, "#gpuspawner-link", HTMLInputElement);
  copy.hidden = !copyOnClick(copy, copy.dataset.copied ?? "", () => link.value);
}

const coursePage = first(document, "#gpuspawner-course");
if (coursePage) {
  course(coursePage);
  copyLink();
}
