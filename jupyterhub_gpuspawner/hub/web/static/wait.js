// The page of a server that is starting, stopping, or not running.

import { all, copyOnClick, first, one, wordsIn, write } from "./elements.js";
import { base } from "./hub.js";
import { say, secondsUntil } from "./times.js";
import { duration } from "./words.js";

/** @typedef {{name: string, text: string, at?: string}} Note */
/** @typedef {{name: string, title: string, state: "done" | "current" | "coming", at?: string, took?: number}} Stage */
/**
 * What the hub tells of a start (hub/server/waiting.py).
 * @typedef {object} Told
 * @property {string} headline
 * @property {string} sentence
 * @property {Note[]} notes
 * @property {Stage[]} stages
 * @property {boolean} silent
 * @property {string} answered
 * @property {string | null} answered_at
 * @property {string} place
 * @property {string} when
 * @property {string} why
 * @property {string} job
 * @property {{past: number, start: number, end: number, latest: string} | null} bar
 */

/** Seconds in line from which on a click on *Leave the line* asks first. */
const LONG_WAIT = 120;
/** Milliseconds between two looks whether the sign-in still holds. */
const SIGN_IN_INTERVAL = 120_000;

/** @param {HTMLElement} page */
function waitForServer(page) {
  const words = wordsIn("gpuspawner-words");
  const heading = one(document, "#gpuspawner-headline");
  const message = one(document, "#progress-message");
  const form = one(document, "#gpuspawner-stop-form", HTMLFormElement);
  const stop = one(document, "#gpuspawner-stop", HTMLButtonElement);
  const notify = one(document, "#gpuspawner-notify", HTMLButtonElement);
  /** @param {string} name */
  const fact = (name) => one(page, `[data-fact="${name}"]`);
  const wanted = `gpuspawner-notify ${form.action} ${page.dataset.begun}`; // for this start alone
  let over = false;
  let queued = first(page, '[data-stage="queued"].current') !== undefined;
  let patience = 0;

  /** @param {string} text */
  function tell(text) {
    if (text !== message.textContent?.trim()) message.textContent = text;
  }

  /** @param {string} text */
  function headline(text) {
    const titled = words.titled.replace("{headline}", text);
    write(heading, titled);
    document.title = `${titled} - JupyterHub`;
  }

  /**
   * A fact, without its box where there is none.
   * @param {string} name
   * @param {string} text
   */
  function showFact(name, text, box = fact(name)) {
    box.hidden = !text;
    say(fact(name), text);
  }

  /** @param {Told["bar"]} bar */
  function showBar(bar) {
    const box = one(page, ".gpuspawner-bar");
    box.toggleAttribute("data-unknown", !bar);
    if (!bar) return;
    const { past, start, end, latest } = bar;
    const widths = [past, start, end - start, past, past, end];
    all(box, ".gs-axis > * > svg", SVGElement).forEach((svg, n) => {
      svg.setAttribute("width", `${widths[n]}%`);
    });
    one(box, ".gs-axis > span").className = past < 50 ? "first" : "last"; // on the axis, and beside that of the end
    say(one(box, ".gs-axis > span:last-child > span"), "by {time}", latest);
  }

  /**
   * The sentences above the stages, whichever they are: those that stay are not touched.
   * @param {Note[]} notes
   */
  function showNotes(notes) {
    const box = one(document, "#gpuspawner-notes");
    const items = notes.map(({ name, text, at }) => {
      const item = first(box, `[data-fact="${name}"]`) ?? document.createElement("p");
      item.dataset.fact = name;
      say(item, text, at);
      return item;
    });
    if (items.some((item, n) => item !== box.children[n]) || items.length !== box.children.length) {
      box.replaceChildren(...items.flatMap((item) => [item, " "])); // they are one paragraph
    }
  }

  /**
   * "took 6 s" for a stage that is done, "for 12 min" for the current one.
   * @param {HTMLElement} item
   */
  function showDuration(item) {
    const { since, took } = item.dataset;
    const current = item.className === "current";
    const seconds = current && since ? -secondsUntil(since) : Number(took || 0);
    const sentence = current ? words.lasts : words.took;
    const text = seconds >= 1 ? sentence.replace("{duration}", duration(seconds)) : "";
    write(one(item, '[data-part="lasts"]'), text);
  }

  /** @param {Told} told */
  function show(told) {
    headline(told.headline);
    page.dispatchEvent(new CustomEvent("gpuspawner-told", { detail: told })); // for scripts of extensions
    tell(told.sentence);
    showNotes(told.notes);
    fact("answered").hidden = !told.silent;
    say(fact("answered"), told.answered, told.answered_at);
    showFact("place", told.place);
    showFact("when", told.when);
    showFact("why", told.why);
    one(page, 'dt:has(+ [data-fact="why"])').hidden = !told.why;
    showFact("job", told.job, one(document, "#gpuspawner-job"));
    showBar(told.bar);
    queued = told.stages.some((stage) => stage.name === "queued" && stage.state === "current");
    heading.classList.toggle("waiting", queued);
    heading.classList.toggle("starting", !queued);
    write(one(stop, "span"), queued ? words.leave : words.stop);
    for (const stage of told.stages) {
      const item = first(page, `[data-stage="${stage.name}"]`);
      if (!item) continue;
      item.className = stage.state;
      item.dataset.since = stage.at ?? "";
      item.dataset.took = `${stage.took ?? ""}`;
      if (stage.state === "current") item.setAttribute("aria-current", "step");
      else item.removeAttribute("aria-current");
      say(one(item, '[data-part="title"]'), stage.title);
      one(item, '[data-part="state"]').textContent = `(${words.states[stage.state]})`;
      showDuration(item);
    }
  }

  /** @param {string} text */
  function notice(text) {
    if (sessionStorage.getItem(wanted) && "Notification" in window && Notification.permission === "granted") {
      new Notification(text, { tag: wanted });
    }
    sessionStorage.removeItem(wanted);
  }

  /** Reload the page as soon as the hub responds. */
  async function lookAgain() {
    const asked = fetch(page.dataset.aliveUrl ?? "", { signal: AbortSignal.timeout(5000) }); // a frozen hub never answers
    const alive = await asked.then(
      (answer) => answer.ok,
      () => false,
    );
    if (alive) window.location.reload();
    else {
      tell(words.hub_away);
      setTimeout(lookAgain, 2000);
    }
  }

  /**
   * Our stream sends an event at least every three seconds. Where none comes, the hub is busy or frozen, and its next
   * event puts the page right; or it has gone, and a proxy holds the stream open.
   */
  function expectNews() {
    clearTimeout(patience);
    patience = setTimeout(() => {
      tell(words.hub_away);
      patience = setTimeout(() => {
        events.close();
        lookAgain();
      }, 17000);
    }, 8000);
  }

  /**
   * Whether the server itself responds: a start that was stopped elsewhere is reported as "ready" for a second, too.
   * @param {string} url
   */
  async function answers(url) {
    const asked = fetch(`${url}api`, { signal: AbortSignal.timeout(5000) });
    const answer = await asked.catch(() => ({ status: 0 })); // slow, or on another origin
    return answer.status < 500 && answer.status !== 424; // what the hub responds for a server that is not running
  }

  const events = new EventSource(page.dataset.progressUrl ?? "");
  events.onmessage = async (event) => {
    const { message: text, progress, gpuspawner: told, ready, failed, stopped, url } = JSON.parse(event.data);
    if (told) {
      show(told);
      expectNews();
    }
    if (ready || failed) {
      over = true;
      clearTimeout(patience);
      events.close();
      if (failed && !stopped)
        notice(words.failed); // somebody wanted the end of one that was stopped
      else if (ready && (await answers(url))) {
        headline(words.started);
        notice(words.ready);
      }
      window.location.reload();
    } else if (!told && text && progress !== 0) tell(text); // JupyterHub's own first event says nothing new
  };
  if (page.querySelector("[data-stage]")) expectNews(); // the hub may freeze before its first event
  // the hub was restarted, or the start is over: the page as it is now says which
  events.onerror = () => {
    events.close();
    clearTimeout(patience);
    if (!over) setTimeout(lookAgain, 2000);
  };

  // too many tabs: this one looks again in half a minute
  events.addEventListener("elsewhere", () => {
    events.close();
    clearTimeout(patience);
    if (!over) setTimeout(lookAgain, 30_000);
  });

  /** From here on another page says what happens. */
  function leave() {
    over = true;
    clearTimeout(patience);
    events.close(); // JupyterHub's progress reports a cancelled start as ready for a second
  }

  function showSignedOut() {
    one(document, "#gpuspawner-signed-out").hidden = false;
    stop.disabled = true;
  }

  /** The stream goes on where the sign-in has ended, and so would the page. */
  async function checkSignIn() {
    const headers = { "X-XSRFToken": window.jhdata?.xsrf_token ?? "" }; // without it JupyterHub refuses everybody
    const answer = await fetch(`${base}api/user`, { headers }).catch(() => null);
    if (answer?.status === 403) showSignedOut();
  }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (queued && -secondsUntil(page.dataset.begun) > LONG_WAIT) {
      window.location.assign(form.action); // asks
      return;
    }
    stop.disabled = true;
    leave();
    for (const gone of all(page, "#gpuspawner-progress, .gpuspawner-now > [data-fact], #gpuspawner-notes"))
      gone.hidden = true;
    tell(words.stopping);
    // without a file: a form as JupyterHub reads one
    const body = new URLSearchParams([...new FormData(form)].map(([name, value]) => [name, `${value}`]));
    const answer = await fetch(form.action, { method: "POST", body }).catch(() => null);
    if (answer?.ok) window.location.assign(answer.url);
    else if (answer?.status === 403) showSignedOut();
    else {
      tell(words.not_stopped);
      setTimeout(() => window.location.reload(), 5000);
    }
  });

  page.addEventListener("submit", (event) => {
    if (event.target === form) return;
    if (over)
      event.preventDefault(); // a second click
    else {
      leave();
      tell(words.switching);
    }
  });

  function notifyIsOn() {
    notify.setAttribute("aria-pressed", "true");
    write(one(notify, "span"), words.notify_on);
    notify.disabled = true;
  }

  notify.addEventListener("click", async () => {
    if ((await Notification.requestPermission()) === "granted") {
      sessionStorage.setItem(wanted, "yes");
      notifyIsOn();
    } else {
      write(one(notify, "span"), words.notify_denied);
      notify.disabled = true;
    }
  });
  notify.hidden = !("Notification" in window && window.isSecureContext);
  one(document, "#gpuspawner-notify-needs").hidden = notify.hidden;
  if (sessionStorage.getItem(wanted)) notifyIsOn();
  setInterval(() => all(page, "[data-stage][data-since]").forEach(showDuration), 5000);
  setInterval(checkSignIn, SIGN_IN_INTERVAL);
  document.addEventListener("visibilitychange", checkSignIn);
  window._jupyterhub_page_loaded = true;
}

const copy = first(document, "#gpuspawner-copy", HTMLButtonElement);
if (copy) copy.hidden = !copyOnClick(copy, "Copied", () => one(document, "#gpuspawner-report").textContent ?? "");
const pending = first(document, "#gpuspawner-pending");
if (pending) waitForServer(pending);
if (first(document, "#gpuspawner-stopping")) setTimeout(() => window.location.reload(), 3000);
