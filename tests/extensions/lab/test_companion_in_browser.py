"""The companion's page part in a browser, with stand-ins for JupyterLab and the server: what it says, and when."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from jupyterhub_gpuspawner.extensions.lab.files import companion_files

pytestmark = pytest.mark.browser

SCRIPTS = {Path(name).name: text for name, text in companion_files().items() if name.endswith(".js")}
SITE = "http://hub.example"
LAB = """
const modules = {
  "@jupyterlab/application": { ILabShell: "shell" },
  "@jupyterlab/statusbar": { IStatusBar: "bar" },
  "@jupyterlab/apputils": { ICommandPalette: "palette" },
  "@jupyterlab/services": { ServerConnection: { makeRequest: (url, init) => fetch(url, init) } },
  "@lumino/widgets": { Widget: class { constructor({ node }) { this.node = node; } } },
};
const services = {
  shell: {},
  bar: { registerStatusItem: (id, { item }) => document.body.append(item.node) },
  palette: { addItem() {} },
};
const show = (text) => document.body.append(Object.assign(document.createElement("p"), { textContent: text }));
const toasts = [];
const execute = {
  "apputils:notify": ({ message }) => (show(message), toasts.push(document.body.lastChild)),
  "apputils:dismiss-notification": ({ id }) => toasts[id - 1].remove(),
  "apputils:update-notification": ({ id, message }) => (toasts[id - 1].textContent = message),
};
const app = {
  serviceManager: { serverSettings: { baseUrl: location.pathname } },
  commands: {
    hasCommand: () => true,
    addCommand() {},
    execute: async (id, args) => execute[id]?.(args),
  },
  restored: Promise.resolve(),
};
(async () => {
  const container = window._JUPYTERLAB["gpuspawner-companion"];
  const entry = (module) => ({ "4.0.0": { get: async () => () => module } });
  container.init(Object.fromEntries(Object.entries(modules).map(([name, module]) => [name, entry(module)])));
  const plugin = (await container.get("./extension"))().default;
  if (plugin.autoStart === true) plugin.activate(app, ...plugin.optional.map((token) => services[token]));
})();
"""
"""Starts plugins as JupyterLab 4.0 does."""
SESSION: dict[str, Any] = {
    "version": 1,
    "now": "2026-03-02T09:00:00+00:00",
    "ends_at": "2026-03-02T17:00:30+00:00",
    "gpus": ["K80"],
    "messages": [],
}


NOT_RUNNING = """<!doctype html><p id="gpuspawner-what">The job was cancelled.
It ended at <time datetime="2026-03-02T09:00:00+00:00">09:00 UTC</time>.</p>"""
"""A part of the hub's page of a server that has ended."""
DIALOG = """(words) => document.body.insertAdjacentHTML("beforeend",
    `<div class="jp-Dialog"><span class="jp-Dialog-body">${words}</span></div>`)"""


class Servers:
    """One person's servers, by path: the session that each tells, or the status with which it is refused."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.sessions: dict[str, dict[str, Any] | int] = {}
        self.usage: dict[str, Any] | None = None
        page.route(f"{SITE}/**", self._answer)

    def _answer(self, route: Route) -> None:
        path, _, name = route.request.url.removeprefix(SITE).partition("gpuspawner/")
        if script := SCRIPTS.get(path.rpartition("/")[2]):
            route.fulfill(content_type="text/javascript; charset=utf-8", body=script)
            return
        session = self.sessions[path]
        if not name:
            route.fulfill(content_type="text/html; charset=utf-8", body="<!doctype html><title>Lab</title>")
        elif isinstance(session, int):
            route.fulfill(status=session, content_type="text/html", body=NOT_RUNNING)
        elif name == "session":
            route.fulfill(content_type="application/json", body=json.dumps(session))
        elif name == "usage" and self.usage is not None:
            route.fulfill(content_type="application/json", body=json.dumps(self.usage))
        else:
            route.fulfill(status=204)

    def open(self, path: str) -> None:
        """JupyterLab of the server there."""
        self.page.goto(f"{SITE}{path}")
        self.page.add_script_tag(url=f"{SITE}/static/companion.js")
        self.page.add_script_tag(content=LAB)


@pytest.fixture
def servers(page: Page) -> Servers:
    page.clock.install(time="2026-03-02T09:10:00Z")  # ten minutes ahead of the hub's
    return Servers(page)


@pytest.mark.parametrize(("status", "words"), [(424, "This server has ended"), (503, "No connection to this server")])
def test_no_time_is_left_of_a_server_that_has_ended(servers: Servers, status: int, words: str) -> None:
    """After scancel there is nothing behind the page; a minute later it says so. JupyterLab 4.0 starts it, too."""
    servers.sessions["/user/ada/"] = SESSION
    servers.open("/user/ada/")
    shown = servers.page.locator(".gpuspawner-status")
    expect(shown).to_have_text("8 h left · K80")

    servers.sessions["/user/ada/"] = status
    servers.page.clock.fast_forward("01:00")
    expect(shown).to_have_text(words)

    servers.sessions["/user/ada/"] = SESSION
    servers.page.clock.fast_forward("01:00")
    expect(shown).to_have_text("8 h left · K80")


def test_the_dialog_of_jupyterlab_says_why_a_server_has_ended(servers: Servers) -> None:
    """Once, and a dialog about something else says nothing of it; times are those of the reader."""
    servers.sessions["/user/ada/"] = SESSION
    servers.open("/user/ada/")
    page = servers.page
    expect(page.locator(".gpuspawner-status")).to_have_text("8 h left · K80")
    servers.sessions["/user/ada/"] = 424
    page.evaluate(DIALOG, "Delete the file?")
    page.evaluate(DIALOG, "Your server at /user/ada/ is not running.")
    page.clock.run_for(9000)
    at = page.evaluate("new Date('2026-03-02T09:00:00Z').toLocaleTimeString([], { timeStyle: 'short' })")

    expect(page.locator(".jp-Dialog-body")).to_have_text(
        [
            "Delete the file?",
            f"The job was cancelled. It ended at {at}.Your server at /user/ada/ is not running.",
        ]
    )


def test_the_notice_of_the_end_counts(servers: Servers) -> None:
    """In the last minute by ten seconds; before, by minutes."""
    servers.sessions["/user/ada/"] = {**SESSION, "ends_at": "2026-03-02T09:01:10+00:00", "notices": [1]}
    servers.open("/user/ada/")
    page = servers.page
    expect(page.locator(".gpuspawner-status")).to_have_text("1 min left · K80")
    notices = []
    for seconds in (12, 12, 25):  # in all less than the minute after which the hub is asked again
        page.clock.run_for(seconds * 1000)
        notices.append([words.partition(", at ")[0] for words in page.locator("p").all_text_contents()])

    assert notices == [[f"This server ends in {time}"] for time in ("1 min", "50 s", "30 s")]


def memory_in_use(memory: str, low_since: float | None) -> dict[str, Any]:
    """A sample of a server without GPUs."""
    return {"short": "", "gpus": [], "age": 0, "host": {"memory": memory, "bars": [], "low_since": low_since}}


@pytest.mark.parametrize("low_since", [None, 1000.5])
def test_memory_is_beside_the_time_left(servers: Servers, low_since: float | None) -> None:
    """Marked where little is left of it: most kernels that die are out of memory."""
    servers.sessions["/user/ada/"] = {**SESSION, "gpus": []}
    servers.usage = memory_in_use("7.6 of 8 GiB", low_since)
    servers.open("/user/ada/")
    status = servers.page.locator(".gpuspawner-status")

    expect(status).to_have_text("8 h left · memory 7.6 of 8 GiB")
    expect(status).to_have_class("gpuspawner-status" + " gpuspawner-soon" * bool(low_since))


def test_each_time_that_memory_runs_low_is_told_once(servers: Servers) -> None:
    """With what to do, and not again by a page that is opened anew; the warning goes when memory is free again."""
    servers.sessions["/user/ada/"] = {**SESSION, "more_memory": "A100 has more: 64 GiB."}
    warnings = []
    steps = (("7.6 of 8 GiB", 1000.5), ("7.9 of 8 GiB", 1000.5), ("2 of 8 GiB", None), ("7.4 of 8 GiB", 2000.5))
    for memory, low_since in (*steps, ("7.5 of 8 GiB", 2000.5)):
        servers.usage = memory_in_use(memory, low_since)
        if memory in ("7.6 of 8 GiB", "7.5 of 8 GiB"):
            servers.open("/user/ada/")
        else:
            servers.page.clock.run_for(21_000)
        expect(servers.page.locator(".gpuspawner-status")).to_have_text(f"8 h left · K80 · memory {memory}")
        warnings.append(servers.page.locator("p").all_text_contents())

    what_to_do = "When it is full, a kernel or the server ends. Shut down kernels that you no longer need."
    sentence = f"Memory is nearly full: {{}} are in use. {what_to_do} A100 has more: 64 GiB."
    first, second = ([sentence.format(memory)] for memory in ("7.6 of 8 GiB", "7.4 of 8 GiB"))
    assert warnings == [first, first, [], second, []]


def test_a_message_is_told_once_to_the_user_of_two_servers(servers: Servers) -> None:
    """All servers share the browser's storage, and each has its own messages."""
    message = {
        "course": "",
        "at": "2026-03-02T08:00:00+00:00",
        "text": "The cluster is closed on Friday.",
        "sender": "root",
    }
    servers.sessions = {"/user/ada/": {**SESSION, "messages": [message]}, "/user/ada/two/": SESSION}
    texts = []
    for path in ("/user/ada/", "/user/ada/two/", "/user/ada/"):
        servers.open(path)
        expect(servers.page.locator(".gpuspawner-status")).to_have_text("8 h left · K80")
        texts.append(servers.page.locator("p").all_text_contents())

    assert texts == [["root: The cluster is closed on Friday."], [], []]


def test_all_times_are_by_the_clock_that_the_user_sees(servers: Servers) -> None:
    """The browser's clock is ten minutes ahead; what the hub stops at 9:30 ends at 9:40 there."""
    idle = {
        "said": "Idle since {time}.",
        "since": "2026-03-02T08:30:00+00:00",
        "follows": "It is stopped at {time}.",
        "stops_at": "2026-03-02T09:30:00+00:00",
        "warnings": 1,
        "keeps": "",
        "can_keep": False,
    }
    servers.sessions["/user/ada/"] = {**SESSION, "idle": idle}
    servers.open("/user/ada/")
    shown = "new Date(Date.UTC(2026, 2, 2, {})).toLocaleTimeString([], {{ timeStyle: 'short' }})"
    since, stops = (servers.page.evaluate(shown.format(f"{hour}, {minute}")) for hour, minute in ((8, 40), (9, 40)))
    expect(servers.page.locator("p")).to_have_text(f"Idle since {since}. It is stopped at {stops}.")
