// The hub, as a page's script sees it: where it is, and a page as the hub sends it now.

import { first, write } from "./elements.js";

/** The hub's base URL, with a slash at its end. */
export const base = window.jhdata?.base_url ?? "/hub/";

const LIVE_INTERVAL = 30_000;
const SOON_INTERVAL = 3_000;
const PATIENCE = 10_000;

/**
 * What the hub answers to a question of this person's in JSON.
 * @param {string} path below the hub's `api/gpuspawner/`
 * @param {{body: object, signal?: AbortSignal}} [sent] asked by POST
 */
export function ask(path, sent) {
  const headers = { "Content-Type": "application/json", "X-XSRFToken": window.jhdata?.xsrf_token ?? "" };
  const posted = sent && { method: "POST", body: JSON.stringify(sent.body), signal: sent.signal };
  return fetch(`${base}api/gpuspawner/${path}`, { headers, ...posted });
}

/**
 * Say why the page is not kept up to date; nothing: it is.
 * @param {"away" | "signedOut" | ""} why
 */
export function showAway(why) {
  const notice = first(document, "#gpuspawner-away");
  if (!notice) return;
  const text = notice.dataset[why] ?? "";
  notice.hidden = !text;
  write(notice, text);
}

/**
 * The page at this address as the hub sends it now; null, and said so, where the hub is away or wants a sign-in.
 * @param {string} address
 */
export async function page(address = location.href) {
  try {
    const answer = await fetch(address, { signal: AbortSignal.timeout(PATIENCE) });
    const refused = answer.redirected || answer.status === 403;
    showAway(refused ? "signedOut" : answer.ok ? "" : "away");
    if (refused || !answer.ok) return null;
    return new DOMParser().parseFromString(await answer.text(), "text/html");
  } catch {
    showAway("away");
    return null;
  }
}

/**
 * Call `look` every half minute while the page is visible, and when it becomes visible or the network comes or goes;
 * every three seconds while `changing` says that something is about to change. One call follows the end of the one before.
 * @param {() => unknown} look
 * @param {() => boolean} changing
 */
export function keepUpToDate(look, changing = () => false) {
  let timer = 0;
  let looking = false;

  async function turn() {
    if (looking || document.visibilityState !== "visible") return;
    looking = true;
    clearTimeout(timer);
    try {
      await look();
    } finally {
      looking = false;
      plan();
    }
  }

  function plan() {
    timer = setTimeout(turn, changing() ? SOON_INTERVAL : LIVE_INTERVAL);
  }

  document.addEventListener("visibilitychange", turn);
  for (const change of ["online", "offline"]) window.addEventListener(change, turn);
  plan();
}
