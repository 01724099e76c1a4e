// The hub, as a page's script sees it: where it is, and a page as the hub sends it now.

/** The hub's base URL, with a slash at its end. */
export const base = window.jhdata?.base_url ?? "/hub/";

const LIVE_INTERVAL = 30_000;
const SOON_INTERVAL = 3_000;
const PATIENCE = 30_000;

/** The page at this address as the hub sends it now; null where the hub is away or redirects. */
export async function page(address = location.href) {
  try {
    const answer = await fetch(address, { signal: AbortSignal.timeout(PATIENCE) });
    if (!answer.ok || answer.redirected) return null;
    return new DOMParser().parseFromString(await answer.text(), "text/html");
  } catch {
    return null;
  }
}

/**
 * Call `look` every half minute while the page is visible, and when it becomes visible; every three seconds while
 * `changing` says that something is about to change. One call follows the end of the one before.
 */
export function keepUpToDate(look, changing = () => false) {
  let timer = null;
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
  plan();
}
