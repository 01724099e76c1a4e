// The page on which a server is chosen: whether a choice is valid, what it brings, a link to it.

import { say } from "./times.js";

/** The name of the option that a field is for: "gpus" of "profile-option-k80--gpus". */
export function optionOf(field) {
  const slug = field.closest(".gpuspawner-profile").querySelector("input[name=profile]").value;
  return field
    .querySelector("input, select")
    .name.slice(`profile-option-${slug}--`.length)
    .replace(/--unlisted-choice$/, "");
}

/** The profile whose radio button is on, and the values of its fields. */
export function currentChoice(form) {
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

function choose(form) {
  const start = form.querySelector("button[type=submit]");
  const words = JSON.parse(document.getElementById("gpuspawner-words").textContent);
  const [reason, news] = document.querySelectorAll("#gpuspawner-reason > span");
  const closed = "closed" in start.dataset; // nothing can be started, whatever is chosen
  const results = new Map(); // profile -> what is known of the values in its fields
  const first = currentChoice(form); // the list of what a job gets is of this choice
  let judge; // an extension's: when a choice would start

  const stateOf = (profile) => profile.querySelector(".gpuspawner-availability");

  /** Disable the fields that cannot be seen: an invalid value in one of them must not block the form. */
  function disableHidden() {
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
  copy.className = "btn btn-sm gs-button";
  copy.textContent = words.copy;
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(copy.previousElementSibling.href);
    copy.textContent = words.copied;
    setTimeout(() => (copy.textContent = words.copy), 3000);
  });

  /** Show what a job with the values in the profile's fields gets; the list keeps its height. */
  function showResources(profile, gets) {
    const list = profile.querySelector(".gpuspawner-gets");
    list?.classList.toggle("gpuspawner-unknown", !gets?.length);
    if (!list || !gets?.length) return;
    list.style.minBlockSize = `${list.offsetHeight}px`;
    list.replaceChildren(
      ...gets.map((text) => {
        const item = document.createElement("li");
        item.textContent = text;
        return item;
      }),
    );
  }

  /** Show an error at the field that can correct it; its id, empty where there is no such field. */
  function showFieldError(profile, cause, sentence) {
    const fields = [...profile.querySelectorAll(".gpuspawner-field")];
    const field = fields.find((each) => optionOf(each) === cause || each.dataset.sets?.split(" ").includes(cause));
    if (!field) return "";
    const inputs = field.querySelectorAll("input, select");
    let fault = field.querySelector(".gs-fault");
    if (!fault) {
      fault = document.createElement("div");
      fault.className = "gs-fault";
      fault.id = `${inputs[0].name}-fault`;
      fault.setAttribute("role", "alert");
      field.append(fault);
    }
    fault.textContent = sentence;
    for (const input of inputs) {
      const about = (input.getAttribute("aria-describedby") || "").split(" ").filter((id) => id !== fault.id);
      input.setAttribute("aria-describedby", [...about, fault.id].join(" ").trim());
      input.setAttribute("aria-invalid", "true");
      input.classList.add("is-invalid");
    }
    return fault.id;
  }

  function clearFieldErrors(profile) {
    for (const fault of profile.querySelectorAll(".gs-fault")) fault.textContent = "";
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

  /** *Start* is off while the choice is known to be refused, with the reason beside it, or else at the field `at`. */
  function setStart(why, spoken = "", at = "") {
    if (closed) return;
    start.disabled = Boolean(why);
    start.setAttribute("aria-describedby", at || "gpuspawner-reason");
    const beside = at ? "" : why;
    if (reason.textContent !== beside) reason.textContent = beside;
    news.textContent = why ? "" : spoken;
  }

  /** A choice that cannot start: it stays so until it is changed. */
  function refuse(profile, key, text, cause) {
    const at = showFieldError(profile, cause, text);
    state(profile, { chance: "never", text: at ? words.at_the_field : text });
    results.set(profile, { key, refused: text, at });
    setStart(text, "", at);
  }

  /** Look at a choice that has changed; `quietly`: what is shown of it stays until more is known. */
  function tryOut({ quietly = false } = {}) {
    judge?.(null);
    const choice = currentChoice(form);
    if (!choice) return;
    const { profile } = choice;
    const key = JSON.stringify(choice.options);
    const known = results.get(profile);
    if (known?.key === key && known.refused) {
      setStart(known.refused, "", known.at);
      return;
    }
    if (!quietly) {
      clearFieldErrors(profile);
      setStart("");
      const wrong = profile.querySelector(".gpuspawner-field :invalid");
      if (wrong) {
        showResources(profile, []); // of no job
        refuse(
          profile,
          key,
          words.must_be.replace("{bounds}", wrong.dataset.bounds),
          optionOf(wrong.closest(".gpuspawner-field")),
        );
        return;
      }
      state(profile, { chance: "", text: "" });
      // what a job with another choice gets is not known here
      const changed = !judge && profile === first?.profile && key !== JSON.stringify(first.options);
      profile.querySelector(".gpuspawner-gets")?.classList.toggle("gpuspawner-unknown", changed);
    }
    judge?.(choice, key, quietly);
  }

  function changed() {
    disableHidden();
    link();
  }

  /** What the hub told of the choice as the page came: a refusal holds until the choice is changed. */
  function restoreRefusal() {
    const choice = currentChoice(form);
    if (!choice || !stateOf(choice.profile).classList.contains("gpuspawner-never")) return;
    const fault = choice.profile.querySelector(".gs-fault");
    const refused = fault?.textContent || stateOf(choice.profile).textContent.trim();
    results.set(choice.profile, { key: JSON.stringify(choice.options), refused, at: fault?.id });
    setStart(refused, "", fault?.id);
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
    restoreRefusal();
  });
  const fault = document.getElementById("gpuspawner-fault");
  const chosen = form.querySelector(":checked[name=profile]")?.closest(".gpuspawner-profile");
  // the profile that a link or the last start has chosen may be far down the page
  if (fault) fault.focus();
  else chosen?.scrollIntoView({ block: "nearest" });

  return {
    form,
    results,
    refuse,
    setStart,
    showResources,
    state,
    stateOf,
    tryOut,
    /** Have each valid choice judged: called with it, its key in `results`, and whether quietly; with null to stop. */
    judgeBy: (judging) => (judge = judging),
  };
}

const form = document.querySelector(".gpuspawner-choose #spawn_form");
/** What extensions use of this page; null where it has no form of ours. */
export const chooser = form?.querySelector(".gpuspawner-profiles") ? choose(form) : null;
