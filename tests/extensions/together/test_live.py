"""The home page's cards and the administrators' map; every state is reached on a real Slurm."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import requests
from playwright.sync_api import ConsoleMessage, Locator, Page, expect
from sqlalchemy import create_engine

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import MACHINES, PrivateSlurm
from jupyterhub_gpuspawner.extensions.fleet.health import Grant
from jupyterhub_gpuspawner.extensions.fleet.node_record import View
from jupyterhub_gpuspawner.extensions.fleet.store import FleetStore
from jupyterhub_gpuspawner.hub import times
from jupyterhub_gpuspawner.placement.topology import load
from tests.browser.seeing import (
    PHONE,
    assert_accessible,
    broken_headers,
    return_until,
    shoot,
    sign_in,
    sign_in_with_server,
    small_targets,
)
from tests.fixtures.browser import OpenPage
from tests.fixtures.hubs import ASKS_OFTEN, COMMAND, NO_SPAWN_WAIT, StartHub
from tests.fixtures.slurm import hanging
from tests.hub.servers import start

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.browser, pytest.mark.usefixtures("no_job_is_left")]

CONFIG = """
c.GPUSlurmSpawner.slurm_timeout = 4.0
c.GPUSlurmSpawner.usage_interval = 600  # no summary but those that a test sends
import os, time
from pathlib import Path
from jupyterhub_gpuspawner.extensions.usage.use import ServerUsage
clock = Path(os.environ["GPUSPAWNER_DEMO_FOLDER"]) / "clock"
ServerUsage.__init__.__kwdefaults__["clock"] = lambda: time.time() - (float(clock.read_text()) if clock.exists() else 0)
c.JupyterHub.load_roles = [*c.JupyterHub.load_roles, {
    "name": "operators",
    "scopes": ["admin-ui", "list:users", "read:servers", "access:servers!user=kim"],
    "users": ["olive"],
}]
"""
PROFILES = f"""
- display_name: K80
  slug: k80
  slurm: {{partition: gpu, gpus: 2, gpu_type: k80, cpus: 4, memory: 1G, time: "1:00:00"}}
  profile_options:
    gpus: {{display_name: GPUs, range: {{min: 1, max: 4, default: 2, sets: slurm.gpus}}}}
  command: {COMMAND}
- display_name: P100
  slug: p100
  slurm: {{partition: gpu, gpus: 4, gpu_type: p100, cpus: 20, memory: 4G, time: "2:00:00"}}
  command: {COMMAND}
- display_name: Two nodes
  slug: two-nodes
  slurm: {{partition: gpu, nodes: 2, gpus: 2, cpus: 4, memory: 1G, time: "1:00:00"}}
  command: {COMMAND}
- display_name: Here
  slug: here
  kind: local
  command: {COMMAND}
- display_name: Broken
  slug: broken
  slurm: {{partition: batch, cpus: 1, memory: 100M, time: "0:10:00"}}
  command: [bash, -c, "echo 'no <b>module</b> jupyterhub' >&2; exit 3"]
"""
HOME = "/hub/home"
MAP = "/hub/gpuspawner/cluster"


@pytest.fixture(scope="module")
def hub(start_light_hub: StartHub) -> HubProcess:
    """A hub with a profile for each kind of node."""
    return start_light_hub(lines=f"{NO_SPAWN_WAIT}\n{ASKS_OFTEN}\n{CONFIG}", profiles=PROFILES)


@pytest.fixture
def other_job(slurm_cluster: PrivateSlurm) -> Callable[..., str]:
    """Submit a job that belongs to no server; return its id."""

    def submit(*what: str) -> str:
        return slurm_cluster.run("sbatch", "--parsable", "-t", "30", "-o", "/dev/null", *what, "--wrap=sleep 900")

    return submit


def card(page: Page, server: str = "") -> Locator:
    """The card of a server."""
    return page.locator(f'.gpuspawner-server[data-server-name="{server}"]')


def fact(page: Page, name: str, server: str = "") -> Locator:
    """A line of a card."""
    return card(page, server).locator(f'[data-fact="{name}"]')


def job_of(hub: HubProcess, user: str, server: str = "") -> str:
    """The job of a running server."""
    placement = hub.api("GET", f"/gpuspawner/placement/{user}/{server}".rstrip("/")).json()
    return str(placement["job_id"])


def api(page: Page, path: str) -> tuple[int, Any]:
    """Status and document of a REST request by the user who is signed in."""
    response = page.evaluate(
        """async (path) => {
            const answer = await fetch(path, { headers: { "X-XSRFToken": window.jhdata.xsrf_token } });
            return [answer.status, await answer.json()];
        }""",
        path,
    )
    return response[0], response[1]


# --- home ------------------------------------------------------------------------------------------


def test_cards_say_what_rest_says_in_words_and_in_the_picture(hub: HubProcess, page: Page, open_page: OpenPage) -> None:
    """Profile, time left and what it got; folded: node, job, GPUs, CPUs and NUMA nodes; light, dark and on a phone."""
    sign_in(page, hub, "ada")
    placements = {"": hub.spawn("ada", {"profile": "p100"}), "lab": hub.spawn("ada", {"profile": "k80"}, server="lab")}
    page.goto(hub.url + HOME)
    shoot(page, "home-cards")

    for server, (profile, left, got) in {
        "": ("P100", r"^1 h 5\d min left$", "4 \N{MULTIPLICATION SIGN} P100, 16 GB · 20 cores · 4 GiB memory"),
        "lab": (
            "K80 (server lab)",
            r"^5\d min left$",
            "2 \N{MULTIPLICATION SIGN} K80, 12 GB · 4 cores · 1 GiB memory",
        ),
    }.items():
        expect(card(page, server).get_by_role("heading", level=2)).to_have_text(profile)
        expect(card(page, server).locator(".gs-left b")).to_have_text(re.compile(left))
        expect(card(page, server).locator(".gpuspawner-got")).to_have_text(got)
        assert not fact(page, "Node", server).is_visible()
        card(page, server).locator("summary").first.click()

    for server, placement in placements.items():
        expect(card(page, server)).to_contain_text("simulated node")
        expect(card(page, server)).to_contain_text("CPUs and memory of the real machine are not bound.")
        expect(card(page, server).locator("summary b").first).to_have_text("Details")  # no warning
        expect(fact(page, "Node", server)).to_have_text(placement["node"])
        expect(fact(page, "Job", server)).to_have_text(f"{placement['job_id']}, partition gpu")
        expect(fact(page, "CPUs", server)).to_have_text(placement["cpus"])
        expect(fact(page, "NUMA nodes", server)).to_have_text(", ".join(map(str, placement["numa_nodes"])))
        own = [gpu["index"] for gpu in placement["gpus"]]
        assert re.findall(r"GPU (\d+):", fact(page, "GPUs", server).inner_text()) == list(map(str, own))
        picture = card(page, server).locator(".gpuspawner-picture svg")
        assert picture.locator("rect.gpu.own").count() == len(own) == len(placement["gpus"])
        expect(picture.locator("desc")).to_contain_text(", ".join(f"GPU {index}" for index in sorted(own)))
        expect(picture.locator("desc")).to_contain_text(f"CPUs {placement['cpus']}")
    assert_accessible(page)
    shoot(page, "home-details")

    dark = open_page(dark=True)
    sign_in_with_server(dark, hub, "ada")
    assert_accessible(dark)


@pytest.mark.nightly
def test_a_server_on_two_nodes_shows_what_it_has_on_each(hub: HubProcess, page: Page) -> None:
    """The other node is folded, with a picture of its own; on a phone, too."""
    hub.spawn("amy", {"profile": "two-nodes"})
    sign_in_with_server(page, hub, "amy")
    other = card(page).locator("details", has_text=re.compile(r"^\s*Node \w+: 2 "))
    return_until(page, lambda: other.count() == 1)
    expect(card(page)).to_contain_text("1 more node")
    card(page).locator("summary").first.click()
    other.locator("summary").first.click()
    expect(card(page).locator(".gpuspawner-picture svg:visible")).to_have_count(2)
    shoot(page, "home-several-nodes")
    assert_accessible(page)
    page.set_viewport_size(PHONE)
    assert_accessible(page)


MEANS: tuple[tuple[float | None, ...], ...] = ((0, 20, 85, 92, None, 95, 40, 83), (0, 0, 0, 0, 0, 0, 12, 60))
"""The mean use of two GPUs in each eighth of an hour."""


def send_the_last_hour(hub: HubProcess, user: str, placement: Mapping[str, Any]) -> None:
    """Send summaries with the server's own token, as if each had come at its time."""
    token = requests.get(f"{hub.url}/user/{user}/environ", timeout=30).json()["JUPYTERHUB_API_TOKEN"]
    for at, means in enumerate(zip(*MEANS, strict=True)):
        (hub.folder / "clock").write_text(str(450 * (7 - at)))
        gpus = []
        for gpu, mean in zip(placement["gpus"], means, strict=True):
            gpus.append({key: gpu[key] for key in ("index", "uuid", "mig", "memory_mib")})
            if mean is not None:
                gpus[-1].update(utilization=mean, utilization_mean=mean, utilization_max=min(100, mean + 5))
                gpus[-1].update(utilization_samples=15, processes=2, memory_used_mib=4096, memory_used_max_mib=5120)
        summary = {"version": 1, "seconds": 450, "samples": 15, "interval": 30, "simulated": True, "gpus": gpus}
        answer = hub.api("POST", "/gpuspawner/usage", {**summary, "cores": 1.5, "memory_mib": 768}, token=token)
        assert answer.status_code == 204, answer.text


@pytest.mark.nightly
def test_the_use_of_gpus_is_the_same_in_words_and_in_the_chart(hub: HubProcess, page: Page) -> None:
    """Now, and the last hour: the table has each summary; a time for which it is unknown is a gap, not idle."""
    placement = hub.spawn("uma", {"profile": "k80"})
    send_the_last_hour(hub, "uma", placement)
    sign_in_with_server(page, hub, "uma")
    use, hour = card(page).locator(".gpuspawner-use"), card(page).locator(".gpuspawner-hour")
    expect(card(page)).to_contain_text("Simulated, like the GPUs.")
    shoot(page, "home-use")
    page.set_viewport_size(PHONE)
    assert_accessible(page)
    card(page).locator("summary").first.click()
    hour.locator("summary").click()
    assert_accessible(page)
    assert broken_headers(page) == []

    for number, (gpu, means, now) in enumerate(zip(placement["gpus"], MEANS, ("83", "60"), strict=True)):
        shown, table = use.locator(".gpuspawner-gpu").nth(number), hour.locator("table").nth(number)
        name, percents = f"GPU {gpu['index']}", [mean for mean in means if mean is not None]
        expect(shown.locator("b")).to_have_text(name)
        expect(shown.locator(".gs-use")).to_have_text(f"{now}\N{NO-BREAK SPACE}%")
        expect(shown.locator(".gs-bar-line")).to_contain_text("4.3 of 12 GB")
        sentence = f"used {sum(percents) / len(percents):.0f} % on average, at most {max(percents) + 5:.0f} %."
        expect(shown.locator(".visually-hidden")).to_have_text(sentence)
        expect(table.locator("caption")).to_have_text(f"{name}: {sentence} 2 processes")
        rows = table.locator("tbody tr td:nth-child(2)").all_inner_texts()
        assert rows == ["use unknown" if mean is None else f"{mean:.0f}\N{NO-BREAK SPACE}%" for mean in means]
        line = shown.locator(".gs-spark .line").get_attribute("d") or ""
        heights = [100 - float(height) for height in re.findall(r"[ML][\d.]+ ([\d.]+)", line)]
        assert sorted(set(heights)) == sorted(set(percents))
        assert line.count("M") == 1 + (len(means) - len(percents))


@pytest.mark.nightly
def test_a_phone_shows_the_time_left_first(hub: HubProcess, open_page: OpenPage) -> None:
    """Profile, time left, resources and *Open* without scrolling; a picture that is wider says that it scrolls."""
    hub.spawn("pam", {"profile": "p100"})
    phone = open_page(phone=True)
    sign_in_with_server(phone, hub, "pam")
    button = card(phone).get_by_role("link", name="Open")
    box = button.bounding_box()
    assert box is not None
    assert box["y"] + box["height"] < PHONE["height"]
    expect(card(phone).locator(".gs-left b")).to_have_text(re.compile(r"^1 h 5\d min left$"))

    card(phone).locator("summary").first.click()
    expect(card(phone).get_by_text("Scroll sideways to see the whole picture.")).to_be_visible()
    hidden = (
        card(phone)
        .locator(".gpuspawner-picture > div")
        .evaluate("(picture) => picture.scrollWidth - picture.clientWidth")
    )
    assert hidden > 0
    assert_accessible(phone)


@pytest.mark.nightly
def test_the_cards_are_the_page(hub: HubProcess, page: Page) -> None:
    """Each server has one *Open* and one *Stop*; JupyterHub's buttons and table are gone, and nothing misses them."""
    problems: list[str] = []

    def note(line: ConsoleMessage) -> None:
        # the hub's fonts are not installed, and axe asks for what a stylesheet imports as if it stood in the page
        if line.type == "error" and not re.search("/components/|/hub/drawing.css$", line.location["url"]):
            problems.append(f"{line.text} {line.location['url']}")

    page.on("console", note)
    page.on("pageerror", lambda error: problems.append(str(error)))
    sign_in(page, hub, "nele")
    page.goto(hub.url + HOME)
    expect(page.locator("main")).to_contain_text("You have no running server.")
    assert_accessible(page)
    page.get_by_role("link", name="Start My Server").click()
    page.wait_for_url("**/hub/spawn/nele")

    hub.spawn("nele", {"profile": "here"})
    page.goto(hub.url + HOME)
    expect(page.get_by_role("link", name="Open")).to_have_count(1)
    expect(page.get_by_role("link", name="Stop")).to_have_count(1)
    expect(page.locator("table, #stop, .new-server-btn")).to_have_count(0)
    expect(page.get_by_text("You have no running server.")).to_have_count(0)
    assert problems == []


@pytest.mark.nightly
def test_the_page_shows_the_first_server_that_starts_and_that_it_has_gone(hub: HubProcess, page: Page) -> None:
    """A page that was opened before, without reloading it."""
    sign_in(page, hub, "odo")
    page.goto(hub.url + HOME)
    expect(page.locator("#gpuspawner-cards")).to_contain_text("You have no running server.")
    hub.spawn("odo", {"profile": "here"})
    return_until(page, lambda: card(page).get_by_text("running").count())
    hub.end("odo")
    return_until(page, lambda: page.get_by_text("You have no running server.").count())


@pytest.mark.nightly
def test_the_page_shows_new_messages_by_its_stream(hub: HubProcess, page: Page) -> None:
    """As text, whatever a message contains, and without the page being fetched again."""
    sign_in(page, hub, "pia")
    urls: list[str] = []
    page.on("request", lambda request: urls.append(request.url) if request.url.endswith(HOME) else None)
    page.goto(hub.url + HOME)
    text = "g1 is restarted <b>at noon</b>."
    answer = hub.api("POST", "/gpuspawner/messages", {"message": text, "to": {"user": "pia"}})
    assert answer.status_code == 200, answer.text
    expect(page.locator("#gpuspawner-messages")).to_contain_text(text)
    expect(page.locator("#gpuspawner-messages")).to_contain_text("Message from demo")
    assert len(urls) == 1
    assert_accessible(page)


EVENTS = "**/gpuspawner/home/events*"


def answer_with(page: Page, change: Callable[[str], str]) -> None:
    """Have the hub answer the home page's script with a changed page."""
    page.route(f"**{HOME}", lambda route: route.fulfill(body=change(route.fetch().text()), content_type="text/html"))


@pytest.mark.nightly
def test_a_card_that_changes_keeps_the_focus_and_what_is_open(hub: HubProcess, page: Page) -> None:
    """Also where a fold has come before the one that is open, and where the change is not of the card's state."""
    sign_in(page, hub, "uma")
    hub.spawn("uma", {"profile": "k80"})
    page.route(EVENTS, lambda route: route.abort())
    page.clock.install()
    page.goto(hub.url + HOME)
    details = card(page).locator("details[data-fold=details] > summary")
    details.click()
    focused = page.locator(":focus")
    expect(focused).to_contain_text("Details")
    before = card(page).get_attribute("data-version")
    new_fold = '<details data-fold="other"><summary>Another fold</summary></details>'
    answer_with(
        page,
        lambda html: html.replace(f'data-version="{before}"', 'data-version="another"').replace(
            '<details class="gs-drawer gpuspawner-details" data-fold="details">',
            new_fold + '<details class="gs-drawer gpuspawner-details" data-fold="details">',
        ),
    )
    page.clock.run_for(31_000)
    expect(card(page)).to_have_attribute("data-version", "another")

    expect(focused).to_contain_text("Details")
    expect(card(page).locator("details[open] > summary b")).to_have_text(["Details"])


@pytest.mark.nightly
@pytest.mark.parametrize("path", [HOME, "/hub/gpuspawner/cluster"], ids=["home", "the map"])
def test_a_page_says_that_it_is_not_kept_up_to_date(hub: HubProcess, page: Page, path: str) -> None:
    """While the hub is away, and after the sign-in has ended."""
    sign_in(page, hub, "admin")
    page.route(EVENTS, lambda route: route.abort())
    page.clock.install()
    page.goto(hub.url + path)
    notice = page.locator("#gpuspawner-away")
    expect(notice).to_be_hidden()
    page.route(f"**{path}*", lambda route: route.abort())
    page.clock.run_for(31_000)
    expect(notice).to_have_text(times.AWAY)
    assert_accessible(page)

    page.unroute(f"**{path}*")
    page.clock.run_for(31_000)
    expect(notice).to_be_hidden()

    page.context.clear_cookies()
    page.clock.run_for(31_000)
    expect(notice).to_have_text(times.SIGNED_OUT)


WRONG_CLOCK = """
const now = Date.now, origin = performance.timeOrigin, ahead = 50 * 60_000;
Date.now = () => now() + ahead;
Object.defineProperty(performance, "timeOrigin", { get: () => origin + ahead });
"""


@pytest.mark.nightly
def test_the_time_left_is_the_hubs_where_the_browsers_clock_is_wrong(hub: HubProcess, page: Page) -> None:
    """By fifty minutes: a server of an hour would be said to end in ten."""
    sign_in(page, hub, "vera")
    hub.spawn("vera", {"profile": "k80"})
    page.add_init_script(WRONG_CLOCK)
    page.goto(hub.url + HOME)

    expect(card(page).locator(".gs-left b")).to_have_text(re.compile(r"^(5\d min|1 h) left$"))
    expect(card(page).locator("[data-warning]")).to_be_hidden()


@pytest.mark.oldest
def test_stop_asks_where_work_would_be_lost_and_says_what_it_did(hub: HubProcess, page: Page) -> None:
    """One that waits in line is stopped at once; a named one and the default one after a question; no other one is."""
    user = "bea"
    sign_in(page, hub, user)
    hub.spawn(user, {"profile": "here"})
    job = hub.spawn(user, {"profile": "k80", "gpus": 4}, server="lab")["job_id"]
    start(hub, user, "k80", "waits")
    page.goto(hub.url + HOME)
    while card(page, "waits").get_attribute("data-state") != "waiting":
        page.wait_for_timeout(500)
        page.reload()
    expect(card(page, "waits")).to_contain_text("If you stop it, you give up your place in line.")

    card(page, "waits").get_by_role("button", name="Stop").click()
    page.wait_for_url(f"**{HOME}")
    expect(card(page, "waits")).to_contain_text(
        re.compile(r"K80 \(server waits\) left the line at .*; job \d+ was cancelled\.")
    )
    assert ready_servers(hub, user) == ["", "lab"]

    card(page, "lab").get_by_role("link", name="Stop").click()
    expect(page.get_by_role("heading", name="Stop K80 (server lab)?")).to_be_visible()
    expect(page.locator("main")).to_contain_text("Unsaved work and running kernels are lost. Your files stay.")
    expect(page.locator("main")).to_contain_text(re.compile(r"It has been running for \d+ (s|min)[^,]*, since \d.*\."))
    assert_accessible(page)
    page.get_by_role("link", name="Keep it running").click()
    assert ready_servers(hub, user) == ["", "lab"]

    card(page, "lab").get_by_role("link", name="Stop").click()
    page.get_by_role("button", name="Stop").click()
    page.wait_for_url(f"**{HOME}")
    sentence = re.compile(rf"K80 \(server lab\) was stopped at .*\d\d.*; job {job} released 4 GPUs\.")
    expect(card(page, "lab")).to_contain_text(sentence)
    expect(card(page, "lab").get_by_role("heading")).to_have_text("K80 (server lab)")
    expect(card(page, "lab").locator(".gs-state")).to_have_text("not running")
    assert ready_servers(hub, user) == [""]
    assert_accessible(page)
    shoot(page, "home-stopped")

    card(page).get_by_role("link", name="Stop").click()
    page.get_by_role("button", name="Stop").click()
    page.wait_for_url(f"**{HOME}")
    expect(card(page)).to_contain_text(re.compile(r"Here was stopped at .*\d\d.*\."))
    assert ready_servers(hub, user) == []
    card(page).get_by_role("link", name="Start").click()
    page.wait_for_url(f"**/hub/spawn/{user}")


def ready_servers(hub: HubProcess, user: str) -> list[str]:
    """The names of the user's servers that run."""
    model = hub.api("GET", f"/users/{user}").json()["servers"]
    return sorted(name for name, server in model.items() if server["ready"])


@pytest.mark.nightly
@pytest.mark.oldest
def test_named_servers_are_started_and_deleted(hub: HubProcess, page: Page) -> None:
    """By a name that JupyterHub accepts and that is not taken; the name stays until the server is deleted."""
    user = "lena"
    sign_in(page, hub, user)
    page.goto(hub.url + HOME)
    page.get_by_label("Server name").fill("lab")
    page.get_by_role("button", name="Start", exact=True).click()
    page.wait_for_url(f"**/hub/spawn/{user}/lab")
    page.check("#profile-here")
    page.click("#spawn_form button[type=submit]")
    page.wait_for_url(f"**/user/{user}/lab/**")  # else that navigation would interrupt the next one
    page.goto(hub.url + HOME)
    expect(card(page, "lab")).to_contain_text("Here (server lab)")

    page.get_by_label("Server name").fill("lab")
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.locator("main")).to_contain_text("You already have a server named lab.")
    expect(page.get_by_label("Server name")).to_have_value("lab")
    assert_accessible(page)
    page.goto(f"{hub.url}/hub/gpuspawner/delete/{user}/lab")
    expect(page.locator("main")).to_contain_text("This server is active. Stop it before you delete it.")
    hub.end(user, "lab")

    page.goto(hub.url + HOME)
    card(page, "lab").get_by_role("link", name="Delete").click()
    expect(page.get_by_role("heading", name="Delete Server lab?")).to_be_visible()
    assert_accessible(page)
    page.get_by_role("button", name="Delete").click()
    page.wait_for_url(f"**{HOME}")
    expect(card(page, "lab")).to_have_count(0)
    assert "lab" not in hub.api("GET", f"/users/{user}?include_stopped_servers").json()["servers"]


@pytest.mark.nightly
def test_the_page_warns_before_the_end_and_follows_a_changed_limit(
    hub: HubProcess, slurm_cluster: PrivateSlurm, page: Page
) -> None:
    """An open page follows a changed time limit; a warning is announced once when the end is near."""
    sign_in(page, hub, "fritz")
    placement = hub.spawn("fritz", {"profile": "k80"})
    page.goto(hub.url + HOME)
    warning = card(page).locator("[data-warning]")
    expect(card(page).locator(".gs-left b")).to_have_text(re.compile(r"^(5\d min|1 h) left$"))
    expect(warning).to_be_hidden()

    slurm_cluster.run("scontrol", "update", f"JobId={placement['job_id']}", "TimeLimit=12")
    return_until(page, warning.is_visible)
    expect(warning).to_have_text("It ends soon. Save your work.")
    expect(card(page).locator(".gs-left b")).to_have_text(re.compile(r"^1\d min left$"))
    expect(page.locator("#gpuspawner-news")).to_have_text("K80: It ends soon. Save your work.")
    ends_at = hub.api("GET", "/gpuspawner/placement/fritz").json()["ends_at"]
    assert ends_at < placement["ends_at"]
    assert card(page).locator(".gs-ends b time").get_attribute("datetime") is not None
    assert_accessible(page)

    slurm_cluster.run("scontrol", "update", f"JobId={placement['job_id']}", "TimeLimit=5")
    return_until(page, lambda: warning.inner_text() == "It ends in a few minutes. Save your work now.")


@pytest.mark.nightly
def test_a_server_that_waits_ends_or_fails_says_so(
    hub: HubProcess, slurm_cluster: PrivateSlurm, other_job: Callable[..., str], page: Page
) -> None:
    """An open page shows an end; a waiting server links to its progress, a failed one to the reason."""
    sign_in(page, hub, "gina")
    hub.spawn("gina", {"profile": "p100"})
    hub.spawn("gina", {"profile": "p100"}, server="ends")
    blocker = other_job("-p", "gpu", "--gres=gpu:k80:4")
    start(hub, "gina", "k80", "waits")
    start(hub, "gina", "broken", "fails")
    hub.wait("gina", "fails", ready=False)
    page.goto(hub.url + HOME)

    return_until(page, lambda: "You are next." in card(page, "waits").inner_text())
    expect(card(page, "waits")).to_contain_text("waiting in line")
    expect(card(page, "fails")).to_contain_text("did not start")
    expect(card(page, "fails").get_by_role("link", name="Start again")).to_be_visible()
    expect(card(page, "ends")).to_contain_text("running")
    slurm_cluster.run("scancel", job_of(hub, "gina", "ends"))
    return_until(page, lambda: "ended" in card(page, "ends").inner_text())
    expect(card(page, "ends")).to_contain_text(re.compile(r"The job was cancelled\.\s+It ended at .*\d\d"))
    expect(page.locator("#gpuspawner-news")).to_contain_text("P100 (server ends): ended.")
    expect(card(page)).to_contain_text("running")
    assert_accessible(page)

    card(page, "ends").get_by_role("link", name="Log").click()
    expect(page.locator("#gpuspawner-log-page code")).to_have_text(re.compile(r"/jupyterhub-\d+\.log$"))
    page.goto(hub.url + HOME)
    card(page, "waits").get_by_role("link", name="Show progress").click()
    page.wait_for_url("**/spawn-pending/gina/waits")
    slurm_cluster.run("scancel", blocker)


@pytest.mark.nightly
@pytest.mark.oldest
def test_the_log_is_a_click_away(hub: HubProcess, page: Page, open_page: OpenPage) -> None:
    """Its path and last lines, escaped; for the server's user and for an admin."""
    sign_in(page, hub, "ida")
    start(hub, "ida", "broken")
    hub.wait("ida", ready=False)
    page.goto(hub.url + HOME)
    card(page).get_by_role("link", name="Log").click()
    expect(page.locator("#gpuspawner-log-page code")).to_have_text(re.compile(r"/jupyterhub-\d+\.log$"))
    expect(page.locator("#gpuspawner-log-page pre")).to_contain_text("no <b>module</b> jupyterhub")
    assert_accessible(page)

    hub.spawn("ida", {"profile": "k80"}, server="lab")
    admin = open_page()
    sign_in(admin, hub, "admin")
    admin.goto(f"{hub.url}/hub/gpuspawner/log/ida/lab")
    expect(admin.locator("#gpuspawner-log-page")).to_contain_text(f"jupyterhub-{job_of(hub, 'ida', 'lab')}.log")


@pytest.mark.nightly
def test_slurms_silence_is_told_at_home_and_on_the_map(
    hub: HubProcess, slurm_cluster: PrivateSlurm, page: Page, open_page: OpenPage
) -> None:
    """The last known state stays, with its age."""
    sign_in(page, hub, "jo")
    hub.spawn("jo", {"profile": "k80"})
    page.goto(hub.url + HOME)
    expect(card(page)).to_contain_text("running")
    admin = open_page()
    open_map(admin, hub, "jo's server")
    with hanging(slurm_cluster):
        sentence = re.compile(r"Slurm is not responding at the moment\. This is as of .*\d\d.*\.")
        return_until(page, lambda: card(page).get_by_text("Slurm is not responding").count())
        return_until(admin, lambda: admin.locator("#gpuspawner-map .gs-note").get_by_text("Slurm is not").count())
        expect(card(page)).to_contain_text(sentence)
        expect(admin.locator("#gpuspawner-map .gs-note")).to_contain_text(sentence)
        expect(admin.locator("#gpuspawner-map")).to_contain_text("jo's server")
        admin.reload()
        expect(admin.locator("#gpuspawner-map")).to_contain_text("jo's server")


# --- the map ---------------------------------------------------------------------------------------


@pytest.fixture
def busy(hub: HubProcess, slurm_cluster: PrivateSlurm, other_job: Callable[..., str]) -> Iterator[str]:
    """Two servers, another user's job, whose id this returns, and a drained node."""
    job = other_job("-p", "gpu", "--gres=gpu:k80:1")
    hub.spawn("kim", {"profile": "p100"})
    hub.spawn("kim", {"profile": "k80"}, server="lab")
    slurm_cluster.run("scontrol", "update", "NodeName=c2", "State=DRAIN", "Reason=fan <b>broken</b>")
    yield job
    slurm_cluster.run("scontrol", "update", "NodeName=c2", "State=RESUME")


def node(page: Page, name: str) -> Locator:
    """The row of a node."""
    return page.locator("#gpuspawner-map li").filter(has=page.locator(f'xpath=./div[1]/b[text()="{name}"]'))


def open_map(page: Page, hub: HubProcess, *words: str) -> None:
    """Sign in as an admin and reload the map until it contains this: answers of Slurm are cached for some seconds."""
    sign_in(page, hub, "admin")
    page.goto(hub.url + MAP)
    for _ in range(60):
        text = page.locator("#gpuspawner-map").text_content() or ""
        if all(word in text for word in words):
            return
        page.wait_for_timeout(1000)
        page.reload()
    raise AssertionError(f"the map does not say {words}, but {text}")


def pieces(page: Page, name: str) -> list[str]:
    """The GPUs of a node as its row shows them."""
    cells = node(page, name).locator(".gs-cells > :not([aria-hidden])")
    return [" ".join(text.split()) for text in cells.all_text_contents()]


def test_the_map_shows_each_gpu_and_says_what_rest_says(
    hub: HubProcess, busy: str, other_job: Callable[..., str], page: Page, open_page: OpenPage
) -> None:
    """Free, in use by a server or by another job, out of service and why; light, dark and on a phone."""
    own, lab, in_line = job_of(hub, "kim"), job_of(hub, "kim", "lab"), other_job("-p", "gpu", "--gres=gpu:k80:4")
    open_map(page, hub, f"job {own}", f"job {lab}", f"job {busy}", f"job {in_line}", "drained")
    page.goto(hub.url + HOME)
    page.get_by_role("link", name="Cluster").click()
    page.wait_for_url(f"**{MAP}")

    served = f"kim's server lab, job {lab}"
    rows = pieces(page, "g1")
    assert sum(served in piece for piece in rows) >= 1
    assert f"GPU 0job {busy} of " in rows[0]
    free, ours = sorted(pieces(page, "d1"))
    left = r"1 h( \d+ min)? left"
    words = rf"kim, 4 GPUs, {left}GPU 0-3kim's server, job {own}, {left}LogStop kim's server"
    assert re.fullmatch(words, ours), ours
    assert free == "GPU 4-7: free"
    assert pieces(page, "m1") == ["GPU 0-1 A100: free", "GPU 2-5 A100 slice: free"]
    expect(node(page, "c2")).to_contain_text("drained: does not accept jobs")
    expect(node(page, "c2")).to_contain_text("fan <b>broken</b>")
    expect(node(page, "d1")).to_contain_text("20 of 40 CPUs")

    status, document = api(page, f"{hub.url}/hub/api/gpuspawner/cluster")
    nodes = {entry["name"]: entry for entry in document["nodes"]}
    gpus = [gpu["holders"] for gpu in nodes["d1"]["gpus"]]
    assert (status, document["version"], document["silent"]) == (200, 1, False)
    ends_at = nodes["d1"]["jobs"][0]["ends_at"]
    assert gpus == [[{"job_id": own, "user": "kim", "server": "", "ends_at": ends_at}]] * 4 + [[]] * 4
    assert [gpu["holders"][0]["server"] for gpu in nodes["g1"]["gpus"] if gpu["holders"]].count("lab") == 2
    assert (nodes["c2"]["use"], nodes["c2"]["reason"]) == ("out", "fan <b>broken</b>")
    waiting = [(job["job_id"], job["gpus"], job["server"]) for job in document["partitions"][0]["queue"]]
    assert waiting == [(in_line, ["gpu:k80:4"], None)]
    assert_accessible(page)
    shoot(page, "cluster")
    box = node(page, "d1").locator("details").first
    box.locator("summary").press("Enter")
    expect(box).to_have_attribute("open", "")
    page.keyboard.press("Escape")
    expect(box).not_to_have_attribute("open", "")
    expect(box.locator("summary")).to_be_focused()

    dark = open_page(dark=True)
    sign_in(dark, hub, "admin")
    dark.goto(hub.url + MAP)
    assert_accessible(dark)
    phone = open_page(phone=True)
    sign_in(phone, hub, "admin")
    phone.goto(hub.url + MAP)
    assert_accessible(phone)
    assert small_targets(phone, "#gpuspawner-cluster") == []


@pytest.mark.nightly
@pytest.mark.usefixtures("busy")
def test_health_shows_what_servers_report_and_which_nodes_differ(
    hub: HubProcess, page: Page, open_page: OpenPage
) -> None:
    """The nodes of two servers that run, and three more of which reports were kept before; without a script, too."""
    keep_reports(hub)
    sign_in(page, hub, "admin")
    nodes: dict[str, Any] = {}
    for _ in range(60):
        status, document = api(page, f"{hub.url}/hub/api/gpuspawner/fleet")
        nodes = {entry["node"]: entry for entry in document["nodes"]}
        if {"d1", "g1"} <= nodes.keys():
            break
        page.wait_for_timeout(1000)
    assert (status, document["version"], document["slurm_asked"]) == (200, 1, True)
    assert min(nodes[name]["grants"]["grants"] for name in ("d1", "g1")) > 0
    assert [difference["kind"] for difference in nodes["d4"]["differences"]] == ["links", "pcie-width"]

    page.goto(hub.url + MAP)
    first = page.locator(".gpuspawner-health > li").first
    expect(first).to_contain_text("0000:86:00.0: PCIe lanes 8; 3 siblings have 16.")
    expect(first).to_contain_text("4 of 12 with a slower ring than was free")
    assert_accessible(page)
    shoot(page, "health")
    for window in (open_page(dark=True), phone := open_page(phone=True)):
        sign_in(window, hub, "admin")
        window.goto(hub.url + MAP)
        assert_accessible(window)
    assert small_targets(phone, "#gpuspawner-health") == []
    bare = open_page(javascript=False)
    sign_in(bare, hub, "admin")
    bare.goto(hub.url + MAP)
    expect(bare.locator(".gpuspawner-health > li").first).to_contain_text("PCIe lanes 8")


def _same(grant: Grant, _: object) -> Grant:
    return grant


def keep_reports(hub: HubProcess) -> None:
    """Reports of three more nodes like d1, as if servers had run there: one has lost NVLinks and PCIe lanes."""
    machine = load(str(MACHINES / "dgx1.json"))
    wide = [replace(gpu, pcie_width=16) for gpu in machine.gpus]
    narrow = [replace(gpu, pcie_width=8) if gpu.pci == "0000:86:00.0" else gpu for gpu in wide]
    down = {peer for peer in range(8) if machine.links[2][peer].startswith("NV")}
    links = [
        ["SYS" if 2 in (a, b) and {a, b} - {2} <= down and a != b else machine.link(a, b) for b in range(8)]
        for a in range(8)
    ]
    ill = replace(machine, gpus=tuple(narrow), links=tuple(map(tuple, links)))
    store = FleetStore(create_engine(f"sqlite:///{hub.folder / 'hub.sqlite'}"))
    now = time.time()
    for name, topology in (
        ("d2", replace(machine, gpus=tuple(wide))),
        ("d3", replace(machine, gpus=tuple(wide))),
        ("d5", replace(machine, gpus=tuple(wide))),
        ("d4", ill),
    ):
        store.add(View(name, now - 7200, topology, 4, "gpu:p100:8(S:0-1)"), lambda _: None)
    for number in range(12):
        poor = number % 3 == 1
        grant = Grant(f"0{number}", "d4", now, 2, aligned=number % 6 > 0, across=poor, loss=65.0 if poor else 0.0)
        store.add(View("d4", now - 7200, ill, 4, "gpu:p100:8(S:0-1)"), partial(_same, grant))


@pytest.mark.nightly
@pytest.mark.usefixtures("busy")
def test_the_map_lists_who_waits_and_stops_a_server_for_those_who_may(
    hub: HubProcess, other_job: Callable[..., str], open_page: OpenPage
) -> None:
    """Without a script: a job in line with what it asks for; Log and Stop of a server; Stop asks first."""
    job = other_job("-p", "gpu", "--gres=gpu:k80:4", "-c", "4", "--mem=1G")
    page = open_page(javascript=False)
    reason = "All matching resources are in use."  # which Slurm knows when it has looked at the job
    open_map(page, hub, f"job {job}", "kim's server lab", "Waiting", reason)
    line = page.locator(".gpuspawner-queue li", has_text=f"job {job} of ")
    expect(line).to_contain_text("4 \N{MULTIPLICATION SIGN} K80, 12 GB, 4 CPUs, 1 GiB, 30 min")
    expect(line).to_contain_text(re.compile(r"for \d+ .*, since \d\d:\d\d"))
    expect(line).to_contain_text(reason)

    lab = node(page, "g1").locator("details:has(> .own)").first
    lab.locator("summary").click()
    lab.get_by_role("link", name="Log").click()
    expect(page.get_by_role("heading", name=re.compile(r"^Log: .+ \(server lab\)$"))).to_be_visible()
    page.go_back()
    lab.locator("summary").click()
    lab.get_by_role("button", name="Stop kim's server lab").click()
    page.wait_for_url(f"**{MAP}")
    for _ in range(600):
        if hub.server("kim", "lab") is None:
            break
        page.wait_for_timeout(100)
    assert hub.server("kim", "lab") is None
    assert hub.server("kim") is not None

    operator = open_page()
    sign_in(operator, hub, "olive")
    operator.goto(hub.url + MAP)
    ours = node(operator, "d1").locator("details:has(> .own)")
    ours.locator("summary").click()
    expect(ours.get_by_role("link", name="Log")).to_be_visible()
    assert operator.locator("#gpuspawner-map button").count() == 0


@pytest.mark.nightly
def test_the_map_is_filtered(hub: HubProcess, busy: str, page: Page) -> None:
    """By text, partition and state, while typing; the result is announced and in the address."""
    open_map(page, hub, f"job {job_of(hub, 'kim', 'lab')}", "drained")
    lines = page.locator("#gpuspawner-map li")
    expect(lines).to_have_count(5)

    page.get_by_label("Node, user, job, GPU, reason").fill("kim lab")
    expect(lines).to_have_count(1)
    expect(node(page, "g1")).to_be_visible()
    expect(page.locator("#gpuspawner-found")).to_have_text(re.compile("^1 node; "))
    assert re.search(r"text=kim(\+|%20)lab", page.url)

    page.get_by_label("Node, user, job, GPU, reason").fill("")
    page.get_by_label("State").select_option("out of service")
    expect(lines).to_have_count(1)
    expect(node(page, "c2")).to_be_visible()
    page.get_by_role("link", name="Clear").click()
    expect(lines).to_have_count(5)


@pytest.mark.nightly
def test_partitions_fold_by_keyboard(hub: HubProcess, page: Page) -> None:
    """Each is a summary that can be reached and folded without a mouse."""
    sign_in(page, hub, "admin")
    page.goto(hub.url + MAP)
    first = page.locator("#gpuspawner-map details").first
    page.get_by_role("link", name="Clear").focus()
    page.keyboard.press("Tab")
    expect(first.locator("> summary")).to_be_focused()
    page.keyboard.press("Enter")
    expect(first.locator("li").first).to_be_hidden()
