// The page of a server that is starting, stopping, or not running.

import { say } from "./times.js";

function waitForServer(page) {
  const words = JSON.parse(document.getElementById("gpuspawner-words").textContent);
  const message = document.getElementById("progress-message");
  const stop = document.getElementById("gpuspawner-stop");
  const notify = document.getElementById("gpuspawner-notify");
  const fact = (name) => page.querySelector(`[data-fact="${name}"]`);
  const wanted = `gpuspawner-notify ${page.dataset.serverUrl}`;
  const plainTitle = document.title;
  let over = false;
  let patience = 0;

  function tell(text) {
    if (text && text !== message.textContent.trim()) message.textContent = text;
  }

  function showLine(name, text, iso) {
    page.querySelector(`[data-line="${name}"]`).hidden = !text;
    say(fact(name), text, iso, true);
  }

  function show(told) {
    say(fact("hint"), told.hint);
    fact("answered").hidden = !told.silent;
    say(fact("answered"), told.answered, told.answered_at);
    say(fact("kept"), told.kept, told.kept_until);
    showLine("place", told.place);
    showLine("estimate", told.estimate, told.starts_at);
    for (const stage of told.stages) {
      const item = page.querySelector(`[data-stage="${stage.name}"]`);
      if (!item) continue;
      item.dataset.state = stage.state;
      if (stage.state === "current") item.setAttribute("aria-current", "step");
      else item.removeAttribute("aria-current");
      const part = (name) => item.querySelector(`[data-part="${name}"]`);
      part("state").textContent = `(${words.states[stage.state]})`;
      part("detail").textContent = stage.detail;
      say(part("at"), stage.at ? "{time}" : "", stage.at);
      if (stage.state === "current") {
        const name = item.querySelector(".gpuspawner-stage-name").textContent;
        document.title = `${told.place || name} - ${plainTitle}`;
      }
    }
  }

  function notice(text) {
    document.title = `${text} - ${plainTitle}`;
    if (sessionStorage.getItem(wanted) && "Notification" in window && Notification.permission === "granted") {
      new Notification(text, { tag: wanted });
    }
    sessionStorage.removeItem(wanted);
  }

  /** Reload the page as soon as the hub responds. */
  async function lookAgain() {
    const alive = await fetch(page.dataset.aliveUrl).then((answer) => answer.ok, () => false);
    if (alive) window.location.reload();
    else {
      tell(words.hub_away);
      setTimeout(lookAgain, 2000);
    }
  }

  /** A proxy may hold a stream open after the hub has gone; our stream sends an event at least every ten seconds. */
  function expectNews() {
    clearTimeout(patience);
    patience = setTimeout(() => {
      events.close();
      lookAgain();
    }, 25000);
  }

  /** Whether the server itself responds: a start that was stopped elsewhere is reported as "ready" for a second, too. */
  async function answers(url) {
    const asked = fetch(`${url}api`, { signal: AbortSignal.timeout(5000) });
    const answer = await asked.catch(() => ({ status: 0 })); // slow, or on another origin
    return answer.status < 500 && answer.status !== 424; // what the hub responds for a server that is not running
  }

  const events = new EventSource(page.dataset.progressUrl);
  events.onmessage = async (event) => {
    const { message: text, gpuspawner: told, ready, failed, url, elsewhere } = JSON.parse(event.data);
    if (told) {
      show(told);
      expectNews();
    }
    if (ready || failed) {
      over = true;
      clearTimeout(patience);
      events.close();
      if (failed) notice(words.failed);
      else if (await answers(url)) notice(words.ready);
      window.location.reload();
    } else tell(text);
    if (elsewhere) {
      over = true; // of this stream
      clearTimeout(patience);
      events.close();
      setTimeout(lookAgain, document.visibilityState === "visible" ? 20_000 : 60_000);
    }
  };
  // the hub was restarted, or the start is over: the page as it is now says which
  events.onerror = () => {
    events.close();
    clearTimeout(patience);
    if (!over) setTimeout(lookAgain, 2000);
  };

  stop.addEventListener("click", async () => {
    stop.disabled = true;
    clearTimeout(patience);
    events.close(); // JupyterHub's progress reports a cancelled start as ready for a second
    tell(words.stopping);
    const answer = await fetch(page.dataset.serverUrl, {
      method: "DELETE",
      headers: { "X-XSRFToken": window.jhdata.xsrf_token },
    }).catch(() => ({ ok: false }));
    tell(answer.ok ? words.stopped : words.not_stopped);
    if (answer.ok) setTimeout(() => window.location.assign(page.dataset.homeUrl), 1000);
    else setTimeout(() => window.location.reload(), 5000);
  });

  function notifyIsOn() {
    notify.setAttribute("aria-pressed", "true");
    notify.textContent = words.notify_on;
    notify.disabled = true;
  }

  notify.addEventListener("click", async () => {
    if ((await Notification.requestPermission()) === "granted") {
      sessionStorage.setItem(wanted, "yes");
      notifyIsOn();
    } else {
      notify.textContent = words.notify_denied;
      notify.disabled = true;
    }
  });
  notify.hidden = !("Notification" in window && window.isSecureContext);
  if (sessionStorage.getItem(wanted)) notifyIsOn();
  notify.closest("p").hidden = false;
  window._jupyterhub_page_loaded = true;
}

const pending = document.getElementById("gpuspawner-pending");
if (pending) waitForServer(pending);
if (document.getElementById("gpuspawner-stopping")) setTimeout(() => window.location.reload(), 3000);
