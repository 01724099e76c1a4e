"""The pages of a server that waits, did not start, or has ended; every state is reached on a real Slurm."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, ViewportSize, expect

from jupyterhub_gpuspawner.demo.hub import HubProcess, server_path
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from jupyterhub_gpuspawner.hub.words import WAITING_FOR_SLURM
from tests.browser.seeing import assert_accessible, return_until, shoot, sign_in
from tests.fixtures.browser import OpenPage
from tests.fixtures.hubs import ASKS_OFTEN, COMMAND, LIGHT, NO_SPAWN_WAIT, StartHub
from tests.fixtures.slurm import hanging
from tests.hub.servers import start

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.browser, pytest.mark.usefixtures("no_job_is_left")]

CONFIG = """
import os
from pathlib import Path

folder = Path(os.environ["GPUSPAWNER_DEMO_FOLDER"])
c.GPUSlurmSpawner.slurm_timeout = 4.0


async def while_held(spawner):
    import asyncio

    while (folder / "hold").exists():
        await asyncio.sleep(0.1)


c.Spawner.post_stop_hook = while_held
"""
PROFILES = f"""{LIGHT}
- display_name: One minute
  slug: minute
  slurm: {{partition: batch, cpus: 1, memory: 100M, time: 0:01:00}}
  command: {COMMAND}
- display_name: Broken set-up
  slug: broken
  slurm: {{partition: batch, cpus: 1, memory: 100M, time: 0:10:00}}
  profile_options:
    cpus: {{display_name: Cores, range: {{min: 1, max: 4, default: 1, sets: slurm.cpus}}}}
  command: [bash, -c, "for n in $(seq 40); do echo line $n; done; echo 'no <b>module</b> jupyterhub' >&2; exit 3"]
"""
NOT_RUNNING = "#gpuspawner-not-running"
NARROW: ViewportSize = {"width": 390, "height": 844}
LONG = 120_000
"""Milliseconds for changes of state in Slurm."""
WAITS = "Waiting in line"
"""The headline of a job in the queue."""


@pytest.fixture(scope="module")
def hub(start_light_hub: StartHub) -> HubProcess:
    """A hub with a profile for each way in which a server can fail."""
    return start_light_hub(lines=f"{NO_SPAWN_WAIT}\n{ASKS_OFTEN}\n{CONFIG}", profiles=PROFILES)


@pytest.fixture
def fill(slurm_cluster: PrivateSlurm) -> Callable[[], str]:
    """Submit a job that takes the whole K80 node; return its id."""
    while slurm_cluster.run("squeue", "-h"):
        pass  # jobs of earlier tests may still be ending

    def submit() -> str:
        line = "--parsable -p gpu --gres=gpu:k80:4 --exclusive -t 10 -o /dev/null"
        return slurm_cluster.run("sbatch", *line.split(), "--wrap=sleep 600")

    return submit


def look(page: Page, hub: HubProcess, user: str, server: str = "") -> None:
    """Open the page of a start."""
    page.goto(f"{hub.url}/hub/spawn-pending/{user}/{server}".rstrip("/"))


def wait_in_line(page: Page, hub: HubProcess, user: str) -> None:
    """Start a server on the K80 node, which is taken, and open its page."""
    start(hub, user, "k80-node")
    sign_in(page, hub, user)
    look(page, hub, user)
    expect(page.locator("h1")).to_contain_text(WAITS)


def fact(page: Page, name: str) -> Locator:
    """A line of the waiting page."""
    return page.locator(f'[data-fact="{name}"]')


def stages(page: Page) -> list[tuple[str, str]]:
    """Name and state of each stage on the page."""
    items: list[list[str]] = page.evaluate(
        """() => [...document.querySelectorAll("li[data-stage]")].map((item) =>
            [item.dataset.stage, item.className])"""
    )
    return [(name, state) for name, state in items]


def largest(page: Page) -> list[str]:
    """The facts in the largest letters of the page."""
    facts: list[str] = page.evaluate(
        """() => {
            const size = (each) => parseFloat(getComputedStyle(each).fontSize);
            const shown = [...document.querySelectorAll("#gpuspawner-pending *")]
                .filter((each) => each.checkVisibility() && each.textContent.trim());
            const most = Math.max(...shown.map(size));
            return shown.filter((each) => size(each) === most).map((each) => each.dataset.fact ?? each.tagName);
        }"""
    )
    return facts


def axis(page: Page) -> dict[str, float]:
    """Where each part of the wait's axis ends, and where its two texts begin, in percent of its width."""
    ends: dict[str, float] = page.evaluate(
        """() => {
            const axis = document.querySelector(".gs-axis");
            const whole = axis.getBoundingClientRect();
            const at = (part, edge) => (axis.querySelector(part).getBoundingClientRect()[edge] - whole.left)
                * 100 / whole.width;
            return {past: at(".past > svg", "right"), start: at(".range > svg", "right"),
                end: at(".range > :last-child", "right"), now: at(":scope > span > span", "left"),
                by: at(":scope > span:last-child > span", "left")};
        }"""
    )
    return ends


def lasts(page: Page) -> Locator:
    """How long the current stage has lasted."""
    return page.locator('[aria-current="step"] [data-part="lasts"]')


def shows_its_end(box: Locator) -> bool:
    """Whether the last line of a log is inside its box, and the box is scrolled."""
    visible: bool = box.evaluate(
        """(box) => {
            const [frame, text] = [box, box.firstElementChild].map((each) => each.getBoundingClientRect());
            return text.bottom <= frame.bottom && text.top < frame.top;
        }"""
    )
    return visible


# --- waiting ---------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_a_waiting_named_server_says_why_and_its_stop_button_stops_it_alone(
    hub: HubProcess, slurm_cluster: PrivateSlurm, fill: Callable[[], str], page: Page
) -> None:
    """On a full node the page names job and reason; *Stop* cancels that job and leaves the default server alone."""
    fill()
    sign_in(page, hub, "rosa")
    hub.spawn("rosa", {"profile": "light"})
    start(hub, "rosa", "k80-node", "second")
    look(page, hub, "rosa", "second")
    expect(page.locator("h1")).to_contain_text(WAITS)
    expect(page.locator("h1")).to_have_text("Waiting in line: second")
    expect(page).to_have_title("Waiting in line: second - JupyterHub")
    expect(page.locator(".gs-choice")).to_have_text("The K80 node")
    waiting = slurm_cluster.run("squeue", "-h", "-t", "PD", "-o", "%i")

    page.click("#gpuspawner-stop")
    expect(page.locator("h1")).to_have_text("Server second has left the line")

    assert waiting.isdigit()
    assert slurm_cluster.run("squeue", "-h", "-t", "PD", "-o", "%i") == ""
    assert hub.server("rosa", "second") is None
    default = hub.server("rosa")
    assert default is not None
    assert default["ready"]


def test_a_full_cluster_is_told_with_place_and_expected_start(
    hub: HubProcess, fill: Callable[[], str], open_page: OpenPage
) -> None:
    """Reason, advice, position and estimate; the stages with their times; wide and on a phone, light and dark."""
    for _ in range(3):
        fill()
    page = open_page()
    wait_in_line(page, hub, "ada")
    expect(fact(page, "place")).to_have_text("1 person ahead of you", timeout=LONG)
    expect(fact(page, "when")).to_have_text(re.compile(r"^Expected start: within .+ min$"), timeout=LONG)
    expect(page.locator("#gpuspawner-notes")).to_have_text(
        "That holds if nobody with a higher priority comes. We keep your place in line until you stop this server."
    )
    assert page.locator("#gpuspawner-pending").inner_text().count("keep your place") == 1
    assert largest(page) == ["when"]
    assert axis(page) == pytest.approx({"past": 0, "start": 0, "end": 77, "now": 0, "by": 77}, abs=25)
    expect(fact(page, "why")).to_have_text("Jobs with a higher priority start first.")
    expect(fact(page, "job")).to_contain_text("partition gpu")
    expect(page.locator('[aria-current="step"]')).to_contain_text("In line")
    states = stages(page)
    assert_accessible(page)
    shoot(page, "wait-in-line")

    assert states == [
        ("submitted", "done"),
        ("queued", "current"),
        ("allocated", "coming"),
        ("starting", "coming"),
        ("ready", "coming"),
    ]

    for appearance in ({"dark": True}, {"phone": True}, {"dark": True, "phone": True}):
        other = open_page(**appearance)
        sign_in(other, hub, "ada")
        look(other, hub, "ada")
        expect(fact(other, "place")).to_have_text("1 person ahead of you")
        assert_accessible(other)
        assert stages(other) == states
        assert with_title(other, WAITING_FOR_SLURM) == with_title(other, "Sent")


def with_title(page: Page, title: str) -> int:
    """Where the line of stages ends if the first one has this title, in pixels."""
    bottom: int = page.evaluate(
        """(title) => {
            const line = document.querySelector(".gs-stages");
            line.querySelector('[data-part="title"]').textContent = title;
            return line.getBoundingClientRect().bottom;
        }""",
        title,
    )
    return bottom


RETURN = "document.dispatchEvent(new Event('visibilitychange'))"
"""Somebody returns to the page's tab."""


def test_a_click_on_leave_asks_after_two_minutes_and_a_page_that_is_signed_out_says_so(
    hub: HubProcess, slurm_cluster: PrivateSlurm, fill: Callable[[], str], page: Page
) -> None:
    """Nobody gives up a long wait by a slip; the place is kept through both."""
    blocker = fill()
    wait_in_line(page, hub, "ola")
    expect(page.locator('[aria-current="step"]')).to_contain_text("In line", timeout=LONG)
    with page.expect_response("**/hub/api/user") as signed_in:
        page.evaluate(RETURN)
    assert signed_in.value.status == 200
    page.clock.set_fixed_time(time.time() * 1000 + LONG)
    page.get_by_role("button", name="Leave the line").click()
    expect(page.get_by_role("heading")).to_have_text(re.compile("^Stop .+[?]$"))
    expect(page.locator("#gpuspawner-stop-page")).to_contain_text("You give up your place in line.")
    page.get_by_role("link", name="Keep waiting").click()

    look(page, hub, "ola")
    page.context.clear_cookies()
    page.evaluate(RETURN)
    expect(page.get_by_role("alert")).to_have_text(re.compile("This page is signed out; you keep your place."))
    expect(page.get_by_role("button", name="Leave the line")).to_be_disabled()
    page.get_by_role("link", name="Sign in again").click()
    expect(page).to_have_url(re.compile("/hub/login"))
    model = hub.server("ola")
    assert model is not None
    assert model["pending"] == "spawn"
    hub.end("ola")
    slurm_cluster.run("scancel", blocker)


@pytest.mark.nightly
def test_without_javascript_the_page_tells_the_same_and_finds_the_server(
    hub: HubProcess, slurm_cluster: PrivateSlurm, fill: Callable[[], str], open_page: OpenPage
) -> None:
    """Message, stages and advice are in the HTML; the page refreshes until the server is ready."""
    blocker = fill()
    page = open_page(javascript=False)
    wait_in_line(page, hub, "eva")
    expect(page.locator("#gpuspawner-pending")).to_contain_text("the server starts without you")
    expect(fact(page, "place")).to_have_text("You are next", timeout=LONG)
    expect(page.locator('[aria-current="step"]')).to_contain_text("In line")
    expect(page.locator("h1")).to_have_text("Waiting in line")
    expect(lasts(page)).to_have_text(re.compile(r"^for \d+ (s|min)$"))
    slurm_cluster.run("scancel", blocker)

    page.wait_for_url(re.compile("/user/eva"), timeout=LONG)


@pytest.mark.nightly
def test_what_is_free_now_is_offered_and_one_click_starts_it(
    hub: HubProcess, slurm_cluster: PrivateSlurm, fill: Callable[[], str], open_page: OpenPage, browser: Browser
) -> None:
    """The page says that the place is lost, and takes the offer back when it is no longer free."""
    fill()
    start(hub, "sam", "k80-node")
    page = open_page()
    sign_in(page, hub, "sam")
    look(page, hub, "sam")
    offered = page.locator("#gpuspawner-instead")
    expect(offered.locator("strong")).to_have_text(["Light", "One minute", "Broken set-up"])
    expect(offered).to_contain_text("If you switch, you give up your place in line.")
    assert_accessible(page)
    shoot(page, "wait-free-now")
    with closing(browser.new_context(viewport=NARROW, has_touch=True, is_mobile=True, color_scheme="dark")) as context:
        phone = context.new_page()
        sign_in(phone, hub, "sam")
        look(phone, hub, "sam")
        expect(phone.locator("#gpuspawner-instead strong")).to_have_count(3)
        assert_accessible(phone)
        assert low_targets(phone) == []

    slurm_cluster.run("scontrol", "update", "partitionname=batch", "state=down")
    try:
        return_until(page, offered.is_hidden)
    finally:
        slurm_cluster.run("scontrol", "update", "partitionname=batch", "state=up")
    return_until(page, offered.is_visible)
    page.click("#gpuspawner-instead button >> nth=0")
    page.wait_for_url(re.compile("/user/sam"), timeout=LONG)

    model = hub.server("sam")
    assert model is not None
    assert model["user_options"] == {"profile": "light"}


def low_targets(page: Page) -> list[str]:
    """Buttons and links of our page that are lower than 44 CSS pixels; links in sentences are not counted."""
    labels: list[str] = page.evaluate(
        """() => [...document.querySelectorAll(".gs-page :is(.btn, summary)")]
            .filter((each) => each.checkVisibility() && each.getBoundingClientRect().height < 44)
            .map((each) => each.textContent)"""
    )
    return labels


@pytest.mark.nightly
def test_after_stop_the_page_says_only_that_it_is_stopped(
    hub: HubProcess, fill: Callable[[], str], open_page: OpenPage
) -> None:
    """Neither the stages nor the reason, and a link to start again; it never ran. Also without JavaScript."""
    fill()
    for user, javascript in (("stu", True), ("sue", False)):
        start(hub, user, "k80-node")
        page = open_page(javascript=javascript)
        sign_in(page, hub, user)
        look(page, hub, user)
        expect(page.locator("h1")).to_have_text("Waiting in line")
        page.click("#gpuspawner-stop")
        expect(page.locator(NOT_RUNNING)).to_have_text(re.compile(r"^\s*You have left the line\s+Start a server\s*$"))
        expect(page.locator("#start")).to_have_attribute("href", f"/hub/spawn/{user}")
        assert hub.server(user) is None
    assert_accessible(open_of(open_page, hub, "stu"))


def open_of(open_page: OpenPage, hub: HubProcess, user: str) -> Page:
    """The page of a server that is not running, on a phone in the dark."""
    page = open_page(dark=True, phone=True)
    sign_in(page, hub, user)
    look(page, hub, user)
    expect(page.locator("h1")).to_have_text("You have no running server")
    return page


NOTICED = 10_000
"""Milliseconds without an event after which the page says so."""


@pytest.mark.nightly
def test_a_hub_that_hangs_or_is_restarted_tells_the_same_stages(
    hub: HubProcess, slurm_cluster: PrivateSlurm, fill: Callable[[], str], page: Page
) -> None:
    """The page says that the hub hangs or is away and reconnects with the correct times; the server becomes ready."""
    blocker = fill()
    start(hub, "ivy", "k80-node")
    sign_in(page, hub, "ivy")
    page.clock.install()
    page.route("**/server/progress*", lambda _: None)  # the hub hangs before its first event
    look(page, hub, "ivy")
    page.clock.fast_forward(NOTICED)
    expect(page.locator("#progress-message")).to_contain_text("The hub is not responding at the moment")
    page.unroute("**/server/progress*")
    look(page, hub, "ivy")
    expect(page.locator("h1")).to_contain_text(WAITS)
    states = stages(page)
    assert hub.process is not None
    hub.process.send_signal(signal.SIGSTOP)
    try:
        page.clock.fast_forward(NOTICED)
        expect(page.locator("#progress-message")).to_contain_text("The hub is not responding at the moment")
    finally:
        hub.process.send_signal(signal.SIGCONT)
    expect(page.locator("#progress-message")).to_be_empty()
    hub.kill()
    page.clock.fast_forward(NOTICED)  # without an event, since the proxy holds the connection open
    expect(page.locator("#progress-message")).to_contain_text("The hub is not responding at the moment")
    page.clock.fast_forward(20_000)
    hub.start()
    expect(page.locator("h1")).to_contain_text(WAITS)

    assert stages(page) == states

    slurm_cluster.run("scancel", blocker)
    page.wait_for_url(re.compile("/user/ivy"), timeout=LONG)


@pytest.mark.nightly
def test_a_silent_slurm_is_told_with_the_age_of_what_is_known(
    hub: HubProcess, slurm_cluster: PrivateSlurm, fill: Callable[[], str], page: Page
) -> None:
    """The last known state stays on the page until Slurm responds again."""
    fill()
    wait_in_line(page, hub, "sil")
    with hanging(slurm_cluster):
        sentence = re.compile(
            r"Slurm is not responding at the moment\. This is as of .*\d\d.*\. Your server is not affected\."
        )
        expect(fact(page, "answered")).to_contain_text(sentence)
        expect(page.locator("h1")).to_contain_text(WAITS)
        page.reload()  # in the HTML that the hub sends
        expect(fact(page, "answered")).to_contain_text(sentence)
        assert_accessible(page)
    expect(page.locator("h1")).to_contain_text(WAITS, timeout=LONG)
    expect(fact(page, "answered")).to_be_hidden()


NOTICES = """window.Notification = class { static permission = "default";
    static async requestPermission() {
        Notification.permission = "granted"; localStorage.setItem("asked", "yes"); return "granted"; }
    constructor(text) { localStorage.setItem("noticed", text); } };
if (localStorage.getItem("asked")) window.Notification.permission = "granted";"""
"""A stand-in for browser notifications, which the test allows and reads."""


@pytest.mark.nightly
def test_a_notice_when_it_is_ready_is_shown_to_who_asked_for_it(
    hub: HubProcess, slurm_cluster: PrivateSlurm, fill: Callable[[], str], page: Page
) -> None:
    """Permission is requested only on a click; the choice survives a reload."""
    page.add_init_script(NOTICES)
    blocker = fill()
    wait_in_line(page, hub, "nia")
    permission_request = page.evaluate("localStorage.getItem('asked')")
    page.click("#gpuspawner-notify")
    expect(page.locator("#gpuspawner-notify")).to_have_text("You will be notified when it is ready")
    page.reload()
    expect(page.locator("#gpuspawner-notify")).to_have_attribute("aria-pressed", "true")
    slurm_cluster.run("scancel", blocker)
    page.wait_for_url(re.compile("/user/nia"), timeout=LONG)

    assert permission_request is None
    assert page.evaluate("localStorage.getItem('noticed')") == "Your server is ready"


@pytest.mark.nightly
def test_of_a_start_that_is_stopped_elsewhere_nobody_is_told_that_it_is_ready(
    hub: HubProcess, fill: Callable[[], str], page: Page
) -> None:
    """JupyterHub's progress reports it as ready for a second, but no server responds."""
    page.add_init_script(NOTICES)
    fill()
    wait_in_line(page, hub, "noa")
    page.click("#gpuspawner-notify")
    expect(page.locator("#gpuspawner-notify")).to_have_attribute("aria-pressed", "true")
    hub.end("noa")
    expect(page.locator("h1")).to_have_text("You have no running server", timeout=LONG)
    start(hub, "noa", "k80-node")
    look(page, hub, "noa")
    expect(page.locator("h1")).to_contain_text(WAITS)

    assert page.evaluate("localStorage.getItem('noticed')") is None
    assert page.locator("#gpuspawner-notify").get_attribute("aria-pressed") != "true"  # nobody has asked for this one


@pytest.mark.nightly
def test_a_server_that_stops_has_a_page_that_waits_for_its_end(hub: HubProcess, page: Page) -> None:
    """Our page, in the same style; it reloads itself, and then says that the server is not running."""
    sign_in(page, hub, "zoe")
    hub.spawn("zoe", {"profile": "light"})
    (hub.folder / "hold").touch()
    try:
        stopping = threading.Thread(target=hub.api, args=("DELETE", server_path("zoe")))
        stopping.start()
        while (hub.server("zoe") or {}).get("pending") != "stop":
            page.wait_for_timeout(100)
        look(page, hub, "zoe")
        expect(page.locator("h1")).to_have_text("Your server is stopping")
        assert_accessible(page)
    finally:
        (hub.folder / "hold").unlink()
        stopping.join()
    expect(page.locator("h1")).to_have_text("You have no running server")


@pytest.mark.oldest
def test_a_set_up_that_fails_shows_the_end_of_its_log_and_the_way_back_to_the_same_choice(
    hub: HubProcess, open_page: OpenPage
) -> None:
    """What happened, the path of the log and its last lines; *Start again* only fills in the form."""
    page = open_page()
    sign_in(page, hub, "bea")
    start(hub, "bea", "broken", cpus=3)
    look(page, hub, "bea")
    what = page.locator("#gpuspawner-what")
    expect(what).to_have_text('The server ended before it was ready. It wrote: "no <b>module</b> jupyterhub"')
    expect(page.locator(".gs-log")).to_be_visible()  # it says more than that
    shoot(page, "failed")
    lines = page.locator(".gs-log").inner_text().splitlines()
    log = page.locator("#gpuspawner-log .gs-small").inner_text()
    with page.expect_download() as download:
        page.click("#gpuspawner-download")
    whole = Path(download.value.path()).read_text().splitlines()
    assert_accessible(page)
    dark = open_page(dark=True, phone=True)
    sign_in(dark, hub, "bea")
    look(dark, hub, "bea")
    assert_accessible(dark)
    plain = open_page(javascript=False)
    sign_in(plain, hub, "bea")
    plain.goto(f"{hub.url}/hub/gpuspawner/log/bea")
    at_its_end = shows_its_end(plain.locator(".gs-log"))
    page.click("#start")
    page.wait_for_url(re.compile("/hub/spawn/bea"))

    assert at_its_end
    assert lines[-1] == "no <b>module</b> jupyterhub"
    assert len(lines) <= 15
    assert [line for line in whole if line.startswith("line ")] == [f"line {n}" for n in range(1, 41)]
    assert re.fullmatch(r"jupyterhub-\d+\.log", download.value.suggested_filename)
    assert re.search(r"/homes/bea/\.local/share/gpuspawner/logs/jupyterhub-\d+\.log$", log)
    expect(page.locator("#profile-broken")).to_be_checked()
    expect(page.locator('[name="profile-option-broken--cpus"]')).to_have_value("3")
    assert hub.server("bea") is None


# --- a server that ended -----------------------------------------------------------------------------
