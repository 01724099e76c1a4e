// The form: choices that the values of earlier options exclude are disabled, each with the reason.

import { chooser, currentChoice, optionOf } from "../choose.js";
import { base } from "../hub.js";

/** A clause with a capital letter and a full stop. */
function sentence(clause) {
  return `${clause[0].toUpperCase()}${clause.slice(1)}.`;
}

function disableExcluded({ form, refuse }) {
  const words = JSON.parse(document.getElementById("slurm-choices-words").textContent);
  const address = `${base}api/gpuspawner/choices/${encodeURIComponent(form.dataset.user)}`;
  const headers = { "Content-Type": "application/json", "X-XSRFToken": window.jhdata?.xsrf_token };
  const others = new Set(); // profiles that list nothing of Slurm's
  let asking = new AbortController();

  function show(profile, refused) {
    for (const field of profile.querySelectorAll(".gpuspawner-field")) {
      for (const option of field.querySelectorAll("option[data-name]")) {
        const { name } = option.dataset;
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
    const body = JSON.stringify({ user_options: { profile: slug, ...options } });
    const answer = await fetch(address, { method: "POST", headers, body, signal });
    if (!answer.ok) return; // what is wrong with a value is said at its field
    const { refused } = await answer.json();
    if (!refused) {
      others.add(slug);
      return;
    }
    show(profile, refused);
    const [name] = Object.keys(refused).filter((each) => options[each] in refused[each]);
    if (name) refuse(profile, JSON.stringify(options), sentence(refused[name][options[name]]), name);
  }

  form.addEventListener("input", () => look().catch(() => {}));
}

if (chooser) disableExcluded(chooser);
