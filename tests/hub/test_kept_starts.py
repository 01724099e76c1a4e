"""A start is kept while Slurm does not answer: its user may lose the right meanwhile, and the hub may be killed."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from jupyterhub_gpuspawner.demo.hub import HubProcess, server_path
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from jupyterhub_gpuspawner.hub import words
from tests.fixtures.hubs import COMMAND, StartHub
from tests.fixtures.slurm import hanging
from tests.hub.commands import commands, slow
from tests.hub.servers import start, stored, why_it_ended
from tests.hub.visitor import Visitor
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

CONFIG = """
c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 0}  # a start over REST is answered at once
c.JupyterHub.load_groups = {name: {"users": users} for name, users in {
    "vision": ["early", "made", "grouped"], "fast": ["fast"]
}.items()}
c.Spawner.group_overrides = {"fast": {"groups": ["fast"], "spawner_override": {"req_nice": "7"}}}
c.JupyterHub.load_roles += [{"name": "groups", "services": ["demo"], "scopes": ["admin:groups"]}]
c.GPUSlurmSpawner.slurm_timeout = 3
from jupyterhub_gpuspawner.hub.start import submission
submission.ANSWER_SECONDS = 0.5
from jupyterhub_gpuspawner.hub.spawners import shared_folder
shared_folder.REST = 0.2
from jupyterhub_gpuspawner.slurm import watcher
watcher.ACTIVE_INTERVAL = 0.5
"""
BODY = f"""slurm: {{partition: batch, cpus: 1, memory: 100M, time: "0:10:00"}}
  command: {COMMAND}"""
LIGHT = f"- display_name: Light\n  slug: light\n  {BODY}\n"
TO_GO = {
    "gone": f"- display_name: Gone\n  slug: gone\n  {BODY}\n",
    "vision": f"- display_name: Vision\n  slug: vision\n  allow: {{groups: [vision]}}\n  {BODY}\n",
    "named": f"- display_name: Named\n  slug: named\n  allow: {{users: [named]}}\n  {BODY}\n",
    "dated": f"- display_name: Dated\n  slug: dated\n  {BODY}\n",
    "many": f"- display_name: Many\n  slug: many\n  {BODY}\n  profile_options:\n"
    "    cpus: {display_name: Cores, range: {min: 1, max: 4, default: 1, sets: slurm.cpus}}\n",
}
"""Profiles of which each may be lost."""


@dataclass
class Site:
    """A hub whose commands a test can change, and what its sbatch was run for."""

    hub: HubProcess
    slurm: PrivateSlurm
    bin: Path
    submissions: Path

    def change(self, **changed: str) -> None:
        """Give the hub these commands; each sbatch writes down its user first."""
        sbatch = f'echo "$JUPYTERHUB_USER" >>{self.submissions}\n{changed.pop("sbatch", NORMAL)}'
        commands(self.bin, self.slurm.bin_dir, {"sbatch": sbatch, **changed})

    def submitted(self, user: str) -> int:
        """How often sbatch was run for a user."""
        return self.submissions.read_text().split().count(user)

    def profile(self, name: str, text: str) -> None:
        """Write a file of profiles."""
        (self.hub.folder / "profiles" / f"{name}.yaml").write_text(text)

    def offered(self, user: str) -> set[str]:
        """The slugs of the profiles that a user may start."""
        profiles = self.hub.api("GET", f"/gpuspawner/profiles/{user}").json()["profiles"]
        return {profile["slug"] for profile in profiles if profile["allowed"]}

    def until_kept(self, user: str) -> None:
        """Wait until the page of a start says that it is kept."""
        person = Visitor(self.hub, user)
        wait_until(lambda: words.FOR_LATER in person.pending().text, self.hub.log_end, seconds=60)

    def expire(self, user: str) -> None:
        """Have the stored start of a user be an hour older."""
        url = self.hub.environment.get("GPUSPAWNER_DEMO_DATABASE", f"sqlite:///{self.hub.folder}/hub.sqlite")
        engine = create_engine(url)
        state = stored(self.hub, user)
        state["kept_start"]["since"] = [time.time() - 3600]
        change = text(
            "update spawners set state = :state where name = '' and user_id = (select id from users where name = :user)"
        )
        with engine.begin() as database:
            database.execute(change, {"state": json.dumps(state), "user": user})
        engine.dispose()

    def jobs(self, user: str) -> list[tuple[str, str, str, str]]:
        """Number, state, time of submission and end of each job of a user's servers that Slurm still knows."""
        lines = self.slurm.run("squeue", "-h", "-t", "all", "-o", "%i|%T|%V|%e|%k").splitlines()
        jobs = [job for job in (line.split("|") for line in lines) if len(job) == 5]  # another's comment has any lines
        theirs = [job for job in jobs if f"/{user}/" in job[4]]
        return [(job[0], job[1], job[2], job[3]) for job in sorted(theirs, key=lambda job: int(job[0]))]


NORMAL = 'exec "$real" "$@"'
UNABLE = (
    "echo 'sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)' >&2; "
    "exit 1"
)
"""A command that gets no answer."""
LOST_ANSWER = f'"$real" "$@" >/dev/null; {UNABLE}'
"""sbatch makes its job, and the answer is lost."""


def start_site(start_light_hub: StartHub, slurm: PrivateSlurm, folder: Path, lines: str = "") -> Site:
    """A hub whose commands can be changed, with more lines of configuration."""
    bin_dir, submissions = folder / "bin", folder / "submissions"
    submissions.touch()
    commands(bin_dir, slurm.bin_dir, {})
    hub = start_light_hub(f"{CONFIG}\nc.GPUSlurmSpawner.slurm_bin_dir = {str(bin_dir)!r}\n{lines}", LIGHT)
    site = Site(hub, slurm, bin_dir, submissions)
    site.change()
    return site


@pytest.fixture(scope="module")
def site(start_light_hub: StartHub, slurm_cluster: PrivateSlurm, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The hub with its profiles."""
    return start_site(start_light_hub, slurm_cluster, tmp_path_factory.mktemp("kept"))


# --- the right is asked again ---


@contextmanager
def silent(site: Site) -> Iterator[None]:
    """A time in which Slurm does not answer, and the hub knows it."""
    with hanging(site.slurm):
        wait_until(lambda: site.hub.api("GET", "/gpuspawner/profiles/first").json()["silent"], site.hub.log_end)
        start(site.hub, "first", "light")
        site.until_kept("first")
        yield


def lose_group(name: str) -> Callable[[Site, str], None]:
    def lose(site: Site, user: str) -> None:
        answer = site.hub.api("DELETE", f"/groups/{name}/users", {"users": [user]})
        assert answer.ok, answer.text

    return lose


def rewrite(name: str, old: str, new: str) -> Callable[[Site, str], None]:
    return lambda site, _: site.profile(name, TO_GO[name].replace(old, new))


Loss = tuple[str, Callable[[Site, str], None], str]
"""The profile, how the right to it is lost, and a part of what its user reads."""
LOSSES: dict[str, Loss] = {
    "grouped": ("vision", lose_group("vision"), "vision"),
    "fast": ("light", lose_group("fast"), "The groups of its user have changed"),
    "gone": ("gone", lambda site, _: (site.hub.folder / "profiles" / "gone.yaml").unlink(), "gone"),
    "named": ("named", rewrite("named", "users: [named]", "users: [other]"), "reserved for other users"),
    "dated": ("dated", rewrite("dated", "slug: dated", "slug: dated\n  allow: {until: 2020-01-01}"), "until"),
    "many": ("many", rewrite("many", "max: 4", "max: 2"), "not allowed"),
}
"""By user."""


def assert_not_submitted(site: Site, losses: Mapping[str, Loss]) -> None:
    """Those who lose their right while Slurm is silent read why; who still has the right gets the server.

    A server that was deleted is not submitted.
    """
    hub = site.hub
    for user in (*losses, "first"):
        hub.api("POST", f"/users/{user}")

    def all_offered() -> bool:
        return all(profile in site.offered(user) for user, (profile, _, _) in losses.items())

    wait_until(all_offered, hub.log_end)
    with silent(site):
        for user, (profile, _, _) in losses.items():
            start(hub, user, profile, "", **({"cpus": 4} if user == "many" else {}))
        start(hub, "still", "light")
        start(hub, "lara", "light", "lab")
        for user in (*losses, "still"):
            site.until_kept(user)
        for user, (_, lose, _) in losses.items():
            lose(site, user)
        hub.api("DELETE", server_path("lara", "lab"), {"remove": True})
        wait_until(lambda: hub.server("lara", "lab") is None, hub.log_end)
    for user in ("first", "still"):
        hub.wait(user, ready=True)
    for user in losses:
        hub.wait(user, ready=False)

    assert {user: site.submitted(user) for user in (*losses, "lara")} == dict.fromkeys((*losses, "lara"), 0)
    assert site.submitted("still") == 1
    for user, (_, _, part) in losses.items():
        page = Visitor(hub, user).pending().text
        assert part in page, (user, page)
        assert part in why_it_ended(hub, user), user
    for user in ("first", "still"):
        hub.end(user)


def test_nothing_is_submitted_for_those_who_have_lost_the_right_meanwhile(site: Site) -> None:
    """Whether it was by a group, a file, a date or an option that is gone."""
    for name, profile in TO_GO.items():
        site.profile(name, profile)
    assert_not_submitted(site, LOSSES)


@pytest.mark.parametrize(
    ("user", "sbatch", "states"),
    [pytest.param("early", UNABLE, [], marks=pytest.mark.nightly), ("made", LOST_ANSWER, ["CANCELLED"])],
)
def test_an_sbatch_without_an_answer_gives_no_server_to_those_who_have_lost_the_right(
    site: Site, user: str, sbatch: str, states: list[str]
) -> None:
    """Whether it has made a job or not: it is not repeated, and the job is cancelled."""
    hub = site.hub
    site.profile("vision", TO_GO["vision"])
    hub.api("POST", f"/users/{user}")
    site.change(sbatch=sbatch, squeue=UNABLE)
    wait_until(lambda: "vision" in site.offered(user), hub.log_end)
    start(hub, user, "vision")
    site.until_kept(user)
    lose_group("vision")(site, user)
    site.change()
    hub.wait(user, ready=False)

    assert site.submitted(user) == 1
    assert "vision" in why_it_ended(hub, user)
    wait_until(lambda: [job[1] for job in site.jobs(user)] == states, lambda: site.jobs(user))


# --- the hub is killed ---


def only_one_at_a_time(jobs: list[tuple[str, str, str, str]]) -> bool:
    """Whether each of these jobs but the last had ended when the next one was submitted."""
    return all(before[3] <= after[2] for before, after in itertools.pairwise(jobs))


def test_a_start_that_is_kept_goes_on_after_the_hub_was_killed(site: Site) -> None:
    """Slurm is silent before and after; nobody has to do anything, and there is one job."""
    hub = site.hub
    with hanging(site.slurm):
        start(hub, "ada", "light")
        site.until_kept("ada")
        until = stored(hub, "ada")["kept_start"]["since"]
        hub.restart()
        wait_until(lambda: (hub.server("ada") or {}).get("pending") == "spawn", hub.log_end)
        site.until_kept("ada")
        assert stored(hub, "ada")["kept_start"]["since"] == until
    wait_until(lambda: (hub.server("ada") or {}).get("ready"), hub.log_end)

    assert [state for _, state, _, _ in site.jobs("ada") if state in ("RUNNING", "PENDING")] == ["RUNNING"]
    assert only_one_at_a_time(site.jobs("ada"))
    assert "kept_start" not in stored(hub, "ada")

    hub.end("ada")


def test_a_job_that_a_lost_answer_has_made_never_runs_beside_the_next_one(site: Site) -> None:
    """The hub is killed when sbatch has made a job that it does not know of, and again when the next one has."""
    hub = site.hub
    site.change(sbatch=LOST_ANSWER, squeue=UNABLE)
    start(hub, "bea", "light")
    site.until_kept("bea")
    wait_until(lambda: len(site.jobs("bea")) == 1, hub.log_end)
    hub.kill()
    site.change(sbatch=slow(after=30))
    hub.start()
    wait_until(lambda: len(site.jobs("bea")) == 2, hub.log_end)
    hub.kill()
    site.change()
    hub.start()
    wait_until(lambda: (hub.server("bea") or {}).get("ready"), hub.log_end)
    jobs = site.jobs("bea")

    assert [state for _, state, _, _ in jobs] == ["CANCELLED", "CANCELLED", "RUNNING"]
    assert only_one_at_a_time(jobs)
    assert stored(hub, "bea")["job_id"] == jobs[-1][0]

    hub.end("bea")


@pytest.mark.nightly
def test_a_kept_start_of_somebody_who_lost_the_right_while_the_hub_was_down_is_not_submitted(site: Site) -> None:
    """Their page says why, and the next restart does not try it again."""
    hub = site.hub
    site.profile("gone", TO_GO["gone"])
    with hanging(site.slurm):
        wait_until(lambda: "gone" in site.offered("admin"), hub.log_end)
        start(hub, "cleo", "gone")
        site.until_kept("cleo")
        hub.kill()
        (hub.folder / "profiles" / "gone.yaml").unlink()
        hub.start()
        wait_until(lambda: "kept_start" not in stored(hub, "cleo"), hub.log_end)
    before = site.submitted("cleo")
    page = Visitor(hub, "cleo").pending().text

    assert hub.server("cleo") is None
    assert before <= 1  # Slurm was silent, and the hub may have had to find out
    assert "gone" in page


@pytest.mark.nightly
def test_a_start_whose_time_is_over_when_the_hub_is_back_is_given_up_and_its_page_says_so(site: Site) -> None:
    """It was kept until then, and no longer."""
    hub = site.hub
    with hanging(site.slurm):
        start(hub, "dan", "light")
        site.until_kept("dan")
        hub.kill()
        site.expire("dan")
        hub.start()
        wait_until(lambda: "kept_start" not in stored(hub, "dan"), hub.log_end)

    assert hub.server("dan") is None
    assert "The hub was restarted while your server was kept for later" in Visitor(hub, "dan").look("/hub/home").text
