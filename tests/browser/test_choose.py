"""Choosing a server, as a participant who knows nothing of Slurm."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, Response, expect

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.browser.seeing import PHONE, axe_faults, shoot, sign_in, width_left_over
from tests.fixtures.browser import PATIENCE, OpenPage
from tests.fixtures.hubs import COMMAND, start_hub

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.browser]

PROFILES = f"""
- display_name: One K80
  slug: k80
  description: Right for the exercises of this week.
  default: true
  slurm: {{partition: gpu, gpus: 1, gpu_type: k80, cpus: 4, memory: 4G, time: "1:00:00"}}
  command: {COMMAND}
  profile_options:
    gpus: {{display_name: GPUs, range: {{min: 1, max: 4, sets: slurm.gpus}}}}
    hours: {{display_name: Hours, range: {{min: 1, max: 48, sets: slurm.time, unit: hours}}}}
    software:
      display_name: Software
      choices:
        torch: {{display_name: PyTorch, default: true}}
        jax: {{display_name: JAX}}
- display_name: The whole DGX-1
  slug: dgx1
  description: Eight linked GPUs, for training on all of them.
  slurm: {{partition: gpu, gpus: 8, gpu_type: p100, cpus: 40, memory: 64G, time: "2:00:00"}}
  command: {COMMAND}
- display_name: A node with Fluent
  slug: licence
  slurm: {{partition: batch, cpus: 12, memory: 32G, time: "8:00:00", extra: [--licenses=fluent]}}
  command: {COMMAND}
- display_name: Today's course
  slug: course
  slurm: {{partition: batch, cpus: 4, memory: 4G, time: "1:00:00", reservation: course}}
  command: {COMMAND}
- display_name: A week on one GPU
  slug: week
  slurm: {{partition: gpu, gpus: 1, gpu_type: a100, time: 7-0}}
  command: {COMMAND}
- display_name: Twelve cores
  slug: cores
  slurm: {{partition: batch, cpus: 12, memory: 8G, time: "8:00:00"}}
  command: {COMMAND}
- display_name: Two cores
  slurm: {{partition: batch, cpus: 2, memory: 2G, time: "8:00:00"}}
  command: {COMMAND}
- display_name: Two K80
  slurm: {{partition: gpu, gpus: 2, gpu_type: k80, cpus: 2, memory: 2G, time: "1:00:00"}}
  command: {COMMAND}
- display_name: Summer school
  slug: summer
  description: Opens in July.
  slurm: {{partition: batch}}
  allow: {{from: 2999-07-01}}
"""


@pytest.fixture(scope="module")
def course(slurm_cluster: PrivateSlurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """A hub with the profiles of a course; its servers start within a second."""
    folder = tmp_path_factory.mktemp("choose")
    (folder / "courses").mkdir()
    (folder / "courses" / "lesson.yaml").write_text(lesson(datetime.now(timezone.utc)))
    with ExitStack() as stack, reserved(slurm_cluster):
        yield start_hub(stack, slurm_cluster, folder, profiles=PROFILES)


def lesson(now: datetime) -> str:
    """A course with a session that is on, and one next week."""
    zone = f"Etc/GMT{now.hour - 12:+d}"  # where it is about noon
    return f"""
name: Deep learning in practice
instructors: rosa
roster: paula
profile: {{slug: k80, cpus: 2}}
zone: {zone}
sessions:
  - {{date: {now:%Y-%m-%d}, from: 9:00, to: 17:00}}
  - {{date: {now + timedelta(days=7):%Y-%m-%d}, from: 9:00, to: 17:00}}
message: Today we train a first network.
"""


@contextmanager
def reserved(slurm: PrivateSlurm) -> Iterator[None]:
    """A reservation that begins tomorrow."""
    begins = ("StartTime=now+1days", "Duration=02:00:00", "Groups=root", "Nodes=c1")
    slurm.run("scontrol", "create", "reservation", "ReservationName=course", *begins)
    try:
        yield
    finally:
        slurm.run("scontrol", "delete", "ReservationName=course")


@contextmanager
def full_dgx1(slurm: PrivateSlurm) -> Iterator[None]:
    """Another user's job has the whole DGX-1, and all else is free."""
    no_job_is_ending(slurm)
    ask = ("--partition=gpu", "--gres=gpu:p100:8", "--time=30", "--output=/dev/null", "--wrap=sleep 600")
    job = slurm.run("sbatch", "--parsable", *ask)
    try:
        while slurm.run("squeue", "-h", "-j", job, "-o", "%T") != "RUNNING":
            pass
        yield
    finally:
        slurm.run("scancel", job)
        while slurm.run("squeue", "-h", "-j", job, "-o", "%T"):
            pass


def no_job_is_ending(slurm: PrivateSlurm) -> None:
    """Jobs of earlier tests may still be ending."""
    while slurm.run("squeue", "-h"):
        pass


def form_of(page: Page, hub: HubProcess, query: str = "") -> None:
    """Open the form."""
    page.goto(f"{hub.url}/hub/spawn{query}")


def availability(page: Page, slug: str) -> str:
    """When a profile would start, as its sheet says once it is chosen; or why it cannot be."""
    box = page.locator(".gs-choice", has=page.locator(f"#profile-{slug}"))
    line = box.locator(".gs-when > .gs-state" if box.locator(".gs-when").count() else ".gs-about > strong")
    return " ".join((line.text_content() or "").split())


def test_each_profile_tells_what_it_brings_and_whether_it_can_be_had(
    course: HubProcess, slurm_cluster: PrivateSlurm, page: Page
) -> None:
    """Free, full, reserved for tomorrow, too long for the partition, not yet: the last two cannot be chosen."""
    sign_in(page, course, "pia")
    with full_dgx1(slurm_cluster):
        expect_fresh(page, course, "full")
        shoot(page, "choose-full")
        availabilities = {slug: availability(page, slug) for slug in ("k80", "dgx1", "course", "week", "summer")}
        expect(page.locator("input[type=radio]:disabled")).to_have_count(2)

    assert availabilities["k80"] == "Starts now, 4 of 4 K80 free."
    assert availabilities["dgx1"] == "Full."
    assert re.fullmatch(r"Not yet: reservation course starts in 2[34] h.*, .*\d:\d\d.*\.", availabilities["course"])
    assert availabilities["week"] == "7 days is more than the limit of 24 h."
    assert availabilities["summer"] == "Not yet: it is available from Jul 1, 2999."
    expect(page.locator("#profile-k80")).to_be_checked()
    expect(page.locator(".gs-got").first).to_have_text(
        re.compile(
            r"\s*".join(map(re.escape, ("1 \N{MULTIPLICATION SIGN} K80, 12 GB", "4 cores", "4 GiB memory", "1 h")))
        )
    )


def test_the_form_is_painted_after_less_than_100_kb_beside_jupyterhubs_own_files(
    course: HubProcess, page: Page
) -> None:
    """The page and its stylesheets, not compressed, in a browser that has none of them; its scripts come after that."""
    sign_in(page, course, "zoe")
    answers = list[Response]()
    page.on("response", lambda answer: answers.append(answer))  # noqa: PLW0108 - a built-in method cannot be wrapped
    page.goto(f"{course.url}/hub/spawn", wait_until="load")
    paths = {urlsplit(answer.url).path: answer for answer in answers if answer.ok}
    own = {path for path in paths if "/gpuspawner/static/" in path and path.endswith(".css")}
    sizes = {Path(path).name: len(paths[path].body()) for path in {"/hub/spawn", *own}}
    scripts = page.locator("script[src*='/gpuspawner/static/']")

    assert {"spawn", "tokens.css", "choose.css"} <= sizes.keys()
    assert scripts.evaluate_all("scripts => scripts.every(script => script.type === 'module')")
    assert sum(sizes.values()) < 100_000, sizes


def test_slurm_is_asked_when_the_chosen_profile_would_start_where_it_is_full(
    course: HubProcess, slurm_cluster: PrivateSlurm, page: Page
) -> None:
    """Nothing has to be changed for that, and it is in the words for all pages."""
    sign_in(page, course, "lea")
    with full_dgx1(slurm_cluster):
        expect_fresh(page, course, "full")
        form_of(page, course, "?opt-profile=dgx1")
        state = page.locator("#profile-dgx1-state")
        expected = r"Full\. Expected start: within (25|30) min, if nobody with a higher priority comes\."
        expect(state).to_have_text(re.compile(expected), timeout=PATIENCE)


def expect_fresh(page: Page, hub: HubProcess, word: str) -> None:
    """Reload until the page's snapshot of Slurm includes what a test has just changed."""
    while True:
        form_of(page, hub)
        if word in (page.locator("#spawn_form").text_content() or "").lower():
            return
        page.wait_for_timeout(500)


@pytest.mark.nightly
def test_the_age_of_what_is_shown_moves_nothing(course: HubProcess, page: Page) -> None:
    """It comes after a few seconds, and grows: nothing below it moves."""
    page.clock.install()
    sign_in(page, course, "pia")
    expect_fresh(page, course, "starts now")
    box_script = "boxes => boxes.map(box => [box.getBoundingClientRect().top, box.offsetHeight])"
    before = page.locator(".gs-row").evaluate_all(box_script)
    age = page.locator(".gs-columns [data-age]")

    page.clock.run_for(20_000)
    expect(age).to_have_text(re.compile(r"checked \d+ s ago"))
    assert page.locator(".gs-row").evaluate_all(box_script) == before
    page.clock.run_for(100_000)
    expect(age).to_have_text(re.compile(r"checked \d+ (s|min) ago"))
    assert page.locator(".gs-row").evaluate_all(box_script) == before


@pytest.mark.parametrize(
    "javascript",
    [pytest.param(True, id="with JavaScript"), pytest.param(False, id="without", marks=pytest.mark.nightly)],
)
def test_by_keyboard_alone(course: HubProcess, open_page: OpenPage, javascript: bool) -> None:
    """Tab to the profiles, arrow keys to another and back, Tab to its options, type, Enter: that choice starts."""
    name = "rita" if javascript else "rolf"
    page = open_page(javascript=javascript)
    sign_in(page, course, name)
    form_of(page, course)
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.locator("#profile-k80:focus").count():
            break
    page.keyboard.press("ArrowDown")
    expect(page.locator("#profile-dgx1")).to_be_checked()
    expect(page.locator("[name='profile-option-k80--gpus']")).to_be_hidden()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Tab")
    expect(page.locator("[name='profile-option-k80--gpus']")).to_be_focused()
    page.keyboard.press("ControlOrMeta+A")
    page.keyboard.type("2")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(f"/(spawn-pending|user)/{name}"))
    course.wait(name, ready=True)
    placement = course.api("GET", f"/gpuspawner/placement/{name}").json()
    course.end(name)

    assert len(placement["gpus"]) == 2

    form_of(page, course)
    expect(page.locator("[name='profile-option-k80--gpus']")).to_have_value("2")


def test_before_the_click_slurm_says_when_it_would_start(
    course: HubProcess, slurm_cluster: PrivateSlurm, page: Page
) -> None:
    """Slurm's answer for the current choice; a refusal is shown at the field that can correct it."""
    no_job_is_ending(slurm_cluster)
    sign_in(page, course, "otto")
    form_of(page, course)
    while availability(page, "k80") != "Starts now, 4 of 4 K80 free.":  # the hub's view may be of before
        page.wait_for_timeout(500)
        form_of(page, course)
    page.fill("[name='profile-option-k80--gpus']", "2")
    state = page.locator("#profile-k80-state")
    start = page.get_by_role("button", name="Start")

    expect(state).to_have_text("Starts now, 4 of 4 K80 free.", timeout=PATIENCE)
    expect(page.get_by_role("status")).to_contain_text("Starts now, 4 of 4 K80 free.")
    expect(state).to_have_class(re.compile("now"))
    expect(page.locator(".gs-got").first).to_contain_text("2 \N{MULTIPLICATION SIGN} K80, 12 GB")
    before = top(page, "[name='profile-option-k80--hours']")

    field = page.locator("[name='profile-option-k80--hours']")
    field.fill("48")

    limit = re.compile("48 h is more than the limit of 24 h")
    expect(field).to_have_accessible_description(limit, timeout=PATIENCE)
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(state).to_have_text("This choice cannot start.")
    expect(state).to_have_class(re.compile("never"))
    expect(start).to_be_disabled()
    expect(start).to_have_accessible_description(limit)
    assert top(page, "[name='profile-option-k80--hours']") == before
    assert axe_faults(page) == []
    shoot(page, "choose-refused")
    page.locator(".gs-row > label[for=profile-dgx1]").click()
    expect(start).to_be_enabled()
    expect(state).to_have_class(re.compile("never"))
    page.locator(".gs-row > label[for=profile-k80]").click()
    expect(start).to_be_disabled()
    field.fill("1")
    expect(start).to_be_enabled()
    expect(state).to_have_text("Starts now, 4 of 4 K80 free.", timeout=PATIENCE)
    expect(field).not_to_have_attribute("aria-invalid", "true")
    assert slurm_cluster.run("squeue", "-h") == ""


@pytest.mark.parametrize(("height", "seen"), [(768, 9), (640, 7)])
def test_so_many_profiles_are_in_view(course: HubProcess, open_page: OpenPage, height: int, seen: int) -> None:
    """With *Start* beside them, on a screen of 1366 x 768 and in its browser's window; nothing is covered."""
    page = open_page()
    page.set_viewport_size({"width": 1366, "height": height})
    sign_in(page, course, "noor")
    form_of(page, course)
    bottoms = page.locator(".gs-row").evaluate_all("rows => rows.map(row => row.getBoundingClientRect().bottom)")

    assert len(bottoms) == 9
    assert sum(bottom <= height for bottom in bottoms) >= seen
    expect(page.get_by_role("button", name="Start")).to_be_in_viewport(ratio=1)
    assert width_left_over(page) == 0


def test_a_long_list_has_filters(course: HubProcess, page: Page) -> None:
    """By what starts now, by model of GPU, and without a GPU; what is chosen stays in sight."""
    sign_in(page, course, "iris")
    form_of(page, course)
    chips, rows = page.get_by_role("radiogroup", name="Show"), page.locator(".gs-row:visible > label")
    shown = {}
    for name in ("P100", "No GPU", "All"):
        chips.get_by_text(name).click()
        shown[name] = [row.split(":")[0] for row in rows.all_inner_texts()]

    assert shown == {
        "P100": ["One K80", "The whole DGX-1"],
        "No GPU": ["One K80", "A node with Fluent", "Today's course", "Twelve cores", "Two cores", "Summer school"],
        "All": [
            *("One K80", "The whole DGX-1", "A node with Fluent", "Today's course", "A week on one GPU"),
            *("Twelve cores", "Two cores", "Two K80", "Summer school"),
        ],
    }


def test_what_is_full_offers_what_is_free_and_the_most_like_it(
    course: HubProcess, slurm_cluster: PrivateSlurm, page: Page
) -> None:
    """Other GPUs before cores; one click chooses it."""
    sign_in(page, course, "jana")
    with full_dgx1(slurm_cluster):
        expect_fresh(page, course, "full")
        form_of(page, course, "?opt-profile=dgx1")
        offered = page.get_by_role("region", name="The whole DGX-1: your choice").locator("[data-choose]")
        names = offered.all_inner_texts()
        offered.first.click()

    assert names == ["Two K80", "One K80"]
    expect(page.get_by_role("radio", name="Two K80")).to_be_checked()
    expect(page.get_by_role("radio", name="Two K80")).to_be_focused()


@pytest.mark.nightly
def test_a_page_left_open_is_renewed(course: HubProcess, slurm_cluster: PrivateSlurm, page: Page) -> None:
    """Availability is updated while the page is visible, and its age starts again."""
    page.clock.install()
    sign_in(page, course, "nils")
    expect_fresh(page, course, "8 of 8 p100 free")
    with full_dgx1(slurm_cluster):
        page.clock.run_for(50_000)
        age = page.locator(".gs-columns [data-age]")
        expect(age).to_have_text(re.compile(r"checked \d+ (s|min) ago"))
        while "full" not in page.locator("#gpuspawner-profiles").inner_text().lower():
            page.clock.run_for(60_000)
            page.wait_for_timeout(1000)

        assert availability(page, "dgx1") == "Full."


def top(page: Page, selector: str) -> float:
    """The distance of an element from the top of the document, in CSS pixels."""
    where: float = page.locator(selector).first.evaluate("it => it.getBoundingClientRect().top + scrollY")
    return where


@pytest.mark.nightly
def test_what_a_choice_brings_comes_with_the_answer_and_nothing_moves(course: HubProcess, open_page: OpenPage) -> None:
    """GPUs, cores and time follow the fields; the fields stay where they are."""
    page = open_page(phone=True)
    sign_in(page, course, "zoe")
    form_of(page, course)
    gets = page.locator(".gs-got").first
    expect(gets.locator("li")).to_have_text(["1 \N{MULTIPLICATION SIGN} K80, 12 GB", "4 cores", "4 GiB memory", "1 h"])
    before = top(page, "[name='profile-option-k80--gpus']")
    page.fill("[name='profile-option-k80--gpus']", "3")
    page.fill("[name='profile-option-k80--hours']", "48")

    expect(gets.locator("li")).to_have_text(["3 \N{MULTIPLICATION SIGN} K80, 12 GB", "4 cores", "4 GiB memory", "48 h"])
    assert top(page, "[name='profile-option-k80--gpus']") == before


@pytest.mark.nightly
def test_after_a_refused_click_the_words_and_the_mark_are_those_from_before(course: HubProcess, page: Page) -> None:
    """The card is not green, its chips tell what was asked for; *Start* is off until a change."""
    sign_in(page, course, "ines")
    form_of(page, course)
    page.route("**/api/gpuspawner/trial/**", lambda route: route.abort())
    page.fill("[name='profile-option-k80--hours']", "30")
    page.get_by_role("button", name="Start").click()
    expect(page.locator(".gs-state.failed")).to_have_text("Your server did not start", timeout=PATIENCE)
    expect(page.locator("#gpuspawner-what")).to_have_text("30 h is more than the limit of 24 h.")
    page.locator("#start").click()
    state = page.locator("#profile-k80-state")

    expect(state).to_have_class(re.compile("never"))
    expect(page.locator(".gs-got").first).to_contain_text("30 h")
    expect(page.locator("#spawn_form")).to_contain_text("30 h is more than the limit of 24 h")
    expect(page.get_by_role("button", name="Start")).to_be_disabled()
    assert axe_faults(page) == []
    page.fill("[name='profile-option-k80--hours']", "2")
    expect(page.get_by_role("button", name="Start")).to_be_enabled()


@pytest.mark.parametrize(
    ("dark", "phone"),
    [
        pytest.param(False, False, id="light, wide", marks=pytest.mark.nightly),
        pytest.param(True, True, id="dark, a phone"),
    ],
)
def test_start_covers_nothing(course: HubProcess, open_page: OpenPage, dark: bool, phone: bool) -> None:
    """Scrolled to its end, the page shows the last profile above *Start*; so is what has the focus; axe is content."""
    page = open_page(phone=phone, dark=dark)
    sign_in(page, course, "lars")
    form_of(page, course)
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    bar = page.locator(".gs-start")

    assert not covered(page, ".gs-row >> nth=-1")
    expect(bar.get_by_role("button")).to_be_in_viewport(ratio=1)

    page.locator("#profile-course").focus()
    assert not covered(page, "#profile-course")
    assert axe_faults(page) == []
    assert width_left_over(page) == 0


@pytest.mark.nightly
def test_a_whole_profile_is_its_label(course: HubProcess, open_page: OpenPage) -> None:
    """Also at its edge."""
    page = open_page(phone=True)
    sign_in(page, course, "tom")
    form_of(page, course)
    covered = page.locator(".gs-row > label[for=profile-dgx1]").evaluate(
        """(label) => {
            label.scrollIntoView({block: "center", behavior: "instant"}); // only what is in the window is at a point
            const card = label.closest(".gs-row").getBoundingClientRect();
            const at = document.elementFromPoint(card.right - 8, card.top + 8);
            return label === at;
        }"""
    )

    assert covered


def covered(page: Page, selector: str) -> bool:
    """Whether an element is below *Start*."""
    box, start = page.locator(selector).bounding_box(), page.locator(".gs-start").bounding_box()
    assert box is not None
    assert start is not None
    beside = box["x"] + box["width"] <= start["x"]
    return not beside and box["y"] + box["height"] > start["y"]


@pytest.mark.nightly
def test_a_link_fills_the_form_in_and_starts_nothing(course: HubProcess, page: Page) -> None:
    """The link to a choice fills in the form; nothing is started without a click."""
    sign_in(page, course, "sven")
    form_of(page, course)
    page.fill("[name='profile-option-k80--gpus']", "3")
    page.select_option("[name='profile-option-k80--software']", "jax")
    expect(page.get_by_role("button", name="Copy link")).to_have_count(1)
    expect(page.get_by_role("link", name="Link to this choice")).to_have_count(0)
    link = urlsplit(page.locator(".gpuspawner-link").first.get_attribute("href") or "")

    assert link.query == "opt-profile=k80&opt-gpus=3&opt-hours=1&opt-software=jax"

    form_of(page, course, f"?{link.query}")

    expect(page.get_by_role("status").filter(has_text="Nothing has been started yet")).to_be_visible()
    expect(page.locator("[name='profile-option-k80--gpus']")).to_have_value("3")
    expect(page.locator("[name='profile-option-k80--software']")).to_have_value("jax")
    assert course.server("sven") is None


@pytest.mark.oldest
@pytest.mark.parametrize("source", ["click", pytest.param("link", marks=pytest.mark.nightly)])
def test_a_fault_stands_at_its_field(course: HubProcess, page: Page, source: str) -> None:
    """A summary has the focus and links to the field; the field shows the error; the values are kept."""
    sign_in(page, course, "tess")
    if source == "link":
        form_of(page, course, "?opt-profile=k80&opt-gpus=9&opt-software=jax")
    else:
        form_of(page, course)
        page.fill("[name='profile-option-k80--gpus']", "9")
        page.select_option("[name='profile-option-k80--software']", "jax")
        expect(page.get_by_role("button", name="Start")).to_be_disabled()
        expect(page.get_by_text("It must be a number from 1 to 4.")).to_have_count(1)  # once, at the field
        expect(page.locator(".gs-got").first).to_be_hidden()
        page.evaluate("document.querySelector('#spawn_form').submit()")  # as a page without its script
    summary = page.get_by_role("alert")
    field = page.locator("[name='profile-option-k80--gpus']")

    expect(summary).to_be_focused()
    expect(summary).to_contain_text("it must be a number from 1 to 4")
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(field).to_have_accessible_description(re.compile("it must be a number from 1 to 4"))
    expect(field).to_have_value("9")
    expect(page.locator("[name='profile-option-k80--software']")).to_have_value("jax")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(field).to_be_focused()
    assert axe_faults(page) == []
    assert course.server("tess") is None


@pytest.mark.nightly
def test_a_fault_out_of_sight_stops_nobody(course: HubProcess, page: Page) -> None:
    """An invalid number in a profile that is no longer selected."""
    sign_in(page, course, "uma")
    form_of(page, course)
    page.fill("[name='profile-option-k80--gpus']", "9")
    page.locator(".gs-row > label[for=profile-dgx1]").click()
    page.get_by_role("button", name="Start").click()
    page.wait_for_url(re.compile("/(spawn-pending|user)/uma"))
    course.wait("uma", ready=True)
    model = course.server("uma")
    course.end("uma")

    assert model is not None
    assert model["user_options"] == {"profile": "dgx1"}


@pytest.mark.nightly
@pytest.mark.oldest
def test_a_course_comes_first_with_its_session(course: HubProcess, open_page: OpenPage) -> None:
    """For a participant, selected and with nothing to choose; on a phone, too."""
    page = open_page()
    sign_in(page, course, "paula")
    form_of(page, course)
    card = page.locator(".gs-choice").first
    expect(card).to_contain_text("Deep learning in practice")
    expect(card.locator("[type=radio]")).to_be_checked()
    expect(card.locator(".gs-about time")).to_have_count(2)
    expect(card.locator(".gs-options")).to_have_count(0)
    shoot(page, "choose-course")

    assert axe_faults(page) == []
    page.set_viewport_size(PHONE)
    assert width_left_over(page) == 0
