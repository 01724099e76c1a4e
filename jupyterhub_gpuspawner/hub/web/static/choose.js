// The page on which a server is chosen: whether a choice is valid, what it brings, a link to it.

import { all, copyOnClick, first, one, wordsIn, write } from "./elements.js";
import { say } from "./times.js";

/** @typedef {HTMLInputElement | HTMLSelectElement} Input */
/**
 * @typedef {object} Choice
 * @property {HTMLElement} profile
 * @property {string} slug
 * @property {Record<string, string>} options by name
 */
/** @typedef {{key: string, refused: string, at?: string}} Result of the choice with this key, and the fault's id */
/** @typedef {(choice: Choice | null, key?: string, quietly?: boolean) => void} Judge */
/** @typedef {NonNullable<typeof chooser>} Chooser */

/**
 * @param {ParentNode} field
 * @returns {Input[]}
 */
function inputsOf(field) {
  return [...field.querySelectorAll(/** @type {"input"} */ ("input, select"))];
}

/** @param {Element} part */
function profileOf(part) {
  return /** @type {HTMLElement} */ (part.closest(".gs-choice"));
}

/**
 * The name of the option that a field is for: "gpus" of "profile-option-k80--gpus".
 * @param {Element} field
 */
export function optionOf(field) {
  const slug = one(profileOf(field), "input[name=profile]", HTMLInputElement).value;
  return (inputsOf(field)[0]?.name ?? "").slice(`profile-option-${slug}--`.length).replace(/--unlisted-choice$/, "");
}

/**
 * The profile whose radio button is on, and the values of its fields.
 * @param {HTMLFormElement} form
 * @returns {Choice | null}
 */
export function currentChoice(form) {
  const radio = first(form, "input[name=profile]:checked", HTMLInputElement);
  if (!radio) return null;
  const profile = profileOf(radio);
  /** @type {Record<string, string>} */
  const options = {};
  for (const field of all(profile, ".gs-field")) {
    const [listed, unlisted] = inputsOf(field);
    const input = unlisted && listed?.value === "unlisted-choice" ? unlisted : listed;
    if (input?.value) options[optionOf(field)] = input.value;
  }
  const accepted = all(profile, "input[type=checkbox]:checked", HTMLInputElement).map((box) => box.value);
  if (accepted.length) options.alternatives = accepted.join(",");
  return { profile, slug: radio.value, options };
}

/**
 * A clause with a capital letter and a full stop.
 * @param {string} clause
 */
export function sentence(clause) {
  return clause.slice(0, 1).toUpperCase() + clause.slice(1).replace(/[^.]$/, "$&.");
}

/** Above so many profiles the list has filters. */
const MANY = 8;

/**
 * Filters of a long list: what starts now, each model of GPU, none. What is chosen stays in sight.
 * @param {HTMLFormElement} form
 * @param {Record<string, any>} words
 */
function addFilters(form, words) {
  const choices = all(form, ".gs-choice");
  if (choices.length <= MANY) return;
  /** @param {HTMLElement} choice */
  const modelsOf = (choice) => (choice.dataset.models ?? "").split("|").filter(Boolean);
  /** @type {[string, (choice: HTMLElement) => boolean][]} */
  const filters = [
    [words.all, () => true],
    [words.free, (choice) => choice.querySelector(".gs-row > .gs-state.now") !== null],
    ...[...new Set(choices.flatMap(modelsOf))].sort().map(
      /** @returns {[string, (choice: HTMLElement) => boolean]} */
      (model) => [model, (choice) => modelsOf(choice).includes(model)],
    ),
    [words.no_gpu, (choice) => modelsOf(choice).length === 0],
  ];
  const box = one(document, "#gpuspawner-filters");
  for (const [name, shows] of filters) {
    const label = document.createElement("label");
    const radio = document.createElement("input");
    const count = document.createElement("span");
    radio.type = "radio";
    radio.name = "gpuspawner-show"; // outside the form: it is not sent
    radio.checked = box.childElementCount === 0;
    count.className = "gs-soft";
    count.textContent = `${choices.filter(shows).length}`;
    label.append(radio, name, " ", count);
    box.append(label);
    radio.addEventListener("change", () => {
      for (const choice of choices) choice.hidden = !shows(choice) && !choice.querySelector(":checked[name=profile]");
    });
  }
  box.hidden = false;
}

/** @param {HTMLFormElement} form */
function choose(form) {
  const start = one(form, "button[type=submit]", HTMLButtonElement);
  const startWord = one(start, "span");
  const words = wordsIn("gpuspawner-words");
  const reason = one(document, "#gpuspawner-reason > span");
  const news = one(document, "#gpuspawner-reason > span + span");
  const closed = "closed" in start.dataset; // nothing can be started, whatever is chosen
  /** @type {Map<Element, Result>} what is known of the values in a profile's fields */
  const results = new Map();
  const offered = currentChoice(form); // the list of what a job gets is of this choice
  /** @type {Judge | undefined} an extension's: when a choice would start */
  let judge;

  /** @param {ParentNode} profile */
  const stateOf = (profile) => one(profile, ".gs-when > .gs-state");

  /** Disable the fields that cannot be seen: an invalid value in one of them must not block the form. */
  function disableHidden() {
    if (!CSS.supports("selector(:has(*))")) return;
    for (const options of all(form, ".gs-options", HTMLFieldSetElement)) {
      options.disabled = !profileOf(options).querySelector(":checked[name=profile]");
    }
  }

  function link() {
    const choice = currentChoice(form);
    if (!choice) return;
    const anchor = one(choice.profile, ".gpuspawner-link", HTMLAnchorElement);
    const query = new URLSearchParams({ "opt-profile": choice.slug });
    for (const [name, value] of Object.entries(choice.options)) query.set(`opt-${name}`, value);
    anchor.search = `${query}`;
    if (!canCopy) return;
    for (const each of all(form, ".gpuspawner-link")) each.hidden = each === anchor;
    anchor.after(copy);
  }

  const copy = document.createElement("button");
  copy.type = "button";
  copy.className = "btn gs-quiet gs-little";
  copy.textContent = words.copy;
  const canCopy = copyOnClick(
    copy,
    words.copied,
    () => one(form, ".gpuspawner-link:not([hidden])", HTMLAnchorElement).href,
  );

  /**
   * Show what a job with the values in the profile's fields gets; the list keeps its height.
   * @param {ParentNode} profile
   * @param {string[]} [gets]
   */
  function showResources(profile, gets) {
    const list = first(profile, ".gs-got");
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

  /**
   * Show an error at the field that can correct it; its id, empty where there is no such field.
   * @param {ParentNode} profile
   * @param {string | undefined} cause
   * @param {string} sentence
   */
  function showFieldError(profile, cause, sentence) {
    const field = all(profile, ".gs-field").find(
      (each) => cause && (optionOf(each) === cause || each.dataset.sets?.split(" ").includes(cause)),
    );
    if (!field) return "";
    const inputs = inputsOf(field);
    let fault = first(field, ".gs-fault");
    if (!fault) {
      fault = document.createElement("div");
      fault.className = "gs-fault";
      fault.id = `${inputs[0]?.name}-fault`;
      fault.setAttribute("role", "alert");
      field.append(fault);
    }
    fault.textContent = sentence;
    const { id } = fault;
    for (const input of inputs) {
      const about = (input.getAttribute("aria-describedby") || "").split(" ").filter((each) => each !== id);
      input.setAttribute("aria-describedby", [...about, id].join(" ").trim());
      input.setAttribute("aria-invalid", "true");
    }
    return id;
  }

  /** @param {ParentNode} profile */
  function clearFieldErrors(profile) {
    for (const fault of all(profile, ".gs-fault")) fault.textContent = "";
    for (const input of profile.querySelectorAll("[aria-invalid]")) {
      input.removeAttribute("aria-invalid");
    }
  }

  /**
   * Write when the choice of a profile would start, in a sentence that may have a time in it, and when it would end.
   * @param {ParentNode} profile
   * @param {{chance: string, text: string, at?: string | null, ends?: string | null}} known
   */
  function state(profile, { chance, text, at, ends }) {
    const line = stateOf(profile);
    say(line, text, at, true);
    line.className = `gs-state${chance ? ` ${chance}` : ""}`;
    const end = one(profile, ".gs-until");
    end.hidden = !ends;
    if (ends) say(end, words.ends, ends);
  }

  /**
   * *Start* is off while the choice is known to be refused, with the reason beside it, or else at the field `at`.
   * @param {string} why
   */
  function setStart(why, spoken = "", at = "") {
    if (closed) return;
    start.disabled = Boolean(why);
    start.setAttribute("aria-describedby", at || "gpuspawner-reason");
    const beside = at ? "" : why;
    write(reason, beside);
    news.textContent = why ? "" : spoken;
  }

  /**
   * A choice that cannot start: it stays so until it is changed.
   * @param {HTMLElement} profile
   * @param {string} key
   * @param {string} text
   * @param {string} [cause] the option that can correct it
   */
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
      const wrong = first(profile, ".gs-field :invalid");
      if (wrong) {
        showResources(profile, []); // of no job
        const field = wrong.closest(".gs-field");
        refuse(profile, key, words.must_be.replace("{bounds}", wrong.dataset.bounds), field ? optionOf(field) : "");
        return;
      }
      state(profile, { chance: "", text: "" });
      // what a job with another choice gets is not known here
      const changed = !judge && profile === offered?.profile && key !== JSON.stringify(offered.options);
      profile.querySelector(".gs-got")?.classList.toggle("gpuspawner-unknown", changed);
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
    if (!choice || !stateOf(choice.profile).classList.contains("never")) return;
    const fault = first(choice.profile, ".gs-fault");
    const refused = fault?.textContent || (stateOf(choice.profile).textContent ?? "").trim();
    results.set(choice.profile, { key: JSON.stringify(choice.options), refused, at: fault?.id });
    setStart(refused, "", fault?.id);
  }

  addFilters(form, words);
  form.noValidate = false; // only fields that can be seen are enabled
  form.addEventListener("input", () => {
    changed();
    tryOut();
  });
  for (const other of all(form, "[data-choose]")) {
    other.addEventListener("click", (event) => {
      const radio = first(document, `#${CSS.escape(other.dataset.choose ?? "")}`, HTMLInputElement);
      if (!radio) return;
      event.preventDefault(); // without a script the link leads to the form with that choice
      radio.click();
      radio.focus();
    });
  }
  form.addEventListener("submit", () => {
    start.disabled = true;
    startWord.textContent = start.dataset.busy ?? "";
  });
  window.addEventListener("pageshow", () => {
    start.disabled = closed;
    startWord.textContent = start.dataset.idle ?? "";
    changed();
    restoreRefusal();
  });
  const fault = first(document, "#gpuspawner-fault");
  const chosen = first(form, ":checked[name=profile]")?.closest(".gs-choice");
  // the profile that a link or the last start has chosen may be far down the page
  if (fault) fault.focus();
  else chosen?.querySelector(".gs-row")?.scrollIntoView({ block: "nearest" });

  return {
    form,
    results,
    refuse,
    setStart,
    showResources,
    state,
    stateOf,
    tryOut,
    /**
     * Have each valid choice judged: called with it, its key in `results`, and whether quietly; with null to stop.
     * @param {Judge} judging
     */
    judgeBy: (judging) => {
      judge = judging;
    },
  };
}

const form = first(document, ".gs-choosing #spawn_form", HTMLFormElement);
/** What extensions use of this page; null where it has no form of ours. */
export const chooser = form?.querySelector(".gs-picker") ? choose(form) : null;
