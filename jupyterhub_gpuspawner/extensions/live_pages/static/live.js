// The home page, kept up to date by a stream of its changes; without the stream it is looked at as a whole.

import { first, one } from "../elements.js";
import { home } from "../home.js";
import { keepUpToDate, showAway } from "../hub.js";
import { stream } from "./stream.js";

const SCRIPT = "#gpuspawner-stream";

const { url, version: shown } = one(document, SCRIPT).dataset;
let version = shown ?? "";
let broken = false;
let elsewhere = false;

const listen = stream(() => `${url}?version=${version}`, {
  show(event) {
    version = event.version;
    home?.show(event);
  },
  away(away) {
    broken = false;
    showAway(away ? "away" : "");
  },
  lost() {
    broken = true;
    look();
  },
  elsewhere() {
    elsewhere = true; // this one looks now and then
  },
});

async function look() {
  const page = (broken || elsewhere) && (await home?.look());
  if (page) version = first(page, SCRIPT)?.dataset.version ?? "";
  if (!elsewhere) listen();
}

if (home) {
  home.live = true;
  listen();
  keepUpToDate(look);
}
