// The page of a course, kept up to date by a stream of events.

import { all, closeOnEscape, copyOnClick, first, one, write } from "../elements.js";
import { keepUpToDate } from "../hub.js";
import { stream } from "../live_pages/stream.js";
import { secondsUntil, showTimes, timeLeft } from "../times.js";

/**
 * What the hub tells of a course: its head, and seats that have changed, as HTML.
 * @typedef {{version: string, order: string[], head: string, tiles: Record<string, string>}} Told
 */

/** @param {string} html */
function parsed(html) {
  return new DOMParser().parseFromString(html, "text/html").body;
}

/**
 * What finds the focused part of `root` in what takes its place; nothing where the focus is elsewhere.
 * @param {Element} root
 */
function focusedIn(root) {
  const focused = document.activeElement;
  if (!focused || !root.contains(focused)) return "";
  const value = focused.getAttribute("value");
  return focused.id ? `#${CSS.escape(focused.id)}` : value ? `[value="${CSS.escape(value)}"]` : focused.tagName;
}

/**
 * Shows what the hub sends: the head, and the seats that have changed; what somebody opened or selected stays so.
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

  function tick() {
    for (const left of all(page, "[data-ends]")) {
      write(one(left, "[data-left]"), timeLeft(secondsUntil(left.dataset.ends), say));
    }
  }

  /** @param {string} html */
  function showHead(html) {
    if (html === shownHead) return;
    shownHead = html;
    const focused = focusedIn(head);
    const shown = first(head, "[name=show]:checked")?.id;
    const folds = all(head, "details", HTMLDetailsElement);
    head.replaceChildren(...document.importNode(parsed(html), true).childNodes);
    for (const { id, open } of folds) {
      const fold = first(head, `#${CSS.escape(id)}`, HTMLDetailsElement);
      if (fold) fold.open = open;
    }
    const filter = shown && first(head, `#${shown}`, HTMLInputElement);
    if (filter) filter.checked = true;
    if (focused) first(head, focused)?.focus();
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
      if (old) {
        const focused = focusedIn(old);
        if (focused) focus = () => first(put, focused)?.focus();
        const [before, after] = [boxOf(old), boxOf(put)];
        after.checked = before.checked && before.value === after.value; // a selection is of one server
        after.tabIndex = before.tabIndex;
      }
      known.set(user, put);
      if (old) old.replaceWith(put);
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
    stopAt();
    count();
    if (helped.length) {
      news.textContent = helped.map((each) => `${each.dataset.user}: ${one(each, ".gs-state").textContent}`).join(", ");
    }
  }

  /** @param {boolean} is */
  function showAway(is) {
    away.hidden = !is;
  }

  const listen = stream(() => `${say.stream}?version=${version}`, { show, away: showAway, lost: () => showAway(true) });

  /** @param {ParentNode} seat */
  const boxOf = (seat) => one(seat, "input", HTMLInputElement);
  const boxes = () => all(page, "#gpuspawner-tiles input", HTMLInputElement);

  function count() {
    const number = boxes().filter((box) => box.checked).length;
    write(one(page, "#gpuspawner-selected"), number ? (say.selected ?? "").replace("{number}", `${number}`) : "");
  }

  /**
   * One seat is a stop of the Tab key; arrows lead to the others.
   * @param {HTMLInputElement} [box] by default the one that is it, or else the first
   */
  function stopAt(box) {
    const seats = boxes();
    const stop = box ?? seats.find((each) => each.tabIndex === 0 && each.checkVisibility()) ?? seats[0];
    for (const each of seats) each.tabIndex = each === stop ? 0 : -1;
  }

  /** @param {KeyboardEvent} event */
  function move(event) {
    const seats = boxes().filter((box) => box.checkVisibility());
    const at = event.target instanceof HTMLInputElement ? seats.indexOf(event.target) : -1;
    const top = seats[0]?.getBoundingClientRect().top;
    const row = seats.filter((box) => box.getBoundingClientRect().top === top).length;
    const steps = {
      ArrowRight: 1,
      ArrowLeft: -1,
      ArrowDown: row,
      ArrowUp: -row,
      Home: -at,
      End: seats.length - 1 - at,
    };
    const next = seats[at + (Object.entries(steps).find(([key]) => key === event.key)?.[1] ?? Number.NaN)];
    if (at < 0 || !next || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    next.focus();
  }

  /** @param {Event} event */
  function select({ target }) {
    const button = target instanceof Element && target.closest("[data-select]");
    if (!(button instanceof HTMLButtonElement)) return;
    const keys = button.dataset.select === "these" ? button.value.split("\n") : null;
    const shown = first(head, "[name=show]:checked")?.id.replace("gpuspawner-show-", "") ?? "all";
    for (const box of boxes()) {
      const seat = box.closest("li");
      box.checked = keys ? keys.includes(box.value) : shown === "all" || (seat?.classList.contains(shown) ?? false);
    }
    count();
  }

  if (tiles) {
    page.dataset.live = "";
    page.addEventListener("click", select);
    tiles.addEventListener("keydown", move);
    tiles.addEventListener("focusin", ({ target }) => target instanceof HTMLInputElement && stopAt(target));
    tiles.addEventListener("change", count);
    one(page, "#gpuspawner-room").addEventListener("reset", () => setTimeout(count));
    stopAt();
    count();
  }
  tick();
  setInterval(tick, 5_000);
  listen();
  keepUpToDate(listen);
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
  closeOnEscape(".gs-menu");
}
