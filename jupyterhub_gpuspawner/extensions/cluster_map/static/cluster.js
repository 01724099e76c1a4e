// The map of the cluster, kept up to date, also while its filter is typed.

import { all, closeOnEscape, first, one, write } from "../elements.js";
import { keepUpToDate, page as pageAt } from "../hub.js";
import { showTimes } from "../times.js";

/** @param {ParentNode} map */
const partitions = (map) => all(map, "details[data-partition]", HTMLDetailsElement);

/**
 * Updates the map while the filter is typed, and every half minute.
 * @param {HTMLFormElement} filter
 */
function cluster(filter) {
  const map = one(document, "#gpuspawner-map");
  const summary = one(document, "#gpuspawner-summary");
  let last = 0;
  let soon = 0;

  /** @param {boolean} filtered */
  async function look(filtered) {
    const mine = ++last;
    if (!filtered && map.querySelector("li details[open]")) return; // somebody is about to stop a server
    const query = new URLSearchParams();
    for (const [name, value] of new FormData(filter)) if (value) query.set(name, `${value}`);
    const address = `${location.pathname}${query.size ? `?${query}` : ""}`;
    query.set("part", "map"); // without what is below it
    const fresh = await pageAt(`${location.pathname}?${query}`);
    const news = fresh && first(fresh, "#gpuspawner-map");
    if (!news || mine !== last) return;
    if (filtered) history.replaceState(null, "", address);
    const focused = partitions(map).find((each) => each.contains(document.activeElement))?.dataset.partition;
    const was = new Map(partitions(map).map((each) => [each.dataset.partition, each.open]));
    if (!filtered) for (const each of partitions(news)) each.open = was.get(each.dataset.partition) ?? each.open;
    map.replaceChildren(...document.importNode(news, true).childNodes);
    showTimes(map);
    if (focused) first(map, `details[data-partition="${CSS.escape(focused)}"] > summary`)?.focus();
    summary.replaceChildren(...document.importNode(one(fresh, "#gpuspawner-summary"), true).childNodes);
    if (filtered) write(one(document, "#gpuspawner-found"), one(fresh, "#gpuspawner-found").dataset.words ?? "");
  }

  filter.addEventListener("input", () => {
    clearTimeout(soon);
    soon = setTimeout(() => look(true), 300);
  });
  filter.addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(soon);
    look(true);
  });
  keepUpToDate(() => look(false));
  closeOnEscape(".gpuspawner-run");
}

const filter = first(document, "#gpuspawner-cluster .gpuspawner-filter", HTMLFormElement);
if (filter) cluster(filter);
