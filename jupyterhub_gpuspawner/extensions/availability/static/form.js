// The form: when a choice would start, as Slurm says, and the age of what is shown.

import { chooser, currentChoice, optionOf, sentence } from "../choose.js";
import { all, first, one, wordsIn } from "../elements.js";
import { ask } from "../hub.js";
import { say } from "../times.js";
import { duration } from "../words.js";

/** @typedef {Record<string, Record<string, {chance: string, estimate: {span?: string}}>>} Choices by option and value */

/** Age in seconds up to which the hub does not ask Slurm again for this page. */
const FRESH = 15;

/**
 * How long ago Slurm was asked; nothing where that is a moment ago.
 * @param {number} seconds
 * @param {{recent: number, checked: string}} words
 */
function ageInWords(seconds, words) {
  return seconds < words.recent ? "" : words.checked.replace("{age}", duration(seconds));
}

/** @param {import("../choose.js").Chooser} page */
function judgeChoices({ form, results, refuse, setStart, showResources, state, stateOf, tryOut, judgeBy }) {
  const words = wordsIn("availability-words");
  const ofUser = encodeURIComponent(form.dataset.user ?? "");
  const notice = one(document, "#gpuspawner-silent");
  let told = performance.now(); // when the ages in the page were correct

  /**
   * Show when a job with each choice of an option would start.
   * @param {Element} profile
   * @param {Choices} choices
   */
  function showChoices(profile, choices) {
    for (const field of all(profile, ".gs-field")) {
      for (const [key, { chance, estimate }] of Object.entries(choices[optionOf(field)] ?? {})) {
        const option = first(field, `option[value="${CSS.escape(key)}"]`, HTMLOptionElement);
        const text = (chance === "later" && estimate.span) || words.starts[chance];
        if (option && !("refused" in option.dataset))
          option.textContent = text ? `${option.dataset.name}: ${text}` : (option.dataset.name ?? "");
      }
    }
  }

  /**
   * Show in the list when a profile's job would start, and how much is free.
   * @param {Element} profile
   * @param {{chance: string, estimate: {span?: string}, room?: {free: number, all: number, words: string}}} known
   */
  function showRow(profile, { chance, estimate, room }) {
    const start = one(profile, ".gs-row > .gs-state");
    const full = chance === "later" && room?.free === 0 && words.full;
    const text = (chance === "later" && estimate.span) || full || words.starts[chance] || words.unknown;
    start.className = `gs-state ${chance}`;
    start.textContent = text[0].toUpperCase() + text.slice(1);
    const box = first(profile, ".gs-row > .gs-room");
    if (!box || !room) return;
    box.lastChild?.replaceWith(` ${room.words}`);
    box.querySelector(".gs-bar > svg")?.setAttribute("width", `${Math.round((100 * room.free) / (room.all || 1))}%`);
    for (const [n, cell] of all(box, ".gs-pips > i").entries()) cell.classList.toggle("free", n < room.free);
  }

  /**
   * What Slurm would do with this choice.
   * @param {import("../choose.js").Choice} choice
   * @param {string} key
   * @param {AbortSignal} signal
   */
  async function trial({ profile, slug, options }, key, signal) {
    const body = { user_options: { profile: slug, ...options } };
    const answer = await ask(`trial/${ofUser}`, { body, signal });
    const said = await answer.json().catch(() => ({}));
    showResources(profile, said.gets);
    const text = sentence((answer.ok ? said.sentence : said.message) || words.not_known);
    if (answer.status === 400 || (answer.ok && said.chance === "never")) {
      refuse(profile, key, text, said.field);
      return;
    }
    state(profile, { chance: answer.ok ? said.chance : "unknown", text, at: said.starts_at, ends: said.ends_at });
    results.set(profile, { key, refused: "" });
    setStart("", stateOf(profile).textContent);
  }

  let pause = 0;
  let asking = new AbortController();

  judgeBy((choice, key = "", quietly = false) => {
    clearTimeout(pause);
    asking.abort();
    if (!choice) return;
    const { profile } = choice;
    if (!quietly) state(profile, { chance: "", text: words.asking });
    asking = new AbortController();
    const { signal } = asking;
    const unknown = () => signal.aborted || state(profile, { chance: "unknown", text: words.not_known });
    pause = setTimeout(() => trial(choice, key, signal).catch(unknown), 600);
  });

  /** Have Slurm say when the choice would start, where the page does not know that or it has been asked before. */
  function askOfChoice() {
    const profile = currentChoice(form)?.profile;
    if (!profile || !notice.hidden) return;
    const isOpen = stateOf(profile).matches(".later, .unknown");
    if (isOpen || results.has(profile)) tryOut({ quietly: true });
  }

  function updateAges() {
    for (const age of all(form, "[data-age]")) {
      const seconds = Number(age.dataset.age) + (performance.now() - told) / 1000;
      age.textContent = ageInWords(seconds, words);
    }
  }

  /** Update the availability when the reader comes back to the page; all readers share one query of Slurm. */
  async function renew(after = 15000) {
    if (document.visibilityState !== "visible" || performance.now() - told < after) return;
    const begun = performance.now();
    const answer = await ask(`profiles/${ofUser}`);
    if (!answer.ok) return;
    const { taken_at: takenAt, silent, silent_clusters: silentClusters, profiles } = await answer.json();
    const names = Object.keys(silentClusters);
    const [asOf] = names.length ? Object.values(silentClusters).filter(Boolean).sort() : [takenAt];
    const sentenceName = `${names.length ? "silent_on" : "silent"}${asOf ? "" : "_from_the_start"}`;
    say(notice, silent ? words[sentenceName].replace("{clusters}", names.join(" and ")) : "", asOf);
    notice.hidden = !silent;
    const sent = Date.parse(answer.headers.get("Date") ?? "");
    /** @param {string | null} moment */
    const ageOf = (moment) => (moment ? Math.max(0, Math.round((sent - Date.parse(moment)) / 1000)) : undefined);
    for (const { slug, availability, choices } of profiles) {
      const radio = first(document, `#profile-${CSS.escape(slug)}`, HTMLInputElement);
      const profile = radio?.disabled ? null : radio?.closest(".gs-choice");
      if (!profile) continue;
      showChoices(profile, choices);
      if (!availability) continue;
      showRow(profile, availability);
      if (results.has(profile)) continue; // what was asked of a choice is not the profile's
      state(profile, {
        chance: availability.chance,
        text: sentence(availability.sentence),
        at: availability.starts_at,
        ends: availability.ends_at,
      });
    }
    const age = ageOf(takenAt);
    for (const element of all(form, "[data-age]")) if (age !== undefined) element.dataset.age = `${age}`;
    told = begun;
    updateAges();
    askOfChoice();
  }

  setInterval(updateAges, 10000);
  askOfChoice();
  // older than the hub would have it: its question to Slurm is under way, and answered by then, or late
  const oldest = Math.max(...all(form, "[data-age]").map((each) => Number(each.dataset.age)), 0);
  if (oldest > FRESH && notice.hidden) setTimeout(() => renew(0).catch(() => {}), 4000);
  setInterval(() => renew().catch(() => {}), 20000); // before the hub itself would no longer say that something starts now
  document.addEventListener("visibilitychange", () => renew().catch(() => {}));
}

if (chooser) judgeChoices(chooser);
