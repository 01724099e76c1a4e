// What the pages do beyond plain HTML, which works without a script. One section for each page; each does nothing elsewhere.

const base = window.jhdata?.base_url ?? "/hub/";

/** "45 s", "12 min", "1 h 30 min", "2 days 12 h": as the hub says durations (words.py). */
function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  const minutes = Math.round(whole / 60);
  const hours = Math.round(whole / 3600);
  const parts =
    minutes < 48 * 60
      ? [[Math.floor(minutes / 60), "h"], [minutes % 60, "min"]]
      : [[Math.floor(hours / 24), "days"], [hours % 24, "h"]];
  return parts.filter(([count]) => count).map(([count, unit]) => `${count} ${unit}`).join(" ");
}

// --- choose: when the chosen profile would start, a link to the choice, the age of what is shown ---

/** The name of the option that a field is for: "gpus" of "profile-option-k80--gpus". */
function optionOf(field) {
  const slug = field.closest(".gpuspawner-profile").querySelector("input[name=profile]").value;
  return field.querySelector("input, select").name.slice(`profile-option-${slug}--`.length).replace(/--unlisted-choice$/, "");
}

/** The profile whose radio button is on, and the values of its fields. */
function currentChoice(form) {
  const radio = form.querySelector("input[name=profile]:checked");
  if (!radio) return null;
  const profile = radio.closest(".gpuspawner-profile");
  const options = {};
  for (const field of profile.querySelectorAll(".gpuspawner-field")) {
    const [first, second] = field.querySelectorAll("input, select");
    const input = second && first.value === "unlisted-choice" ? second : first;
    if (input.value !== "") options[optionOf(field)] = input.value;
  }
  return { profile, slug: radio.value, options };
}

/** How long ago Slurm was asked; nothing where that is a moment ago. */
function ageInWords(seconds, words) {
  return seconds < words.recent ? "" : words.checked.replace("{age}", duration(seconds));
}

/** A clause with a capital letter and a full stop. */
function sentence(clause) {
  return clause && clause[0].toUpperCase() + clause.slice(1).replace(/[^.]$/, "$&.");
}

function choose(form) {
  const start = form.querySelector("button[type=submit]");
  const words = JSON.parse(document.getElementById("gpuspawner-words").textContent);
  const ofUser = encodeURIComponent(form.dataset.user);
  const headers = { "Content-Type": "application/json", "X-XSRFToken": window.jhdata?.xsrf_token };
  let told = performance.now(); // when the ages in the page were correct

  /** Disable the fields that cannot be seen: an invalid value in one of them must not block the form. */
  function settle() {
    if (!CSS.supports("selector(:has(*))")) return;
    for (const options of form.querySelectorAll(".gpuspawner-options")) {
      options.disabled = !options.closest(".gpuspawner-profile").querySelector(":checked[name=profile]");
    }
  }

  function link() {
    const choice = currentChoice(form);
    if (!choice) return;
    const anchor = choice.profile.querySelector(".gpuspawner-link");
    const query = new URLSearchParams({ "opt-profile": choice.slug });
    for (const [name, value] of Object.entries(choice.options)) query.set(`opt-${name}`, value);
    anchor.search = query;
    if (navigator.clipboard) anchor.after(copy); // only exists over https, or on this machine
  }

  const copy = document.createElement("button");
  copy.type = "button";
  copy.className = "btn btn-sm btn-outline-contrast";
  copy.textContent = words.copy;
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(copy.previousElementSibling.href);
    copy.textContent = words.copied;
    setTimeout(() => (copy.textContent = words.copy), 3000);
  });

  /** Show an error at the field that can correct it; false where there is no such field. */
  function blame(profile, cause, sentence) {
    const fields = [...profile.querySelectorAll(".gpuspawner-field")];
    const field = fields.find((each) => optionOf(each) === cause || each.dataset.sets?.split(" ").includes(cause));
    if (!field) return false;
    const inputs = field.querySelectorAll("input, select");
    let fault = field.querySelector(".gpuspawner-fault");
    if (!fault) {
      fault = document.createElement("div");
      fault.className = "gpuspawner-fault";
      fault.id = `${inputs[0].name}-fault`;
      field.append(fault);
    }
    fault.textContent = sentence;
    for (const input of inputs) {
      const about = (input.getAttribute("aria-describedby") || "").split(" ").filter((id) => id !== fault.id);
      input.setAttribute("aria-describedby", [...about, fault.id].join(" ").trim());
      input.setAttribute("aria-invalid", "true");
      input.classList.add("is-invalid");
    }
    return true;
  }

  /** Clear what was shown for an earlier choice. */
  function forget(profile) {
    for (const fault of profile.querySelectorAll(".gpuspawner-fault")) fault.textContent = "";
    for (const input of profile.querySelectorAll("[aria-invalid]")) {
      input.classList.remove("is-invalid");
      input.removeAttribute("aria-invalid");
    }
    for (const general of form.querySelectorAll(".gpuspawner-about .gpuspawner-availability")) general.hidden = false;
    for (const status of form.querySelectorAll(".gpuspawner-trial")) {
      status.className = "gpuspawner-trial";
      status.textContent = "";
    }
  }

  /** What Slurm would do with this choice, once nothing has changed for a moment. */
  async function trial({ profile, slug, options }, signal) {
    const status = profile.querySelector(".gpuspawner-trial");
    status.textContent = words.asking;
    const answer = await fetch(`${base}api/gpuspawner/trial/${ofUser}`, {
      method: "POST",
      headers,
      body: JSON.stringify({ user_options: { profile: slug, ...options } }),
      signal,
    });
    const said = await answer.json().catch(() => ({}));
    const refused = answer.status === 400;
    const chance = refused ? "never" : answer.ok ? said.chance : "";
    const text = sentence((refused ? said.message : answer.ok ? said.sentence : "") || "");
    const blamed = chance === "never" && blame(profile, said.field, text);
    status.textContent = blamed ? "" : text;
    if (chance && !blamed) status.classList.add("gpuspawner-availability", `gpuspawner-${chance}`);
    // the availability of the profile with its defaults no longer applies
    const general = profile.querySelector(".gpuspawner-about .gpuspawner-availability");
    if (general) general.hidden = ["now", "later", "never"].includes(chance);
  }

  let pause;
  let asked = new AbortController();

  function tryOut() {
    clearTimeout(pause);
    asked.abort();
    const choice = currentChoice(form);
    if (!choice) return;
    forget(choice.profile);
    const wrong = choice.profile.querySelector(".gpuspawner-field :invalid");
    if (wrong) {
      blame(choice.profile, optionOf(wrong.closest(".gpuspawner-field")), wrong.validationMessage);
      return;
    }
    asked = new AbortController();
    const { signal } = asked;
    pause = setTimeout(() => trial(choice, signal).catch(() => signal.aborted || forget(choice.profile)), 600);
  }

  function grow() {
    for (const age of form.querySelectorAll("[data-age]")) {
      const seconds = Number(age.dataset.age) + (performance.now() - told) / 1000;
      age.textContent = ageInWords(seconds, words);
    }
  }

  /** Update the availability when the reader comes back to the page; all readers share one query of Slurm. */
  async function renew() {
    if (document.visibilityState !== "visible" || performance.now() - told < 30000) return;
    const asked = performance.now();
    const answer = await fetch(`${base}api/gpuspawner/profiles/${ofUser}`, { headers });
    if (!answer.ok) return;
    const { taken_at: takenAt, profiles } = await answer.json();
    for (const { slug, availability } of profiles) {
      const profile = document.getElementById(`profile-${slug}`)?.closest(".gpuspawner-profile:not(.gpuspawner-closed)");
      const line = profile?.querySelector(".gpuspawner-about .gpuspawner-availability");
      if (!line || !availability) continue;
      line.className = `gpuspawner-availability gpuspawner-${availability.chance}`;
      const age = document.createElement("small");
      age.dataset.age = Math.max(0, Math.round((Date.parse(answer.headers.get("Date")) - Date.parse(takenAt)) / 1000));
      line.replaceChildren(`${sentence(availability.sentence)} `, ...(takenAt ? [age] : []));
    }
    told = asked;
    grow();
  }

  function changed() {
    settle();
    link();
  }

  form.noValidate = false; // only fields that can be seen are enabled
  form.addEventListener("input", () => {
    changed();
    tryOut();
  });
  form.addEventListener("submit", () => {
    start.disabled = true;
    start.textContent = start.dataset.busy;
  });
  window.addEventListener("pageshow", () => {
    start.disabled = false;
    start.textContent = start.dataset.idle;
    changed();
  });
  setInterval(grow, 10000);
  setInterval(() => renew().catch(() => {}), 60000); // without an answer the ages keep growing
  document.addEventListener("visibilitychange", () => renew().catch(() => {}));
  const fault = document.getElementById("gpuspawner-fault");
  const chosen = form.querySelector(":checked[name=profile]")?.closest(".gpuspawner-profile");
  // the profile that a link or the last start has chosen may be far down the page
  if (fault) fault.focus();
  else chosen?.scrollIntoView({ block: "nearest" });
}

const form = document.querySelector(".gpuspawner-choose #spawn_form");
if (form?.querySelector(".gpuspawner-profiles")) choose(form);

// --- wait: a server that is starting, stopping, or not running ---

/** The time of day in the reader's zone, with the date where it is not today. */
function localTime(iso) {
  const at = new Date(iso);
  const time = { hour: "2-digit", minute: "2-digit" };
  if (at.toDateString() === new Date().toDateString()) return at.toLocaleTimeString([], time);
  return at.toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
}

function timeElement(iso) {
  const element = document.createElement("time");
  element.dateTime = iso;
  element.textContent = localTime(iso);
  return element;
}

/** Put `text` into `element`, with the time in the place of "{time}"; an element that has not changed is not touched. */
function say(element, text, iso) {
  const key = `${text}|${iso || ""}`;
  if (element.dataset.said === key) return;
  element.dataset.said = key;
  const [before, after] = text.split("{time}");
  element.replaceChildren(before);
  if (after !== undefined && iso) element.append(timeElement(iso), after);
}

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
    say(fact(name), text, iso);
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

for (const time of document.querySelectorAll(".gpuspawner-wait time")) time.textContent = localTime(time.dateTime);
const pending = document.getElementById("gpuspawner-pending");
if (pending) waitForServer(pending);
if (document.getElementById("gpuspawner-stopping")) setTimeout(() => window.location.reload(), 3000);

// --- live: home and cluster ---

const LIVE_INTERVAL = 30_000;

// the page at this address as the hub sends it now; null where the hub is away or redirects
async function now(address = location.href) {
  try {
    const answer = await fetch(address);
    if (!answer.ok || answer.redirected) return null;
    return new DOMParser().parseFromString(await answer.text(), "text/html");
  } catch {
    return null;
  }
}

function every(milliseconds, look) {
  setInterval(() => document.visibilityState === "visible" && look(), milliseconds);
  document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && look());
}

// keeps the time left up to date; a change is announced once, when it happens
function servers(place) {
  const cards = document.getElementById("gpuspawner-cards");
  const news = document.getElementById("gpuspawner-news");
  const say = place.dataset;
  const warned = new Map();
  const minute = 60_000;

  function span(left) {
    if (left <= 0) return say.over;
    if (left < minute) return say.less;
    return duration(Math.floor(left / minute) * 60);
  }

  function tick(spoken) {
    for (const card of cards.children) {
      const ends = card.querySelector("[data-ends]");
      if (!ends) continue;
      const left = Date.parse(ends.dateTime) - Date.now();
      const level = left <= 0 ? "timeIsOver" : left <= 5 * minute ? "verySoon" : left <= 15 * minute ? "soon" : "";
      const words = span(left);
      const text = level && say[level].replace("{left}", words);
      const warning = card.querySelector("[data-warning]");
      card.querySelector("[data-left]").textContent = words;
      warning.hidden = !text;
      warning.textContent = text;
      const { serverName } = card.dataset;
      if (spoken && level && warned.get(serverName) !== level) {
        news.textContent = `${card.querySelector("h2").firstChild.textContent.trim()}: ${text}`;
      }
      warned.set(serverName, level);
    }
  }

  // times in the reader's zone; without a script they are in the hub's
  function zone() {
    for (const time of cards.querySelectorAll("time[data-ends]")) {
      const style = { dateStyle: "medium", timeStyle: "short" };
      time.textContent = new Date(time.dateTime).toLocaleString(document.documentElement.lang, style);
    }
  }

  const byName = (list) => new Map([...list.children].map((card) => [card.dataset.serverName, card]));

  async function look() {
    const fresh = (await now())?.getElementById("gpuspawner-cards");
    if (!fresh) return;
    const was = byName(cards);
    const is = byName(fresh);
    const changed = [...is].filter(([name, card]) => was.get(name)?.dataset.version !== card.dataset.version);
    if (!changed.length && was.size === is.size) return;
    const told = changed.filter(([name, card]) => was.get(name)?.dataset.state !== card.dataset.state);
    for (const [name, card] of was) if (!is.has(name)) card.remove();
    let before = null;
    for (const [name, card] of is) {
      const old = was.get(name);
      const same = old && old.dataset.version === card.dataset.version;
      const put = same ? old : document.importNode(card, true);
      if (!same && old) {
        const folds = old.querySelectorAll("details");
        put.querySelectorAll("details").forEach((fold, n) => (fold.open = folds[n]?.open ?? fold.open));
        old.replaceWith(put);
      } else if (!old) {
        before ? before.after(put) : cards.prepend(put);
      }
      before = put;
    }
    zone();
    tick(true);
    if (told.length) news.textContent = told.map(([, card]) => card.dataset.news).join(" ");
  }

  zone();
  tick(false);
  setInterval(() => tick(true), 5_000);
  every(LIVE_INTERVAL, look);
}

const serversPlace = document.getElementById("gpuspawner-servers");
if (serversPlace) servers(serversPlace);

// updates the map while the filter is typed, and every half minute
function cluster(page) {
  const filter = page.querySelector("form");
  const map = document.getElementById("gpuspawner-map");
  let last = 0;
  let soon = 0;

  async function look(filtered) {
    const mine = ++last;
    const query = new URLSearchParams([...new FormData(filter)].filter(([, value]) => value));
    const address = `${location.pathname}${query.size ? `?${query}` : ""}`;
    const fresh = await now(address);
    const news = fresh?.getElementById("gpuspawner-map");
    if (!news || mine !== last) return;
    if (filtered) history.replaceState(null, "", address);
    const focused = map.contains(document.activeElement) && document.activeElement.closest("details")?.dataset.partition;
    const was = new Map([...map.querySelectorAll("details")].map((each) => [each.dataset.partition, each.open]));
    for (const each of news.querySelectorAll("details")) {
      const { partition } = each.dataset;
      if (!filtered && was.has(partition)) each.open = was.get(partition);
    }
    map.replaceChildren(...document.importNode(news, true).childNodes);
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
  every(LIVE_INTERVAL, () => look(false));
}

const clusterPage = document.getElementById("gpuspawner-cluster");
if (clusterPage?.querySelector("form")) cluster(clusterPage);
