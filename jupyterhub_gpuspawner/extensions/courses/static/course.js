// The page of a course, kept up to date by a stream of events.

import { keepUpToDate } from "../hub.js";
import { duration, now, showTimes } from "../times.js";

const MINUTE = 60_000;
const PATIENCE = 10_000;

function parsed(html) {
  return new DOMParser().parseFromString(html, "text/html").body;
}

// shows what the hub sends: the head, and the tiles that have changed; what somebody opened or selected stays so
function course(page) {
  const head = document.getElementById("gpuspawner-head");
  const tiles = document.getElementById("gpuspawner-tiles");
  const away = document.getElementById("gpuspawner-away");
  const news = document.getElementById("gpuspawner-news");
  const say = page.dataset;
  let version = say.version;
  let shownHead = "";
  let stream = null;
  let silence = 0;

  function tick() {
    for (const left of page.querySelectorAll("[data-ends]")) {
      const span = Date.parse(left.dataset.ends) - now();
      const text = span <= 0 ? say.over : span < MINUTE ? say.less : duration(span / 1000);
      const shown = left.querySelector("[data-left]");
      if (shown.textContent !== text) shown.textContent = text;
    }
  }

  /** What was selected and opened stays so. Returns what finds the focused part of the old tile in the new one. */
  function keep(old, put) {
    const [before, after] = [old, put].map((tile) => tile.querySelector("input[type=checkbox]"));
    after.checked = before.checked && before.value === after.value; // a selection is of one server
    for (const fold of put.querySelectorAll("details")) {
      const was = old.querySelector(`details.${fold.classList[0]}`);
      if (was && old.dataset.state === put.dataset.state) fold.open = was.open;
    }
    const focused = old.contains(document.activeElement) && document.activeElement;
    return focused && (focused.value ? `[value="${CSS.escape(focused.value)}"]` : focused.tagName);
  }

  function showHead(html) {
    if (html === shownHead) return;
    shownHead = html;
    const open = head.querySelector(".gpuspawner-recent")?.open;
    head.replaceChildren(...document.importNode(parsed(html), true).childNodes);
    const recent = head.querySelector(".gpuspawner-recent");
    if (recent && open === false) recent.open = false;
    showTimes(head);
  }

  function show(told) {
    version = told.version;
    if (!tiles || !told.order.length) return location.reload();
    showHead(told.head);
    const known = new Map([...tiles.children].map((each) => [each.dataset.user, each]));
    const helped = [];
    let focus = () => {};
    for (const [user, html] of Object.entries(told.tiles)) {
      const put = document.importNode(parsed(html).querySelector("li"), true);
      const old = known.get(user);
      if (old?.dataset.version === put.dataset.version) continue;
      const focused = old && keep(old, put);
      if (focused) focus = () => put.querySelector(focused)?.focus();
      old?.remove(); // only tiles that have changed move
      known.set(user, put);
      showTimes(put);
      if (put.classList.contains("help") && !old?.classList.contains("help")) helped.push(put);
    }
    told.order.forEach((user, n) => {
      const tile = known.get(user);
      if (tile && tiles.children[n] !== tile) tiles.insertBefore(tile, tiles.children[n] ?? null);
    });
    while (tiles.children.length > told.order.length) tiles.lastElementChild.remove();
    focus();
    tick();
    count();
    if (helped.length) {
      news.textContent = helped
        .map((each) => `${each.dataset.user}: ${each.querySelector(".gs-state").textContent}`)
        .join(", ");
    }
  }

  // the hub ends a stream now and then, and the browser opens another one: that is no news
  function lost() {
    clearTimeout(silence);
    silence = setTimeout(() => (away.hidden = stream.readyState === EventSource.OPEN), PATIENCE);
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

  const boxes = () => [...page.querySelectorAll("#gpuspawner-tiles input[type=checkbox]")];

  function count() {
    const number = boxes().filter((box) => box.checked).length;
    const text = number ? say.selected.replace("{number}", number) : "";
    const shown = document.getElementById("gpuspawner-selected");
    if (shown && shown.textContent !== text) shown.textContent = text;
  }

  function select(event) {
    const wanted = event.target.dataset.select;
    if (!wanted) return;
    for (const box of boxes()) box.checked = wanted === "help" && box.closest("li").classList.contains("help");
    count();
  }

  if (tiles) {
    const choose = document.getElementById("gpuspawner-select");
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
  const link = document.getElementById("gpuspawner-link");
  const copy = document.getElementById("gpuspawner-copy");
  if (!copy || !navigator.clipboard) return; // only exists over https, or on this machine
  const words = copy.textContent;
  copy.hidden = false;
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(link.value);
    copy.textContent = copy.dataset.copied;
    setTimeout(() => (copy.textContent = words), 3000);
  });
}

const coursePage = document.getElementById("gpuspawner-course");
if (coursePage) {
  course(coursePage);
  copyLink();
}
