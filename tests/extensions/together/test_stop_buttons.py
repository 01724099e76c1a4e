"""Each button that stops a server, at each stage of a start: a table of buttons and stages, in a real hub over Slurm.

After each click: no answer is an error of the hub, the card says what is true, JupyterHub agrees, no job is left, and
the next start works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

import pytest
import requests

from jupyterhub_gpuspawner.demo.hub import HubProcess, server_path
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from jupyterhub_gpuspawner.extensions.courses.course_profile import slug_of
from tests.fixtures.hubs import COMMAND, LIGHT, start_hub
from tests.hub.commands import OddSite, commands, slow
from tests.hub.servers import alive
from tests.hub.visitor import Page, Visitor
from tests.waiting import wait_until, wait_until_equal

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

LINES = """
import asyncio, os
from pathlib import Path
c.GPUProfilesSpawner.courses_dir = str(Path(os.environ["GPUSPAWNER_DEMO_FOLDER"]) / "courses")
c.GPUCourses.people = "[a-z]+"
c.GPUCourses.every = 0.1
c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 0, "slow_stop_timeout": 1}
c.JupyterHub.concurrent_spawn_limit = c.JupyterHub.active_server_limit = 0
for role in c.JupyterHub.load_roles:
    role["scopes"] += ["tokens", "list:users"]
from jupyterhub_gpuspawner.hub.site import connection
connection.COMMANDS_AT_A_TIME = 40
from jupyterhub_gpuspawner.hub.spawners import stopping
stopping.PENDING_PATIENCE_SECONDS = 1.0
from jupyterhub_gpuspawner.hub import unfinished
unfinished.UNWATCHED_SECONDS = 3600.0  # what a click leaves unfinished stays so
from jupyterhub_gpuspawner.slurm import watcher
watcher.ACTIVE_INTERVAL = 0.5
make_home = c.Spawner.pre_spawn_hook


async def hook(spawner):
    make_home(spawner)
    if spawner.user_options["profile"] == "course-hooked" or spawner.user.name.startswith("fifty"):
        spawner.log.info("In the hook of %s.", spawner.user.name)
        try:
            await asyncio.sleep(600)
        finally:  # a hook that tidies up before it lets go
            await asyncio.sleep(3)


c.Spawner.pre_spawn_hook = hook
"""
PROFILES = f"""{LIGHT}
- display_name: Starts its program late
  slug: quiet
  slurm: {{partition: batch, cpus: 1, memory: 100M, time: "0:10:00"}}
  environment: {{setup: "sleep 60"}}
  command: {COMMAND}
- display_name: Never answers
  slug: deaf
  slurm: {{partition: batch, cpus: 1, memory: 100M, time: "0:10:00"}}
  command: [bash, -c, "sleep 100"]
- display_name: Broken
  slug: broken
  slurm: {{partition: batch, cpus: 1, memory: 100M, time: "0:10:00"}}
  command: [bash, -c, "exit 3"]
"""
NO_ANSWER = "Unable to contact slurm controller (connect failure)"
SILENT = {
    "sbatch": f'echo "sbatch: error: Batch job submission failed: {NO_ANSWER}" >&2; exit 1',
    **{name: f'echo "{name}: error: {NO_ANSWER}" >&2; exit 1' for name in ("squeue", "scontrol", "sinfo")},
}


@dataclass(frozen=True)
class Site:
    """The hub with its courses, and the people who stop the servers of others there."""

    odd: OddSite
    instructor: Visitor
    administrator: Visitor

    @property
    def hub(self) -> HubProcess:
        """The hub."""
        return self.odd.hub

    @property
    def submitting(self) -> Path:
        """A file with the users for whom sbatch has been called."""
        return self.odd.folder / "submitting"


@dataclass(frozen=True)
class Stage:
    """How far a start is when somebody clicks."""

    is_reached: Callable[[Site, Visitor], object]
    course: str = "light"
    """The course whose server it is."""
    changed: Mapping[str, str] = field(default_factory=dict)
    """Slurm's commands during the start and the click."""
    before: Callable[[Site, Visitor], object] = lambda _site, _user: None
    """What happens once the stage is reached, right before the click."""
    cards: tuple[str, ...] = ("stopped",)
    """What the card may say in the end."""


def in_its_hook(site: Site, user: Visitor) -> bool:
    """Whether the site's hook is under way, by the hub's log."""
    return f"In the hook of {user.name}." in site.hub.log.read_text()


def submits(site: Site, user: Visitor) -> bool:
    """Whether sbatch has been called for this user."""
    return site.submitting.exists() and user.name in site.submitting.read_text().split()


def word(user: Visitor) -> str:
    """What the card on the home page calls the server's state."""
    card = user.look("/hub/home").soup.select_one("#gpuspawner-cards .gs-state")
    return card.get_text() if card is not None else ""


def card(user: Visitor) -> str:
    """The state of the server on the home page."""
    found = user.look("/hub/home").soup.select_one('#gpuspawner-cards [data-server-name=""]')
    assert found is not None
    return str(found["data-state"])


def pending(site: Site, user: Visitor) -> str | None:
    """What JupyterHub says is under way; ``ready`` where the server runs, and None where it is not active."""
    model = site.hub.server(user.name)
    return None if model is None else "ready" if model["ready"] else model["pending"]


def jobs(site: Site, user: str, *states: str) -> list[str]:
    """The ids of the jobs of the user's servers in these states of Slurm's."""
    lines = site.odd.slurm.run("squeue", "-h", "-t", ",".join(states), "-O", "JobID:20,Comment:200").splitlines()
    return [line.split()[0] for line in lines if f"/{user}/" in line]


def is_ready(site: Site, user: Visitor) -> bool:
    """Whether the server runs."""
    return pending(site, user) == "ready"


def stop_beside(site: Site, user: Visitor) -> None:
    """Begin a stop that takes a while."""
    assert site.hub.api("DELETE", server_path(user.name)).status_code == 202


def end_job(site: Site, user: Visitor) -> None:
    """Have Slurm end the job, without a word to the hub."""
    site.odd.slurm.run("scancel", *jobs(site, user.name, "R"))


NOTED = 'echo "$USER" >> "$(dirname "$0")/submitting"\n'
STAGES = {
    "before sbatch, in a hook of the site": Stage(in_its_hook, course="hooked"),
    "sbatch gets no answer": Stage(submits, changed={"sbatch": f"{NOTED}sleep 20"}),
    "sbatch answers late": Stage(submits, changed={"sbatch": f"{NOTED}{slow(0.0, 4.0)}"}),
    "kept for later": Stage(lambda _, user: word(user) == "waiting for Slurm", changed=SILENT),
    "pending in the queue": Stage(lambda site, user: jobs(site, user.name, "PD"), course="full"),
    "the job runs, and its node has not reported": Stage(lambda site, user: jobs(site, user.name, "R"), course="quiet"),
    "the node has reported, and the server does not answer": Stage(
        lambda site, user: site.hub.api("GET", f"/gpuspawner/placement/{user.name}").ok, course="deaf"
    ),
    "running": Stage(is_ready),
    "stopping already": Stage(is_ready, changed={"scancel": slow(2.0)}, before=stop_beside),
    "failed": Stage(lambda _, user: card(user) == "failed", course="broken", cards=("failed",)),
    "ended a moment ago": Stage(is_ready, before=end_job, cards=("ended", "stopped")),
}
OF_THE_GATE = ("before sbatch, in a hook of the site", "running")
COURSES = {
    "light": "light",
    "hooked": "light",
    "full": "k80-node",
    "quiet": "quiet",
    "deaf": "deaf",
    "broken": "broken",
}
"""The admin's profile of each course."""


Click = Callable[[Site, Visitor, str], requests.Response]
"""Whose server, of which course."""


def on_the_courses_page(site: Site, user: Visitor, course: str) -> requests.Response:
    """The instructor has confirmed it."""
    return site.instructor.click(f"/hub/gpuspawner/course/{course}", these=f"stop\n{user.name}/", confirmed="yes")


def of_the_course(site: Site, user: Visitor, course: str) -> requests.Response:
    """The instructor's command."""
    path = f"/gpuspawner/courses/{course}/stop"
    return site.hub.api("POST", path, {"only": [user.name]}, token=site.instructor.token())


BUTTONS: dict[str, Click] = {
    "home": lambda _, user, __: user.click(f"/hub/gpuspawner/stop/{user.name}"),
    "waiting": lambda _, user, __: user.click(f"/hub/gpuspawner/stop/{user.name}", back="server"),
    "link": lambda _, user, __: user.click(f"/hub/gpuspawner/stop/{user.name}", link="opt-profile=light"),
    "twice": lambda _, user, __: twice(user),
    "admin": lambda site, user, _: site.administrator.click(f"/hub/gpuspawner/stop/{user.name}"),
    "map": lambda site, user, _: site.administrator.click(
        f"/hub/gpuspawner/stop/{user.name}", back="gpuspawner/cluster"
    ),
    "rest": lambda site, user, _: site.hub.api("DELETE", server_path(user.name)),
    "course": on_the_courses_page,
    "command": of_the_course,
}


def twice(user: Visitor) -> requests.Response:
    """Click in two tabs at the same moment; the worse answer."""
    with ThreadPoolExecutor(2) as tabs:
        paths = [f"/hub/gpuspawner/stop/{user.name}"] * 2
        return max(tabs.map(user.click, paths), key=lambda answer: answer.status_code)


def user_name(button: str, stage: str) -> str:
    """A user of their own for each button and stage."""
    return f"{button}{chr(ord('a') + list(STAGES).index(stage))}"


@pytest.fixture(scope="module")
def site(slurm_cluster: PrivateSlurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A hub with a course for each kind of server; all its people are on all courses."""
    folder = tmp_path_factory.mktemp("hub")
    begin = datetime.now(timezone.utc).replace(hour=0, minute=0)
    names = [user_name(button, stage) for button in BUTTONS for stage in STAGES]
    (folder / "courses").mkdir()
    for course, profile in COURSES.items():
        (folder / "courses" / f"{course}.yaml").write_text(
            f"name: {course}\ninstructors: ada\nroster: {names}\nprofile: {profile}\nzone: UTC\n"
            f"sessions: [{{date: {begin:%Y-%m-%d}, from: '0:00', to: '23:59'}}]\n"
        )
    bin_dir = commands(folder / "bin", slurm_cluster.bin_dir, {})
    lines = f"{LINES}\nc.GPUSlurmSpawner.slurm_bin_dir = {str(bin_dir)!r}"
    with ExitStack() as stack:
        hub = start_hub(stack, slurm_cluster, folder, lines=lines, profiles=PROFILES)
        site = Site(OddSite(hub, slurm_cluster, bin_dir), Visitor(hub, "ada"), Visitor(hub, "admin"))
        taught = {f"course-{course}-instructors" for course in COURSES}
        wait_until_equal(lambda: taught - set(hub.api("GET", "/users/ada").json()["roles"]), set())
        yield site


@pytest.fixture
def full_node(site: Site) -> Iterator[None]:
    """Whoever wants the K80 node has to wait."""
    line = "--parsable -p gpu --gres=gpu:k80:4 --exclusive -t 10 -o /dev/null"
    blocker = site.odd.slurm.run("sbatch", *line.split(), "--wrap=sleep 600")
    yield
    site.odd.slurm.run("scancel", blocker)


@dataclass(frozen=True)
class Seen:
    """What a click has led to."""

    fault: str
    """An answer of the hub's that is an error; empty where there is none."""
    wrong_card: str
    """What the home page says in the end, where it may not say that."""
    active: str | None
    """What JupyterHub says then."""
    starts_again: bool
    """The next start gets a job."""


def click(site: Site, stage: Stage, button: str, user: Visitor) -> str:
    """Click, and follow to the next page; returns what was wrong with the answers."""
    stage.before(site, user)
    answer = BUTTONS[button](site, user, stage.course)
    if answer.status_code >= 500:
        return f"{answer.status_code}: {answer.text[-300:]}"
    shown = card(user)
    if shown == "running" and button not in ("course", "command"):  # a course's stop has its turn a little later
        return "the card says running"
    where = user.pending() if button == "waiting" else user.look("/hub/home")
    return "" if where.status < 500 or _is_of_a_failure(where) else f"{where.status} at {where.url}"


def _is_of_a_failure(page: Page) -> bool:
    """JupyterHub answers the page of a start that has failed with the status of the failure."""
    return page.soup.select_one("#gpuspawner-not-running") is not None


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in OF_THE_GATE else pytest.mark.nightly) for name in STAGES]
)
@pytest.mark.usefixtures("full_node")
def test_each_button_stops_a_server_at_each_stage_of_its_start(name: str, site: Site) -> None:
    """Each button is clicked for a server of its own, all at the same time."""
    stage, hub = STAGES[name], site.hub
    users = {button: Visitor(hub, user_name(button, name)) for button in BUTTONS}
    site.odd.change(stage.changed)

    def begin(user: Visitor) -> None:
        options = {"profile": slug_of(stage.course)}
        answer = hub.api("POST", server_path(user.name), options)
        assert answer.status_code in (201, 202), answer.text
        wait_until(lambda: stage.is_reached(site, user), lambda: (user.name, hub.log_end()))

    with ThreadPoolExecutor(len(users)) as threads:
        list(threads.map(begin, users.values()))
        faults = list(threads.map(lambda button: click(site, stage, button, users[button]), users))
        site.odd.change({})
        wait_until(lambda: not any(pending(site, user) for user in users.values()), hub.log_end)
        cards = [state if state not in stage.cards else "" for state in threads.map(card, users.values())]
        active = list(threads.map(lambda user: pending(site, user), users.values()))
        wait_until(lambda: not any(user.name in str(alive(site.odd.slurm)) for user in users.values()), hub.log_end)
        again = list(threads.map(lambda user: starts(site, user), users.values()))

    seen = dict(zip(users, map(Seen, faults, cards, active, again), strict=True))
    assert seen == dict.fromkeys(users, Seen("", wrong_card="", active=None, starts_again=True))


def starts(site: Site, user: Visitor) -> bool:
    """Whether the user's next start gets a job; it is cancelled."""
    hub = site.hub
    answer = hub.api("POST", server_path(user.name), {"profile": "light"})
    wait_until(lambda: jobs(site, user.name, "PD", "CF", "R") or pending(site, user) is None, hub.log_end)
    submitted = pending(site, user) is not None
    hub.end(user.name)
    return submitted and answer.ok


@pytest.mark.nightly
def test_fifty_cancellations_at_once_are_each_answered(site: Site) -> None:
    """By REST, of starts that take longer to end than JupyterHub waits for it."""
    hub, users = site.hub, [f"fifty{number}" for number in range(50)]
    for user in users:
        hub.api("POST", f"/users/{user}")
    with ThreadPoolExecutor(len(users)) as threads:
        for answer in threads.map(lambda user: hub.api("POST", server_path(user), {"profile": "light"}), users):
            assert answer.status_code == 202, answer.text
        answers = list(threads.map(lambda user: hub.api("DELETE", server_path(user)).status_code, users))
    for user in users:
        hub.wait(user, ready=False)

    assert set(answers) <= {202, 204}
    assert not any("/fifty" in line for line in alive(site.odd.slurm))
