// The form: choices that the values of earlier options exclude are disabled, each with the reason.

import { chooser, currentChoice, optionOf, sentence } from "../choose.js";
import { all, wordsIn } from "../elements.js";
import { ask } from "../hub.js";

/** @typedef {Record<string, Record<string, string>>} Refused why, by option and value */

/** @param {import("../choose.js").Chooser} page */
function disableExcluded({ form, refuse }) {
  const words = wordsIn("slurm-choices-words");
  const others = new Set(); // profiles that list nothing of Slurm's
  let asking = new AbortController();

  /**
   * @param {HTMLElement} profile
   * @param {Refused} refused
   */
  function show(profile, refused) {
    for (const field of all(profile, ".gs-field")) {
      for (const option of all(field, "option[data-name]", HTMLOptionElement)) {
        const { name = "" } = option.dataset;
        const reason = refused[optionOf(field)]?.[option.value];
        if (reason || "refused" in option.dataset) {
          // of one that is selected, the field says why
          option.textContent =
            reason && !option.selected ? words.cannot.replace("{name}", name).replace("{reason}", reason) : name;
        }
        option.toggleAttribute("data-refused", Boolean(reason));
        option.disabled = Boolean(reason) && !option.selected; // a browser would not send one that is selected
      }
    }
  }

  async function look() {
    asking.abort();
    const choice = currentChoice(form);
    if (!choice || others.has(choice.slug)) return;
    asking = new AbortController();
    const { signal } = asking;
    const { profile, slug, options } = choice;
    const body = { user_options: { profile: slug, ...options } };
    const answer = await ask(`choices/${encodeURIComponent(form.dataset.user ?? "")}`, { body, signal });
    if (!answer.ok) return; // what is wrong with a value is said at its field
    /** @type {{refused: Refused | null}} */
    const { refused } = await answer.json();
    if (!refused) {
      others.add(slug);
      return;
    }
    show(profile, refused);
    for (const [name, reasons] of Object.entries(refused)) {
      const reason = reasons[options[name] ?? ""];
      if (reason) return refuse(profile, JSON.stringify(options), sentence(reason), name);
    }
  }

  form.addEventListener("input", () => look().catch(() => {}));
}

if (chooser) disableExcluded(chooser);
