// The hub, as a page's script sees it: where it is, and a page as the hub sends it now.

/** The hub's base URL, with a slash at its end. */
export const base = window.jhdata?.base_url ?? "/hub/";

const LIVE_INTERVAL = 30_000;

/** The page at this address as the hub sends it now; null where the hub is away or redirects. */
export async function page(address = location.href) {
  try {
    const answer = await fetch(address);
    if (!answer.ok || answer.redirected) return null;
    return new DOMParser().parseFromString(await answer.text(), "text/html");
  } catch {
    return null;
  }
}

/** Call `look` every half minute while the page is visible, and when it becomes visible. */
export function keepUpToDate(look) {
  setInterval(() => document.visibilityState === "visible" && look(), LIVE_INTERVAL);
  document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && look());
}
