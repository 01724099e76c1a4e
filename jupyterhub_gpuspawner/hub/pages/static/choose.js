// The page on which a server is chosen: when the chosen profile would start, a link to the choice, the age of what is shown.

import { base } from "./hub.js";
import { duration } from "./times.js";

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
  copy.className = "btn btn-sm gpuspawner-button";
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
