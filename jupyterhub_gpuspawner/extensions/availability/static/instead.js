// The page of a server that waits in the queue: what is free instead.

import { first, one } from "../elements.js";
import { page as pageNow } from "../hub.js";

/** @typedef {{headline: string, stages: {name: string, state: string}[]}} Told */

/** @param {HTMLElement} page */
function keepAlternatives(page) {
  let looking = false;
  let over = false;
  let inLine = "";

  /**
   * Who no longer waits has nothing to switch from; who begins to wait is told at once what is free.
   * @param {Told} told
   */
  function showAlternatives(told) {
    const queued = told.stages.some((stage) => stage.name === "queued" && stage.state === "current");
    if (!queued) one(document, "#gpuspawner-instead").hidden = true;
    else if (inLine && inLine !== told.headline) lookForAlternatives();
    inLine = told.headline;
  }

  /** What is free changes while one waits; asked for rarely, since many wait at the same time. */
  async function lookForAlternatives() {
    const shown = one(document, "#gpuspawner-instead");
    if (over || looking || document.visibilityState !== "visible" || shown.contains(document.activeElement)) return;
    looking = true;
    const fresh = await pageNow();
    looking = false;
    const now = fresh && first(fresh, "#gpuspawner-instead");
    if (now && !over && now.innerHTML !== shown.innerHTML) shown.replaceWith(now);
  }

  page.addEventListener("gpuspawner-told", (event) => {
    if (event instanceof CustomEvent) showAlternatives(event.detail);
  });
  page.addEventListener("submit", () => {
    over = true;
  });
  setInterval(lookForAlternatives, 120_000);
  document.addEventListener("visibilitychange", lookForAlternatives);
}

const pending = first(document, "#gpuspawner-pending");
if (pending) keepAlternatives(pending);
