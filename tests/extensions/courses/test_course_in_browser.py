"""The page of a course, with many participants in every state, and with servers that are started and stopped on it.

The servers of two courses are made up (``course_servers.py``): fifty participants of whom some start, two wait and
three did not start, and two hundred. Those of the third course are real.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, ViewportSize, expect

from jupyterhub_gpuspawner.demo.hub import HubProcess, server_path
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.browser.seeing import Strict, axe_faults, shoot, sign_in, width_left_over
from tests.fixtures.browser import PATIENCE, OpenPage
from tests.fixtures.hubs import COMMAND, new_hub

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.browser, pytest.mark.usefixtures("no_job_is_left")]

PROFILES = f"""
- display_name: One K80
  slug: k80
  slurm: {{partition: gpu, gpus: 1, gpu_type: k80, cpus: 2, memory: 1G, time: "2:00:00"}}
  command: {COMMAND}
"""
CONFIG = """
import sys
sys.path.insert(0, {root!r})
from tests.extensions.courses import course_servers
course_servers.install({servers!r})
c.GPUProfilesSpawner.courses_dir = {courses!r}
c.GPUCourses.every = 0.1
"""
COURSE = """
name: {name}
instructors: {instructors}
roster: {roster}
profile: {profile}
zone: {zone}
sessions:
  - {{date: {today}, from: "0:00", to: "23:59"}}
"""
COURSES = {
    "deep-learning": ("Deep learning", "train[001-050]"),
    "failing": ("Failing", "[dora]"),
    "large": ("Parallel programming", "student[001-200]"),
    "small": ("First steps", "[ada, ben, cleo]"),
}
INSTRUCTORS = {"large": "[grace, linus]"}
FIFTY = [*["running"] * 31, *["starting"] * 4, *["waiting"] * 2, *["failed"] * 3]
PAGES = "/hub/gpuspawner/course"
BROKEN = """
- display_name: Broken
  slug: broken
  slurm: {partition: batch, cpus: 1, memory: 100M, time: "0:10:00"}
  command: [bash, -c, "echo no such module; exit 3"]
"""
NARROW: ViewportSize = {"width": 390, "height": 844}
WIDE: ViewportSize = {"width": 1920, "height": 1080}
DESK: ViewportSize = {"width": 1366, "height": 640}
"""The window of a browser on a screen of 1366 x 768."""
TOTALS = ["50 people", "3 need help", "31 running", "4 starting", "2 in line", "10 without a server"]


def states(folder: Path, **changed: str) -> None:
    """Set what the made-up servers do."""
    fifty = {f"train{number:03d}": state for number, state in enumerate(FIFTY, start=1)}
    large = {f"student{number:03d}": "running" for number in range(1, 191)}
    temporary = folder / "servers.new"
    temporary.write_text(json.dumps({**fifty, **large, **changed}))
    temporary.rename(folder / "servers.json")


@pytest.fixture(scope="module")
def hub(slurm_cluster: PrivateSlurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """A hub with three courses, which grace teaches."""
    folder = tmp_path_factory.mktemp("courses")
    now = datetime.now(timezone.utc)
    where = {"today": now.date(), "zone": f"Etc/GMT{now.hour - 12:+d}"}  # where it is about noon
    for slug, (name, roster) in COURSES.items():
        (folder / f"{slug}.yaml").write_text(
            COURSE.format(
                name=name,
                instructors=INSTRUCTORS.get(slug, "grace"),
                roster=roster,
                profile="broken" if slug == "failing" else "k80",
                **where,
            )
        )
    states(folder)
    root = str(Path(__file__).parents[2])
    lines = CONFIG.format(root=root, servers=str(folder / "servers.json"), courses=str(folder))
    with ExitStack() as stack:
        hub = new_hub(slurm_cluster, tmp_path_factory.mktemp("course") / "hub", lines=lines, profiles=PROFILES + BROKEN)
        stack.callback(hub.stop)
        hub.start(timeout=300)  # it adds two hundred and fifty users
        yield hub


@pytest.fixture
def change(hub: HubProcess) -> Iterator[Callable[..., None]]:
    """``change(train001="failed")``: what a made-up server does from now on, until the test ends."""
    match = re.search(r"install\('(.*)/servers.json'\)", hub.config.read_text())
    assert match is not None
    folder = Path(match[1])
    yield lambda **changed: states(folder, **changed)
    states(folder)


def enter(page: Page, hub: HubProcess, slug: str = "deep-learning", *, name: str = "grace") -> None:
    """Sign in as an instructor and open the page of a course, which the hub may still have to read."""
    sign_in(page, hub, name)
    for _ in range(120):
        answer = page.goto(f"{hub.url}{PAGES}/{slug}")
        if answer is not None and answer.status == 200:
            return
        page.wait_for_timeout(500)
    raise AssertionError(f"{name} does not teach {slug}")


def tiles(page: Page) -> Locator:
    """All tiles."""
    return page.locator("#gpuspawner-tiles > li")


def tile(page: Page, user: str) -> Locator:
    """The tile of a participant."""
    return page.locator(f'#gpuspawner-tiles > li[data-user="{user}"]')


def causes(page: Page) -> Locator:
    """What is the matter with those who need help."""
    return page.locator(".gpuspawner-causes > li")


def totals(page: Page) -> Locator:
    """The counts."""
    return page.locator("#gpuspawner-totals label")


def places(page: Page) -> dict[str, list[float]]:
    """Where the seat of each participant is: x, y, width and height in CSS pixels."""
    found: dict[str, list[float]] = page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll("#gpuspawner-tiles > li")].map((seat) => {
          const { x, y, width, height } = seat.getBoundingClientRect();
          return [seat.dataset.user, [x, y, width, height]];
        }))"""
    )
    return found


def box(page: Page, user: str) -> Locator:
    """The box that selects a participant."""
    return tile(page, user).get_by_role("checkbox")


def test_the_pages_of_courses_need_nothing_that_a_strict_policy_forbids(
    hub: HubProcess, page: Page, change: Callable[..., None]
) -> None:
    """Also where a tile changes, and where a log is opened; and the list of courses."""
    strict = Strict(page)
    enter(page, hub)
    page.locator("details").evaluate_all("all => all.forEach((each) => (each.open = true))")
    change(train002="ended")
    expect(page.locator("#gpuspawner-news")).to_have_text("train002: ended")
    box(page, "train002").check()
    expect(page.locator("#gpuspawner-selected")).to_have_text("1 selected")
    page.goto(f"{hub.url}{PAGES}")
    expect(page.locator("h1")).to_be_visible()

    assert strict.faults == []


def test_an_instructor_sees_the_room_and_it_changes_without_a_reload(
    hub: HubProcess, page: Page, change: Callable[..., None]
) -> None:
    """Counts, who needs help and why; what is selected and opened stays when others change, and no seat moves."""
    enter(page, hub)
    expect(totals(page)).to_have_text(TOTALS)
    expect(page.locator("#gpuspawner-seats")).to_have_text(re.compile(r"^By estimate there is (no )?room for "))
    expect(page.get_by_label("Link for participants")).to_have_value(re.compile(r"/hub/spawn\?opt-profile="))
    assert [tiles(page).nth(n).get_attribute("data-user") for n in (0, 37, 49)] == ["train001", "train038", "train050"]
    expect(causes(page)).to_have_count(1)
    expect(causes(page)).to_contain_text("train038, train039, train040")
    causes(page).get_by_text("Log of train038").click()
    expect(causes(page)).to_contain_text("The following module(s) are unknown")
    expect(tile(page, "train001")).to_contain_text(re.compile(r" left.*g1, GPU 0", re.DOTALL))
    expect(tile(page, "train036")).to_contain_text("All matching GPUs are in use.")
    expect(tile(page, "train036")).to_contain_text("expected start: within")
    shoot(page, "course")

    expect(page.locator(".gs-act")).to_be_hidden()
    page.locator("#gpuspawner-show-help").check()
    box(page, "train002").check()
    box(page, "train003").check()
    before = places(page)
    change(train002="ended", train039="running")
    expect(page.locator("#gpuspawner-news")).to_have_text("train002: ended")
    expect(causes(page)).to_have_count(2)
    expect(causes(page).first).to_contain_text("train038, train040")
    expect(causes(page).first).to_contain_text("The following module(s) are unknown")
    expect(page.locator("#gpuspawner-show-help")).to_be_checked()
    expect(page.locator("#gpuspawner-selected")).to_have_text("2 selected")
    expect(box(page, "train002")).to_be_checked()
    expect(box(page, "train003")).to_be_focused()
    page.get_by_role("button", name="Select these").click()
    expect(page.locator("#gpuspawner-selected")).to_have_text("3 selected")
    expect(box(page, "train003")).not_to_be_checked()
    causes(page).first.get_by_role("button", name="Select").click()
    expect(page.locator("#gpuspawner-selected")).to_have_text("2 selected")
    assert places(page) == before


def test_the_map_is_walked_with_the_keyboard(hub: HubProcess, page: Page) -> None:
    """One stop of the Tab key; arrows move, Space selects, and the bar comes next. Escape closes a menu."""
    page.set_viewport_size(DESK)
    enter(page, hub)
    page.locator("summary", has_text="Everybody").press("Enter")
    expect(page.get_by_role("button", name="Message to all")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Message to all")).to_be_hidden()
    expect(page.locator("summary", has_text="Everybody")).to_be_focused()

    expect(page.locator("#gpuspawner-tiles input:not([tabindex='-1'])")).to_have_count(1)
    box(page, "train001").focus()
    walk = ["ArrowRight", "Space", "ArrowDown", "ArrowLeft", "Space", "End", "ArrowDown", "Home", "ArrowLeft"]
    focused = []
    for key in walk:
        page.keyboard.press(key)
        focused.append(page.evaluate("document.activeElement.value").removesuffix("/"))
    assert focused == [
        *("train002", "train002", "train009", "train008", "train008"),
        *("train050", "train050", "train001", "train001"),
    ]
    expect(page.locator("#gpuspawner-selected")).to_have_text("2 selected")
    page.keyboard.press("Tab")
    expect(page.locator("button[name=selected][value=start]")).to_be_focused()
    page.get_by_role("button", name="Select none").press("Enter")
    expect(page.locator(".gs-act")).to_be_hidden()


@pytest.mark.parametrize(
    "dark", [pytest.param(False, id="light"), pytest.param(True, id="dark", marks=pytest.mark.nightly)]
)
def test_axe_finds_nothing_serious(hub: HubProcess, open_page: OpenPage, dark: bool) -> None:
    """On the page, on the list and on the question; nothing is wider than a phone, and all fifty are seen at once."""
    page = open_page(dark=dark)
    enter(page, hub)
    expect(page.locator("main :is([style], style)")).to_have_count(0)  # a site's policy may forbid them
    faults = axe_faults(page)
    box(page, "train001").check()
    page.locator("button[name=selected][value=stop]").click()
    expect(page.get_by_role("heading", name="Stop the server of train001?")).to_be_visible()
    faults += axe_faults(page)
    page.goto(f"{hub.url}/hub/gpuspawner/courses")
    faults += axe_faults(page)
    page.goto(f"{hub.url}{PAGES}/deep-learning")
    excess, in_view, people_first = {}, {}, {}
    for name, size in (("phone", NARROW), ("desk", DESK), ("projector", WIDE)):
        page.set_viewport_size(size)
        excess[name] = width_left_over(page)
        in_view[name] = max(y + height for _, y, _, height in places(page).values()) <= size["height"]
        help_list = page.locator("#gpuspawner-help").bounding_box()
        people_first[name] = help_list is not None and help_list["y"] > places(page)["train001"][1]

    assert faults == []
    assert excess == {"phone": 0, "desk": 0, "projector": 0}
    assert in_view == {"phone": False, "desk": True, "projector": True}
    assert people_first == {"phone": True, "desk": False, "projector": False}


@pytest.mark.nightly
def test_a_finger_hits_every_target(hub: HubProcess, open_page: OpenPage) -> None:
    """Buttons, folds and the labels of boxes."""
    phone = open_page(phone=True)
    enter(phone, hub)
    small = []
    for target in phone.locator(".gs-page :is(.btn, label:has([type=checkbox]), summary):visible").all()[:40]:
        bounds = target.bounding_box()
        if bounds is not None and min(bounds["height"], bounds["width"]) < 44:
            small.append((target.inner_text(), bounds))
    assert small == []


@pytest.mark.nightly
def test_without_javascript_everything_can_be_done(hub: HubProcess, open_page: OpenPage) -> None:
    """The same tiles; a message to a selection, with its question; the time left."""
    plain = open_page(javascript=False)
    enter(plain, hub)
    expect(tiles(plain)).to_have_count(50)
    expect(tile(plain, "train001")).to_contain_text(re.compile(r"[0-9]+ (h|min).* left"))
    expect(plain.get_by_role("button", name="Copy link")).to_be_hidden()
    expect(plain.locator("[data-select]:visible")).to_have_count(0)
    causes(plain).get_by_role("button", name="Message").click()
    expect(plain.get_by_role("heading", name="Send a message to 3 people")).to_be_visible()
    plain.go_back()
    box(plain, "train001").check()
    box(plain, "train050").check()
    plain.locator("button[name=selected][value=message]").click()
    expect(plain.get_by_role("heading", name="Send a message to 2 people")).to_be_visible()
    plain.locator("#gpuspawner-text").fill("Break until 10:30 <b>")
    plain.get_by_role("button", name="Send to 2 people").click()
    expect(plain).to_have_url(f"{hub.url}{PAGES}/deep-learning")
    expect(plain.locator(".gpuspawner-recent li").first).to_contain_text("grace sent a message to 2 people.")


@pytest.mark.nightly
def test_somebody_who_asks_in_the_room_is_added_at_once(hub: HubProcess, page: Page, open_page: OpenPage) -> None:
    """The link names the user, and shows the course once they are added; a refusal says why."""
    late = open_page()
    sign_in(late, hub, "latecomer")
    link = f"{hub.url}/hub/spawn?opt-profile=course-deep-learning"
    late.goto(link)
    refusal = "You are not on the list of this course; your user name is latecomer. Tell grace, who can add you."
    expect(late.get_by_role("alert")).to_contain_text(refusal)

    enter(page, hub)
    menu = page.locator("summary", has_text="Link and people")
    menu.click()
    page.get_by_label("Add a person").fill("admin")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("alert")).to_have_text(
        "admin is an administrator of the hub; administrators are not on courses."
    )
    page.get_by_label("Add a person").fill("latecomer")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(tile(page, "latecomer")).to_contain_text("no server")
    expect(page.locator(".gpuspawner-recent li").first).to_contain_text("grace added latecomer.")
    late.goto(link)
    expect(late.get_by_role("radio", name="Deep learning")).to_be_checked()

    page.get_by_role("button", name="Remove latecomer").click()
    expect(tile(page, "latecomer")).to_have_count(0)


@pytest.mark.nightly
def test_two_hundred_participants(hub: HubProcess, page: Page, change: Callable[..., None]) -> None:
    """All have a tile; when one changes, the others are not touched."""
    enter(page, hub, "large")
    expect(tiles(page)).to_have_count(200)
    page.evaluate("() => document.querySelectorAll('#gpuspawner-tiles > li').forEach((tile) => (tile.old = true))")
    change(student100="failed")
    expect(causes(page)).to_contain_text("student100")
    replaced = page.evaluate(
        "() => [...document.querySelectorAll('#gpuspawner-tiles > li')].filter((tile) => !tile.old)"
        ".map((tile) => tile.dataset.user)"
    )
    assert replaced == ["student100"]
    expect(totals(page)).to_have_text(["200 people", "1 needs help", "189 running", "10 without a server"])


@pytest.mark.nightly
def test_servers_are_started_for_all_and_stopped_for_some_after_a_question(
    hub: HubProcess, page: Page, open_page: OpenPage
) -> None:
    """A start of the course that failed shows its log, and no other; the question says what is lost."""
    hub.api("POST", server_path("cleo"), {"profile": "broken"})
    enter(page, hub, "failing")
    box(page, "dora").check()
    page.locator("button[name=selected][value=start]").click()
    page.get_by_role("button", name="Start 1 server").click()
    expect(tile(page, "dora")).to_contain_text("did not start", timeout=3 * PATIENCE)
    causes(page).get_by_text("Log").click()
    expect(causes(page)).to_contain_text("no such module")
    page.goto(f"{hub.url}{PAGES}/small")
    expect(totals(page)).to_have_text(["3 people", "3 without a server"], timeout=3 * PATIENCE)
    page.locator("summary", has_text="Everybody").click()
    page.locator("button[name=everybody][value=start]").click()
    expect(page.get_by_role("heading", name="Start servers for all 3 people?")).to_be_visible()
    page.get_by_role("button", name="Start 3 servers").click()
    expect(totals(page)).to_have_text(["3 people", "3 running"], timeout=3 * PATIENCE)
    expect(page.locator(".gpuspawner-recent li").first).to_contain_text("grace is starting 3 servers.")
    expect(page.locator("#gpuspawner-seats")).to_have_text("Everybody has a server.")

    for user in ("ada", "ben"):
        box(page, user).check()
    page.locator("button[name=selected][value=stop]").click()
    expect(page.get_by_role("heading", name="Stop the servers of 2 people?")).to_be_visible()
    expect(page.locator("main")).to_contain_text(
        "2 servers are running: their unsaved work and running kernels are lost"
    )
    shoot(page, "course-stop")
    page.get_by_role("button", name="Stop 2 servers").click()
    expect(totals(page)).to_have_text(["3 people", "1 running", "2 without a server"], timeout=3 * PATIENCE)
    expect(tile(page, "ada")).to_contain_text(re.compile("was stopped at .* by grace"))

    participant, colleague = open_page(), open_page()
    sign_in(participant, hub, "ada")
    sign_in(colleague, hub, "linus")
    paths = (f"{PAGES}/small", f"{PAGES}/small/events", f"{PAGES}/large")
    statuses = {
        name: [
            other.request.get(f"{hub.url}{path}", timeout=PATIENCE).status for path in paths[: 2 + (name == "linus")]
        ]
        for name, other in (("ada", participant), ("linus", colleague))
    }
    assert statuses == {"ada": [404, 404], "linus": [404, 404, 200]}
    colleague.goto(f"{hub.url}/hub/gpuspawner/courses")
    expect(colleague.locator(".gpuspawner-list a")).to_have_text(["Parallel programming"])
    forged = page.request.post(f"{hub.url}{PAGES}/small", form={"everybody": "stop", "confirmed": "yes"})
    assert forged.status == 403
    participant.goto(f"{hub.url}/hub/home")
    expect(participant.get_by_role("link", name="Courses")).to_have_count(0)
    page.get_by_role("link", name="Courses").click()
    expect(page.locator(".gpuspawner-list a")).to_have_text([name for name, _ in COURSES.values()])
