/*
 * What JupyterLab 4 shows of the Slurm job that it runs in: time left and use in the status bar, notices, messages, and
 * a panel with all of it. Open documents are saved before the end.
 *
 * A module federation container, loaded as it is, without a build. Its data come from this server's own extension
 * (gpuspawner_companion.py), and are shown as text.
 */

(() => {
  const NAME = "gpuspawner-companion";
  const POLL = 60000; // milliseconds between two questions to the hub
  const POLL_USE = 20000; // milliseconds between two readings of the last sample, which this server has
  const ENDED = 424; // JupyterHub's answer to requests for a server that does not run
  const SHORT = 140; // characters that a notification shows
  const OPEN = "gpuspawner:open-panel";
  const MORE = "gpuspawner:more-time";
  const HOME = "gpuspawner:home";
  const STOP = "gpuspawner:stop";
  const KEEP = "gpuspawner:keep";
  const KERNELS = "running:show-panel";
  const SEEN = "gpuspawner-companion:seen"; // of all servers of this site, which share a browser's storage
  const KEPT = 200; // messages of which it is remembered that they were seen
  const LAB = "@jupyterlab/application";

  /** The modules that JupyterLab shares with its extensions, by name and version. @type {Companion.Scope} */
  let shared = {};

  // --- JupyterLab's modules

  /**
   * The version of a shared module that the application itself uses.
   * @param {string} name
   */
  function versionOf(name) {
    const versions = Object.entries(shared[name] || {});
    const own =
      versions.find(([, entry]) => entry.loaded) || versions.find(([, entry]) => /application-top/.test(entry.from));
    return own || versions[versions.length - 1];
  }

  /**
   * @param {string} name
   * @returns {Promise<any>} the module, as it is
   */
  async function load(name) {
    const found = versionOf(name);
    if (!found) return {};
    return (await found[1].get())();
  }

  /** Only JupyterLab 4 and later: version 3 has other notifications, and other applications have other shells. */
  function supported() {
    const found = versionOf(LAB);
    return Number.parseInt(found?.[0] ?? "", 10) >= 4;
  }

  // --- words

  /** How durations and times of day are said: as on the hub's pages. @type {typeof import("./words.js")} */
  let words;
  const duration = (/** @type {number} */ seconds) => words.duration(seconds);
  const clock = (/** @type {number} */ at) => words.clock(new Date(at), Date.now());

  /** @template T @param {T[] | undefined} value @returns {T[]} */
  const list = (value) => (Array.isArray(value) ? value : []);
  /** @param {number[] | undefined} value */
  const numbers = (value) => list(value).filter((each) => typeof each === "number" && each > 0);

  /**
   * @template {keyof HTMLElementTagNameMap} K
   * @param {K} tag
   * @param {string} [text]
   * @param {string} [className]
   */
  function element(tag, text, className) {
    const made = document.createElement(tag);
    if (text) made.textContent = text;
    if (className) made.className = className;
    return made;
  }

  /**
   * A bar as on the hub's pages, with its name and words.
   * @param {Companion.Bar} bar
   */
  function barLine([name, said, percent]) {
    const line = element("li", "", "gs-bar-line");
    const bar = element("span", "", "gs-bar yours");
    const filled = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    filled.setAttribute("width", `${percent}%`);
    bar.append(filled);
    line.append(element("span", `${name} `), element("span", said), bar);
    return line;
  }

  // --- the session

  /** The hub's last answer, and the time left by the clock of this browser. */
  class Session {
    constructor() {
      /** @type {Companion.Known} */
      this.document = {};
      this.ahead = 0; // milliseconds by which this browser's clock is ahead of the hub's
      /** @type {number | null} by this browser's clock */
      this.endsAt = null;
      this.away = ""; // why nothing is known of the server now
      this.ended = false;
      this.reason = ""; // why it has ended
    }

    /** @param {Companion.Known} answer */
    take(answer) {
      this.document = answer;
      this.ahead = Date.now() - Date.parse(answer.now ?? "");
      const ends = this.here(answer.ends_at);
      this.endsAt = Number.isNaN(ends) ? null : ends;
    }

    /**
     * A time of the hub's, by this browser's clock.
     * @param {string | null | undefined} at
     */
    here(at) {
      return Date.parse(at ?? "") + this.ahead;
    }

    /**
     * The server answered with this status; 0: it could not be reached.
     * @param {number} status
     */
    heard(status) {
      this.ended = status === ENDED;
      if (status === 200) this.reason = "";
      if (this.ended) Object.assign(this, { document: {}, endsAt: null, away: "This server has ended" });
      else this.away = status === 0 || status >= 500 ? "No connection to this server" : "";
    }

    get left() {
      return this.endsAt === null ? null : (this.endsAt - Date.now()) / 1000;
    }

    get words() {
      if (this.away) return this.away;
      if (this.left === null) return "";
      return this.left > 0 ? `${duration(this.left)} left` : "Time is up";
    }

    get canExtend() {
      return Boolean(this.document.more_time?.possible);
    }
  }

  /**
   * The smallest of some numbers of minutes that is not yet over, such as 10 where 7 minutes are left.
   * @param {number[]} minutes
   * @param {number} left seconds
   */
  function passed(minutes, left) {
    return Math.min(Infinity, ...minutes.filter((each) => left <= each * 60));
  }

  /** Tells once when the time left falls to one of some numbers of minutes; an end that moves starts anew. */
  class Alarm {
    constructor() {
      /** @type {number | null} not known: what was over before the page was opened is not told */
      this.last = null;
    }

    /**
     * @param {number[]} minutes
     * @param {number} left seconds
     */
    rings(minutes, left) {
      const now = passed(minutes, left);
      const before = this.last;
      this.last = now;
      return before !== null && now < before ? now : null;
    }
  }

  // --- the plugin

  /**
   * @param {Companion.App} app
   * @param {{ServerConnection: any, Widget: any, PageConfig: any}} modules
   * @param {any} labShell
   * @param {any} statusBar
   * @param {any} palette
   */
  function activate(app, { ServerConnection, Widget, PageConfig }, labShell, statusBar, palette) {
    if (!labShell) return; // not JupyterLab
    const settings = app.serviceManager.serverSettings;
    const session = new Session();
    const notices = new Alarm();
    const saves = new Alarm();
    /** @type {Promise<any> | null} */
    let shownNotice = null;
    /** @type {any} */
    let panel = null;
    let stopped = false;
    let asked = false;
    /** @type {number | null} */
    let lastEnd = null;
    let counted = ""; // the time that the notice says
    /** The sentence with the time that is left. @type {(time: string) => string} */
    let ending = () => "";
    let askedAt = 0; // when a dialog of JupyterLab made us ask why
    /** The last sample of the GPUs. @type {Companion.Use} */
    let use = {};

    /** @param {string} name @returns {string} */
    const option = (name) => (PageConfig ? PageConfig.getOption(name) : "");
    const hub = option("hubPrefix") && `${option("hubHost")}${option("hubPrefix").replace(/\/*$/, "/")}`;
    const server = [option("hubUser"), option("hubServerName")].filter(Boolean).map(encodeURIComponent).join("/");
    const here = new URL(settings.baseUrl, location.href).pathname; // as JupyterLab's dialog names this server
    /** @param {string} path */
    const url = (path) => `${settings.baseUrl}gpuspawner/${path}`;
    /** @type {(path: string, init: RequestInit) => Promise<Response>} */
    const ask = (path, init) => ServerConnection.makeRequest(url(path), init, settings);
    /** @type {(command: string, args?: object) => Promise<any>} */
    const run = (command, args) =>
      app.commands.hasCommand(command) ? app.commands.execute(command, args).catch(() => null) : Promise.resolve(null);
    /**
     * @param {string} message
     * @param {"info" | "success" | "warning" | "error"} type
     * @param {number | false} autoClose milliseconds, or not at all
     * @param {Companion.Action[]} [actions]
     */
    const notify = (message, type, autoClose, actions) =>
      run("apputils:notify", { message, type, options: { autoClose, actions: actions || [] } });

    /**
     * A button of the panel.
     * @param {string} text
     * @param {string} command
     */
    function press(text, command, look = "") {
      const button = element("button", text, `jp-mod-styled ${look}`);
      button.addEventListener("click", () => run(command));
      return button;
    }

    async function refresh() {
      if (stopped) return;
      try {
        const answer = await ask("session", {});
        if (answer.status === 404) stopped = true; // the server's part is not there
        session.heard(answer.status);
        if (answer.status === ENDED) session.reason = reasonIn(await answer.text()) || session.reason;
        if (answer.status === 200) {
          const found = await answer.json();
          if (found.version !== 1) return;
          session.take(found);
          tellMessages();
        } // else the hub does not answer, and the time is counted from what was known
      } catch {
        session.heard(0);
      }
      if (session.endsAt === null) dismiss();
      asked = true;
      tellIdle();
      tellMemory();
      tick();
      show();
    }

    async function refreshUse() {
      if (stopped) return;
      try {
        const answer = await ask("usage", {});
        session.heard(answer.status);
        use = answer.status === 200 ? await answer.json() : {};
        use.measured = new Date(Date.now() - 1000 * (use.age ?? 0)).toLocaleTimeString([], { timeStyle: "medium" });
        tellMemory();
      } catch {
        session.heard(0);
        use = {}; // the server does not answer
      }
      show();
    }

    // --- the status bar and the panel

    const item = new Widget({ node: element("button", "", "gpuspawner-status") });
    item.node.type = "button";
    item.node.addEventListener("click", () => run(OPEN));
    if (statusBar) {
      statusBar.registerStatusItem(`${NAME}:time`, {
        item,
        align: "right",
        rank: 1,
        priority: 1, // shown in narrow and much enlarged windows, too
        isActive: () => Boolean(inShort()),
        activeStateChanged: {
          connect: (/** @type {() => void} */ slot, /** @type {unknown} */ context) => {
            item.changed = () => slot.call(context);
          },
        },
      });
    }

    /** "12 min left · GPU 83 %, 21 of 40 GB"; where nothing is measured, "12 min left · 1 × A100, 40 GB". */
    function inShort() {
      if (session.away) return session.away;
      const gpus = use.short || list(session.document.gpus).join(", ");
      const memory = use.host?.memory ? `memory ${use.host.memory}` : "";
      return [session.words, gpus, memory].filter(Boolean).join(" · ");
    }

    function show() {
      const words = inShort();
      if (item.node.textContent !== words) {
        item.node.textContent = words;
        const end = session.endsAt === null ? "" : `This server ends at ${clock(session.endsAt)}. `;
        const gpus = list(session.document.gpus).join(", ");
        item.node.title = `${gpus ? `${gpus}. ` : ""}${end}Click for details.`;
        if (item.changed) item.changed();
      }
      const first = Math.max(0, ...numbers(session.document.notices));
      const soon = session.left !== null && session.left <= Math.min(first, 10) * 60;
      item.node.classList.toggle("gpuspawner-soon", soon || (!session.away && Boolean(use.host?.low_since)));
      if (panel && !panel.isDisposed) draw();
    }

    function draw() {
      panel.node.dataset.bsTheme = document.body.dataset.jpThemeLight === "false" ? "dark" : "light";
      const known = session.document;
      const end = session.endsAt === null ? "" : `${session.words}, until ${clock(session.endsAt)}`;
      panel.time.textContent =
        (session.ended && session.reason) || session.away || end || "The end of this server is not known.";
      drawUse();
      const more = known.more_time || {};
      const shown = [
        known.course,
        known.session_ends_at,
        known.node,
        known.job_id,
        known.has,
        known.messages,
        known.idle,
        more,
        known.picture,
        session.ended,
      ];
      const key = JSON.stringify(shown);
      if (key === panel.drawn) return;
      panel.drawn = key;
      const rows = element("dl", "", "gs-list");
      const until = known.session_ends_at ? `session until ${clock(session.here(known.session_ends_at))}` : "";
      const course = [known.course, until].filter(Boolean).join(", ");
      const profile = course ? ["Course", course] : ["Profile", known.profile];
      const facts = [profile, ["Node", known.node], ["Job", known.job_id], ["Resources", list(known.has).join(", ")]];
      for (const [name, text] of facts) if (text) rows.append(element("dt", name), element("dd", String(text)));
      const parts = [];
      if (session.canExtend) {
        const line = element("p", "", "gs-actions");
        line.append(press("More time", MORE, "jp-mod-accept"), `${withTime(more.words, more.until)}`);
        parts.push(line);
      } else if (more.message) parts.push(element("p", String(more.message)));
      if (known.idle) {
        const notice = element("div", "", "gs-note");
        notice.append(element("p", idleWords(known.idle)));
        if (known.idle.can_keep) notice.append(press("Keep", KEEP));
        notice.append(element("p", String(known.idle.keeps)));
        parts.push(notice);
      }
      for (const message of list(known.messages)) {
        const quote = element("div", "", "gs-note gs-info");
        quote.append(element("strong", sender(message)), element("p", String(message.text)));
        parts.push(quote);
      }
      parts.push(rows);
      if (hub) {
        const ways = element("p", "", "gs-actions");
        ways.append(press("Home", HOME));
        if (!session.ended) ways.append(press("Stop", STOP));
        parts.push(ways);
      }
      if (known.picture) {
        const picture = element("img");
        picture.src = `${url("picture")}?job=${encodeURIComponent(known.job_id || "")}`;
        picture.alt = `The node ${known.node}, with the GPUs and cores of this server marked`;
        parts.push(picture);
      }
      panel.rest.replaceChildren(...parts);
    }

    function drawUse() {
      const gpus = list(use.gpus);
      const bars = [...gpus, ...(session.away ? [] : list(use.host?.bars))];
      const problems = list(use.problems).map(String);
      const when = `Measured at ${use.measured}.${use.simulated && gpus.length ? " Simulated, like the GPUs." : ""}`;
      const key = JSON.stringify([bars, problems, when]);
      if (key === panel.drawnUse) return;
      panel.drawnUse = key;
      const rows = element("ul", "", "gs-bars");
      rows.append(...bars.map(barLine));
      const shown = [
        element("h3", "In use", "gs-label"),
        rows,
        ...problems.map((text) => element("p", text, "gs-note")),
      ];
      panel.use.replaceChildren(...(bars.length || problems.length ? [...shown, element("p", when, "gs-label")] : []));
    }

    function openPanel() {
      if (!panel || panel.isDisposed) {
        panel = new Widget({ node: element("div", "", "gpuspawner-panel") });
        panel.id = NAME;
        panel.title.label = "Where am I?";
        panel.title.caption = "This server: time left, node and GPUs";
        panel.title.closable = true;
        const page = element("div", "", "gs-page");
        panel.time = element("h2");
        panel.use = element("div", "", "gs-card");
        panel.rest = element("div");
        page.append(panel.time, panel.use, panel.rest);
        // it looks as the hub's pages do, by their stylesheets
        const sheets = list(session.document.styles).map((path) => option("hubHost") + path);
        panel.node.append(...sheets.map((href) => Object.assign(element("link"), { rel: "stylesheet", href })), page);
      }
      if (!panel.isAttached) labShell.add(panel, "main", { mode: "tab-after" });
      draw();
      if (window.innerWidth < 600) labShell.collapseLeft(); // beside the file browser there is no room on a phone
      labShell.activateById(panel.id);
    }

    // --- notices, saving, messages

    function tick() {
      const { left, endsAt } = session;
      if (left === null || endsAt === null) return;
      if (lastEnd !== null && endsAt > lastEnd + 30000) dismiss();
      lastEnd = endsAt;
      const save = saves.rings(numbers(session.document.saves), left) !== null;
      const notice = notices.rings(numbers(session.document.notices), left);
      if (left > 0 && save) run("docmanager:save-all");
      if (left > 0 && notice !== null) tellEnd(left, clock(endsAt), notice, save);
      countDown(left);
      show();
    }

    async function dismiss() {
      const shown = shownNotice;
      shownNotice = null; // at once: the next one may be shown while we wait
      const id = await shown;
      if (id) run("apputils:dismiss-notification", { id });
    }

    /**
     * @param {number} left seconds
     * @param {string} at the time of day
     * @param {number} notice minutes
     * @param {boolean} save
     */
    function tellEnd(left, at, notice, save) {
      dismiss();
      const saved = save ? " Open documents are saved now." : "";
      /** @type {Companion.Action[]} */
      const actions = session.canExtend
        ? [{ label: "More time", commandId: MORE, caption: "Extend this server" }]
        : [{ label: "Details", commandId: OPEN }];
      ending = (time) => `This server ends in ${time}, at ${at}.${saved}`;
      counted = duration(left);
      shownNotice = notify(ending(counted), "warning", notice > 10 ? 20000 : false, actions);
    }

    /**
     * The notice counts, by minutes and at last by ten seconds: a screen reader reads each change.
     * @param {number} left seconds
     */
    async function countDown(left) {
      const id = await shownNotice;
      const step = left > 60 ? 60 : 10;
      const words = left > 0 ? duration(Math.ceil(left / step) * step) : "";
      if (!id || !words || words === counted) return;
      counted = words;
      run("apputils:update-notification", { id, message: ending(words), type: "warning" });
    }

    // --- the end

    /**
     * What the hub's page of a server that does not run says of its end.
     * @param {string} html
     */
    function reasonIn(html) {
      const page = new DOMParser().parseFromString(html, "text/html");
      for (const time of page.getElementsByTagName("time")) time.textContent = clock(Date.parse(time.dateTime));
      const sentence = page.getElementById("gpuspawner-what");
      return sentence ? (sentence.textContent ?? "").replace(/\s+/g, " ").trim() : "";
    }

    /** JupyterLab's own dialog says that the server cannot be reached, and not why. */
    function explain() {
      for (const body of document.querySelectorAll(".jp-Dialog-body")) {
        if (!body.textContent?.includes(here) || body.querySelector(".gpuspawner-reason")) continue;
        if (session.reason) body.prepend(element("p", session.reason, "gpuspawner-reason"));
        else if (!session.ended && Date.now() - askedAt > 5000) {
          askedAt = Date.now();
          refresh();
        }
      }
    }

    /**
     * Asks the hub to change something, and tells what came of it.
     * @param {string} path
     * @param {string} field of the answer: the seconds that it brought
     * @param {(time: string) => string} said
     * @param {string} otherwise
     */
    async function change(path, field, said, otherwise) {
      let message = otherwise;
      let done = false;
      try {
        const answer = await ask(path, { method: "POST" });
        const found = await answer.json();
        done = answer.status === 200 && found[field] > 0;
        message = done ? said(duration(found[field])) : found.message || message;
      } catch {
        // said below
      }
      await refresh();
      notify(message, done ? "success" : "error", 8000);
    }

    const moreTime = () =>
      change("extend", "extended", (time) => `Extended by ${time}.`, "The server could not be asked for more time.");
    const keep = () =>
      change("keep", "kept", (time) => `This server is kept for ${time}.`, "The server could not be asked to be kept.");

    // --- an idle server

    /**
     * @param {string | undefined} text
     * @param {string | null | undefined} at
     */
    const withTime = (text, at) => String(text || "").replace("{time}", () => (at ? clock(session.here(at)) : ""));
    /** @param {Companion.Idle} idle */
    const idleWords = (idle) => `${withTime(idle.said, idle.since)} ${withTime(idle.follows, idle.stops_at)}`;

    /** A warning that stays as long as its cause: `key` is another one for the next occasion, and empty without one. */
    class Warning {
      constructor() {
        this.key = "";
        /** @type {Promise<any> | null} */
        this.shown = null;
      }

      /**
       * @param {string} key
       * @param {() => [string, Companion.Action[]] | null} say
       */
      async tell(key, say) {
        if (key === this.key) return;
        this.key = key;
        const id = await this.shown;
        this.shown = null;
        if (id) run("apputils:dismiss-notification", { id });
        const said = key ? say() : null;
        if (said) this.shown = notify(said[0], "warning", false, [...said[1], { label: "Details", commandId: OPEN }]);
      }
    }

    const idleness = new Warning();
    const memory = new Warning();

    function tellIdle() {
      const idle = session.document.idle;
      idleness.tell(idle ? `${idle.since}|${idle.warnings}` : "", () => {
        if (!idle) return null;
        const caption = String(idle.keeps);
        return [idleWords(idle), idle.can_keep ? [{ label: "Keep", commandId: KEEP, caption }] : []];
      });
    }

    /** Little memory is left: told once, also where the page is opened again. */
    function tellMemory() {
      const since = asked && use.host?.low_since; // the hub may name a profile that has more
      memory.tell(since ? `memory|${since}` : "", () => {
        if (!unseen([memory.key]).length) return null;
        const full = `Memory is nearly full: ${use.host?.memory} are in use. When it is full, a kernel or the server ends.`;
        const more = session.document.more_memory || "";
        const kernels = app.commands.hasCommand(KERNELS) ? [{ label: "Kernels", commandId: KERNELS }] : [];
        return [`${full} Shut down kernels that you no longer need. ${more}`.trim(), kernels];
      });
    }

    /** @param {Companion.Message} message */
    const sender = (message) => [message.sender, message.course && `(${message.course})`].filter(Boolean).join(" ");

    /**
     * Those of these keys that were not seen before.
     * @param {string[]} keys
     */
    function unseen(keys) {
      /** @type {string[]} */
      let seen = [];
      try {
        seen = list(JSON.parse(localStorage.getItem(SEEN) ?? "[]"));
        localStorage.setItem(SEEN, JSON.stringify([...new Set([...keys, ...seen])].slice(0, KEPT)));
      } catch {
        // told again on the next page
      }
      return keys.filter((key) => !seen.includes(key));
    }

    function tellMessages() {
      const messages = new Map(
        list(session.document.messages).map((message) => [`${message.course}|${message.at}`, message]),
      );
      for (const key of unseen([...messages.keys()])) {
        const message = messages.get(key);
        const whole = message ? `${sender(message)}: ${message.text}` : "";
        const short = whole.length > SHORT ? `${whole.slice(0, SHORT - 1)}…` : whole;
        notify(short, "info", false, [{ label: "Details", commandId: OPEN }]);
      }
    }

    // --- commands

    app.commands.addCommand(OPEN, { label: "This Server: Where Am I?", execute: openPanel });
    app.commands.addCommand(MORE, {
      label: "This Server: More Time",
      isEnabled: () => session.canExtend,
      execute: moreTime,
    });
    app.commands.addCommand(KEEP, {
      label: "This Server: Keep",
      isEnabled: () => Boolean(session.document.idle?.can_keep),
      execute: keep,
    });
    /** @param {string} path */
    const leave = (path) => () => hub && window.open(`${hub}${path}`, "_blank", "noopener");
    app.commands.addCommand(HOME, {
      label: "This Server: Home Page of the Hub",
      isEnabled: () => Boolean(hub),
      execute: leave("home"),
    });
    app.commands.addCommand(STOP, {
      label: "This Server: Stop",
      isEnabled: () => Boolean(hub && !session.ended),
      execute: leave(`gpuspawner/stop/${server}`),
    });
    if (palette) for (const command of [OPEN, MORE, KEEP, HOME, STOP]) palette.addItem({ command, category: "Server" });

    const sheet = new CSSStyleSheet(); // not a <style>, which a site's Content-Security-Policy may forbid
    sheet.replaceSync(STYLE);
    document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
    const look = () => Promise.all([refresh(), refreshUse()]);
    app.restored.then(look).catch(() => null);
    setInterval(tick, 1000);
    setInterval(explain, 1000);
    setInterval(() => document.hidden || refresh(), POLL);
    setInterval(() => document.hidden || refreshUse(), POLL_USE);
    document.addEventListener("visibilitychange", () => document.hidden || look());
  }

  const STYLE = `
    .gpuspawner-status { border: 0; background: none; color: inherit; font: inherit; cursor: pointer; padding: 0 6px; }
    /* it shrinks before it moves others out of the window; where even that is too wide, it comes before them */
    .gpuspawner-status { min-width: 10em; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
    :has(> .gpuspawner-status) { min-width: 0; }
    @media (width < 900px) { .gpuspawner-status { order: -1; } }
    .gpuspawner-status:hover { background: var(--jp-layout-color3); }
    .gpuspawner-soon { background: var(--jp-warn-color1); color: #000; }
    .gpuspawner-panel { background: var(--gs-page, var(--jp-layout-color1)); color: var(--jp-ui-font-color1); overflow: auto;
      & > .gs-page { display: grid; gap: var(--gs-4); max-inline-size: 52rem; margin-inline: 0; }
      & .gs-card, & .gs-bars { display: grid; gap: var(--gs-3); }
      & .gs-card { padding: var(--gs-4); }
      & .gs-card:empty { display: none; }
      & .gs-note { white-space: pre-line; }
      & .gs-page > div > * + * { margin-block-start: var(--gs-3); }
      & .gs-card > * { margin: 0 !important; }
      & button { border: 1px solid var(--gs-edge, transparent); } /* forced colours show it */
      & img { background: #fff; max-width: 100%; }
    }
  `;

  /** @param {typeof words} imported */
  async function plugin(imported) {
    words = imported;
    if (!supported()) return [];
    const names = [
      LAB,
      "@jupyterlab/statusbar",
      "@jupyterlab/apputils",
      "@jupyterlab/services",
      "@lumino/widgets",
      "@jupyterlab/coreutils",
    ];
    const [application, statusbar, apputils, services, widgets, core] = await Promise.all(names.map(load));
    const tools = { ServerConnection: services.ServerConnection, Widget: widgets.Widget, PageConfig: core.PageConfig };
    if (!tools.ServerConnection || !tools.Widget) return [];
    const tokens = [application.ILabShell, statusbar.IStatusBar, apputils.ICommandPalette];
    const optional = tokens.filter(Boolean);
    return {
      id: `${NAME}:plugin`,
      description: "Shows the time left of a server that JupyterHub runs as a Slurm job.",
      autoStart: true, // not "defer", which JupyterLab 4.0 never starts
      optional,
      activate(/** @type {Companion.App} */ app, /** @type {any[]} */ ...services) {
        try {
          const [shell, bar, palette] = tokens.map((token) => (token ? services[optional.indexOf(token)] : null));
          activate(app, tools, shell, bar, palette);
        } catch (error) {
          console.debug(NAME, error);
        }
      },
    };
  }

  window._JUPYTERLAB ??= {};
  window._JUPYTERLAB[NAME] = {
    init(/** @type {Companion.Scope} */ scope) {
      shared = scope;
    },
    async get() {
      const found = await import("./words.js").then(plugin).catch(() => []); // whatever is missing, JupyterLab starts
      return () => ({ __esModule: true, default: found });
    },
  };
})();
