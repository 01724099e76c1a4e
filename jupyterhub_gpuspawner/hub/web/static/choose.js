// The page on which a server is chosen: what a choice brings, when it would start, a link to it, the age of what is shown.

import { base } from "./hub.js";
import { duration, say } from "./times.js";

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

function memory(mib) {
  if (mib < 1024) return `${mib} MiB`;
  const gib = mib / 1024;
  return `${mib < 10240 ? gib.toFixed(1).replace(/\.0$/, "") : gib.toFixed(0)} GiB`;
}

const counted = (number, what) => `${number} ${what}${number === 1 ? "" : "s"}`;

/** CPUs, and the cores of which they are threads (words.py). */
function cpus(number, perCore) {
  if (perCore > 1) return `${counted(number, "CPU")} (${counted(Math.ceil(number / perCore), "core")})`;
  return counted(number, perCore ? "core" : "CPU");
}

/** A duration in the unit in which it was entered, where that makes a whole number (words.py). */
function inUnit(seconds, unit) {
  const short = { 1: "s", 60: "min", 3600: "h", 86400: "days" }[unit];
  const number = seconds / unit;
  return short && Number.isInteger(number) ? `${number} ${short === "days" && number === 1 ? "day" : short}` : "";
}

/** What a job gets, in a few words each; as hub/choose/what_you_get.py tells it. */
function gets(asks, { types, cpus_per_core }, words) {
  const gpus = asks.gpus ?? (asks.gpu_type && !asks.shards ? 1 : 0);
  const onANode = [
    gpus && `${gpus} × ${types[asks.gpu_type || ""] || asks.gpu_type || "GPU"}`,
    asks.shards && counted(asks.shards, "GPU shard"),
    asks.cpus && cpus(asks.cpus, cpus_per_core),
    asks.memory === 0 ? words.all_memory : asks.memory && `${memory(asks.memory)} memory`,
  ];
  const onEach = (part) => (part && part !== words.all_memory ? `${part}${words.on_each}` : part);
  return [
    asks.nodes > 1 && counted(asks.nodes, "node"),
    ...(asks.nodes > 1 ? onANode.map(onEach) : onANode),
    typeof asks.time === "string" ? words.no_limit : asks.time && (inUnit(asks.time, asks.unit) || duration(asks.time)),
  ].filter(Boolean);
}

/** What the fields of a profile ask for; null where that can only be known by the hub. */
function asked(profile, told) {
  const asks = { ...told.asks };
  for (const field of profile.querySelectorAll(".gpuspawner-field")) {
    const [first, second] = field.querySelectorAll("input, select");
    const names = (field.dataset.sets || "").split(" ").filter((name) => /^slurm\.(nodes|gpus|gpu_type|shards|cpus|memory|time)$/.test(name));
    if (!names.length) continue;
    const [name] = names.map((each) => each.slice("slurm.".length));
    if (first.type === "number") {
      if (first.value === "" || !first.checkValidity()) return null;
      asks[name] = Math.ceil(Number(first.value) * Number(first.dataset.unit));
      if (name === "time") asks.unit = Number(first.dataset.unit);
    } else if (first.type === "select-one" && first.value !== "unlisted-choice") {
      Object.assign(asks, JSON.parse(first.selectedOptions[0].dataset.brings || "{}"));
    } else {
      const text = (second || first).value;
      if (name === "gpu_type") asks[name] = text;
      else if (/^\d+$/.test(text) && name !== "memory" && name !== "time") asks[name] = Number(text);
      else return null;
    }
  }
  return asks;
}

function choose(form) {
  const start = form.querySelector("button[type=submit]");
  const words = JSON.parse(document.getElementById("gpuspawner-words").textContent);
  const ofUser = encodeURIComponent(form.dataset.user);
  const headers = { "Content-Type": "application/json", "X-XSRFToken": window.jhdata?.xsrf_token };
  const [reason, news] = document.querySelectorAll("#gpuspawner-reason > span");
  const closed = "closed" in start.dataset; // nothing can be started, whatever is chosen
  const notice = document.getElementById("gpuspawner-silent");
  const results = new Map(); // profile -> what is known of the values in its fields
  let told = performance.now(); // when the ages in the page were correct

  const stateOf = (profile) => profile.querySelector(".gpuspawner-availability");

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
    if (!navigator.clipboard) return; // only exists over https, or on this machine
    for (const each of form.querySelectorAll(".gpuspawner-link")) each.hidden = each === anchor;
    anchor.after(copy);
  }

  const copy = document.createElement("button");
  copy.type = "button";
  copy.className = "btn btn-sm gpuspawner-button";
  copy.textContent = words.copy;
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(copy.previousElementSibling.href);
    copy.textContent = words.copied;
    setTimeout(() => (copy.textContent = words.copy), 3000);
  });

  /** Tell what the values in the profile's fields bring; the list keeps its height. */
  function chips(profile) {
    const list = profile.querySelector(".gpuspawner-gets");
    if (!list || !profile.dataset.told) return;
    const ofProfile = JSON.parse(profile.dataset.told);
    const asks = asked(profile, ofProfile);
    if (!asks) return;
    list.style.minBlockSize = `${list.offsetHeight}px`;
    list.replaceChildren(
      ...gets(asks, ofProfile, words).map((text) => {
        const item = document.createElement("li");
        item.textContent = text;
        return item;
      }),
    );
  }

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

  function forgive(profile) {
    for (const fault of profile.querySelectorAll(".gpuspawner-fault")) fault.textContent = "";
    for (const input of profile.querySelectorAll("[aria-invalid]")) {
      input.classList.remove("is-invalid");
      input.removeAttribute("aria-invalid");
    }
  }

  /** Write a profile's state: mark and colour, a sentence that may have a time in it, and how old that is. */
  function state(profile, { chance, text, at, age }) {
    const line = stateOf(profile);
    const aged = line.querySelector("small"); // its line is kept, so that nothing moves
    const said = document.createElement("span");
    say(said, text, at, true);
    line.className = `gpuspawner-availability${chance ? ` gpuspawner-${chance}` : ""}`;
    line.replaceChildren(said);
    if (age === undefined && !aged) return;
    const small = document.createElement("small");
    if (age !== undefined) small.dataset.age = age;
    line.append(" ", small);
  }

  /** *Start* is off while the choice is known to be refused, with the reason beside it. */
  function allow(why, spoken = "") {
    if (closed) return;
    start.disabled = Boolean(why);
    if (reason.textContent !== why) reason.textContent = why;
    news.textContent = why ? "" : spoken;
  }

  /** A choice that cannot start: it stays so until it is changed. */
  function refuse(profile, key, text, cause) {
    const atTheField = blame(profile, cause, text);
    state(profile, { chance: "never", text: atTheField ? words.at_the_field : text });
    results.set(profile, { key, refused: text });
    allow(text);
  }

  /** What Slurm would do with this choice. */
  async function trial({ profile, slug, options }, key, signal) {
    const answer = await fetch(`${base}api/gpuspawner/trial/${ofUser}`, {
      method: "POST",
      headers,
      body: JSON.stringify({ user_options: { profile: slug, ...options } }),
      signal,
    });
    const said = await answer.json().catch(() => ({}));
    const text = sentence((answer.ok ? said.sentence : said.message) || words.not_known);
    if (answer.status === 400 || (answer.ok && said.chance === "never")) {
      refuse(profile, key, text, said.field);
      return;
    }
    state(profile, { chance: answer.ok ? said.chance : "unknown", text, at: said.starts_at });
    results.set(profile, { key, refused: "" });
    allow("", stateOf(profile).textContent);
  }

  let pause;
  let asking = new AbortController();

  function tryOut({ quietly = false } = {}) {
    clearTimeout(pause);
    asking.abort();
    const choice = currentChoice(form);
    if (!choice) return;
    const { profile } = choice;
    const key = JSON.stringify(choice.options);
    const known = results.get(profile);
    if (known?.key === key && known.refused) {
      allow(known.refused);
      return;
    }
    if (!quietly) {
      forgive(profile);
      allow("");
      const wrong = profile.querySelector(".gpuspawner-field :invalid");
      if (wrong) {
        refuse(profile, key, sentence(wrong.validationMessage), optionOf(wrong.closest(".gpuspawner-field")));
        return;
      }
      state(profile, { chance: "", text: words.asking });
    }
    asking = new AbortController();
    const { signal } = asking;
    const unknown = () => signal.aborted || state(profile, { chance: "unknown", text: words.not_known });
    pause = setTimeout(() => trial(choice, key, signal).catch(unknown), 600);
  }

  function grow() {
    for (const age of form.querySelectorAll("[data-age]")) {
      const seconds = Number(age.dataset.age) + (performance.now() - told) / 1000;
      age.textContent = ageInWords(seconds, words);
    }
  }

  /** Update the availability when the reader comes back to the page; all readers share one query of Slurm. */
  async function renew(after = 30000) {
    if (document.visibilityState !== "visible" || performance.now() - told < after) return;
    const begun = performance.now();
    const answer = await fetch(`${base}api/gpuspawner/profiles/${ofUser}`, { headers });
    if (!answer.ok) return;
    const { taken_at: takenAt, silent, profiles } = await answer.json();
    say(notice, silent ? (takenAt ? words.silent : words.silent_from_the_start) : "", takenAt);
    notice.hidden = !silent;
    const age = Math.max(0, Math.round((Date.parse(answer.headers.get("Date")) - Date.parse(takenAt)) / 1000));
    for (const { slug, availability } of profiles) {
      const profile = document.getElementById(`profile-${slug}`)?.closest(".gpuspawner-profile:not(.gpuspawner-closed)");
      if (!profile || !availability || results.has(profile)) continue; // what was asked of a choice is not the profile's
      state(profile, {
        chance: availability.chance,
        text: sentence(availability.sentence),
        at: availability.starts_at,
        age: takenAt ? age : undefined,
      });
    }
    told = begun;
    grow();
    if (results.has(currentChoice(form)?.profile)) tryOut({ quietly: true });
  }

  function changed() {
    settle();
    link();
    const choice = currentChoice(form);
    if (choice) chips(choice.profile);
  }

  /** What the hub told of the choice as the page came: a refusal holds until the choice is changed. */
  function begin() {
    const choice = currentChoice(form);
    if (!choice || !stateOf(choice.profile).classList.contains("gpuspawner-never")) return;
    const fault = choice.profile.querySelector(".gpuspawner-fault")?.textContent;
    const refused = fault || stateOf(choice.profile).textContent.trim();
    results.set(choice.profile, { key: JSON.stringify(choice.options), refused });
    allow(refused);
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
    start.disabled = closed;
    start.textContent = start.dataset.idle;
    changed();
    begin();
  });
  setInterval(grow, 10000);
  // older than the hub would have it: its question to Slurm is under way, and answered by then, or late
  const oldest = Math.max(...[...form.querySelectorAll("[data-age]")].map((each) => Number(each.dataset.age)), 0);
  if (oldest > words.fresh && notice.hidden) setTimeout(() => renew(0).catch(() => {}), 4000);
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
