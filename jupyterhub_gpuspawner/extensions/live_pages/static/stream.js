// A page's stream of events: closed while nobody sees the page.

/** Milliseconds until a stream that has ended, and has not been opened again, is lost. */
const PATIENCE = 10_000;

/**
 * @typedef {object} Reader what a page does with its stream
 * @property {(event: any) => void} show
 * @property {(away: boolean) => void} away whether the hub knows what has changed; told also of each stream that opens
 * @property {() => void} lost
 * @property {() => void} [elsewhere] too many tabs: this one's stream has been closed
 */

/**
 * Returns what opens the stream, unless it is open.
 * @param {() => string} url
 * @param {Reader} reader
 */
export function stream(url, reader) {
  /** @type {EventSource | null} */
  let source = null;
  let silence = 0;

  function open() {
    if (source && source.readyState !== EventSource.CLOSED) return;
    source = new EventSource(url());
    source.addEventListener("open", () => {
      clearTimeout(silence);
      reader.away(false);
    });
    source.addEventListener("message", (event) => reader.show(JSON.parse(event.data)));
    source.addEventListener("away", () => reader.away(true));
    source.addEventListener("back", () => reader.away(false));
    source.addEventListener("elsewhere", () => {
      close();
      reader.elsewhere?.();
    });
    source.addEventListener("error", miss);
  }

  // the hub ends a stream now and then, and the browser opens another one: that is no news
  function miss() {
    clearTimeout(silence);
    silence = setTimeout(() => source?.readyState !== EventSource.OPEN && reader.lost(), PATIENCE);
  }

  function close() {
    clearTimeout(silence);
    source?.close();
  }

  document.addEventListener("visibilitychange", () => document.visibilityState === "hidden" && close());
  addEventListener("pagehide", close);
  return open;
}
