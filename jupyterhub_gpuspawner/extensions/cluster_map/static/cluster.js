// The map of the cluster, kept up to date, also while its filter is typed.

import { keepUpToDate, page as pageAt } from "../hub.js";
import { showTimes } from "../times.js";

// updates the map while the filter is typed, and every half minute
function cluster(page) {
  const filter = page.querySelector(".gpuspawner-filter");
  const map = document.getElementById("gpuspawner-map");
  let last = 0;
  let soon = 0;

  async function look(filtered) {
    const mine = ++last;
    if (!filtered && map.querySelector("li details[open]")) return; // somebody is about to stop a server
    const query = new URLSearchParams([...new FormData(filter)].filter(([, value]) => value));
    const address = `${location.pathname}${query.size ? `?${query}` : ""}`;
    query.set("part", "map"); // without what is below it
    const fresh = await pageAt(`${location.pathname}?${query}`);
    const news = fresh?.getElementById("gpuspawner-map");
    if (!news || mine !== last) return;
    if (filtered) history.replaceState(null, "", address);
    const focused =
      map.contains(document.activeElement) && document.activeElement.closest("[data-partition]")?.dataset.partition;
    const was = new Map(
      [...map.querySelectorAll("[data-partition]")].map((each) => [each.dataset.partition, each.open]),
    );
    for (const each of news.querySelectorAll("[data-partition]")) {
      const { partition } = each.dataset;
      if (!filtered && was.has(partition)) each.open = was.get(partition);
    }
    map.replaceChildren(...document.importNode(news, true).childNodes);
    showTimes(map);
    if (focused) map.querySelector(`details[data-partition="${CSS.escape(focused)}"] > summary`)?.focus();
    const words = fresh.getElementById("gpuspawner-summary").textContent;
    document.getElementById("gpuspawner-summary").textContent = words;
    if (filtered) document.getElementById("gpuspawner-found").textContent = words;
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
}

const clusterPage = document.getElementById("gpuspawner-cluster");
if (clusterPage?.querySelector(".gpuspawner-filter")) cluster(clusterPage);
