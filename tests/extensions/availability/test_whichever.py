"""Somebody waits for a node and accepts another one: whichever comes first, with one server and two jobs at most."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.fixtures.hubs import ASKS_OFTEN, COMMAND, StartHub
from tests.fixtures.slurm import hanging
from tests.hub.commands import commands
from tests.hub.servers import environment, start, stored
from tests.hub.visitor import Visitor
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

CONFIG = f"""
c.JupyterHub.tornado_settings = {{"slow_spawn_timeout": 0}}  # a start over REST is answered at once
c.GPUSlurmSpawner.slurm_timeout = 3
from jupyterhub_gpuspawner.hub.spawners import rival
rival.LOOK_SECONDS, rival.AGAIN_SECONDS = 0.5, 5.0
from jupyterhub_gpuspawner.hub.start import submission
submission.ANSWER_SECONDS = 0.5
{ASKS_OFTEN}
"""
NEVER = "9999"
"""The end of a job that has not ended: times are compared as text, in ISO 8601."""
WAITS = "partition: gpu, constraint: k80, cpus: 24, memory: 100M, time: '0:10:00'"
FREE = "partition: batch, cpus: 1, memory: 100M, time: '0:10:00'"


def profiles(seen: Path) -> str:
    """A profile whose node is taken, and others that may be accepted in its place; each server writes down its job."""
    run = f'echo "$SLURM_JOB_ID $JUPYTERHUB_USER" >>{seen}; exec "$@"'
    command = f"[bash, -c, '{run}', server, {COMMAND.strip('[]')}]"
    return f"""
- display_name: The K80 node
  slug: node
  alternatives: [light, slow]
  slurm: {{{WAITS}}}
  command: {command}
- display_name: Light
  slug: light
  slurm: {{{FREE}}}
  default_url: /lab/light
  command: {command}
- display_name: Takes its time before its server
  slug: slow
  slurm: {{{FREE}}}
  environment: {{setup: "sleep 6"}}
  command: {command}
- display_name: Anywhere
  slug: anywhere
  alternatives: [elsewhere]
  slurm: {{{FREE.replace("batch", "gpu")}}}
  command: {command}
- display_name: Elsewhere
  slug: elsewhere
  slurm: {{{FREE}}}
  command: {command}
"""


OF_RIVAL = """script=$(cat)
case $script in *"--partition=batch"*) {lines} ;; esac
printf %s "$script" | "$real" "$@"
"""
"""An sbatch that runs these lines for the job beside, and else is Slurm's own."""
LATE = OF_RIVAL.format(lines="sleep 6")
WITHOUT_ANSWER = OF_RIVAL.format(lines='printf %s "$script" | "$real" "$@"; sleep 8; exit 1')
REFUSED = OF_RIVAL.format(
    lines="echo 'sbatch: error: QOSMaxSubmitJobPerUserLimit' >&2; echo 'sbatch: error: Batch job submission failed: "
    "Job violates accounting/QOS policy (job submit limit, user size and/or time limits)' >&2; exit 1"
)


@dataclass(frozen=True)
class OwnJob:
    """A job of a user's servers, as Slurm has it on record."""

    job_id: str
    partition: str
    state: str
    submitted: str
    ended: str


@dataclass(frozen=True)
class Site:
    """A hub whose commands can be changed, and the file in which each server has written down its job."""

    hub: HubProcess
    slurm: PrivateSlurm
    bin: Path
    seen: Path

    def change(self, **changed: str) -> None:
        """Give the hub these commands."""
        commands(self.bin, self.slurm.bin_dir, changed)

    def jobs(self, user: str) -> list[OwnJob]:
        """All jobs of a user's servers, in the order of their submission."""
        lines = self.slurm.run("squeue", "-h", "-t", "all", "-o", "%i|%P|%T|%V|%e|%k").splitlines()
        rows = [row for row in (line.split("|") for line in lines) if len(row) == 6 and f"/{user}/" in row[5]]

        ended = ("CANCELLED", "COMPLETED", "FAILED", "NODE_FAIL", "TIMEOUT")

        jobs = [OwnJob(row[0], row[1], row[2], row[3], row[4] if row[2] in ended else NEVER) for row in rows]
        return sorted(jobs, key=lambda job: int(job.job_id))

    def servers(self, user: str) -> list[str]:
        """The jobs in which a server of this user was run."""
        lines = self.seen.read_text().splitlines() if self.seen.exists() else []
        return [job for job, _, name in (line.partition(" ") for line in lines) if name == user]

    def contest(self, user: str) -> dict[str, object]:
        """What is stored of a user's two jobs."""
        contest: dict[str, object] = stored(self.hub, user).get("contest", {})
        return contest

    def rival(self, user: str) -> dict[str, object]:
        """What is stored of the job beside."""
        rival = self.contest(user).get("rival")
        return rival if isinstance(rival, dict) else {}


def at_once(jobs: list[OwnJob]) -> int:
    """How many of these jobs there were at the same time, at most."""
    return max(
        (sum(job.submitted <= at < job.ended for job in jobs) for at in (job.submitted for job in jobs)), default=0
    )


@pytest.fixture(scope="module")
def site(start_light_hub: StartHub, slurm_cluster: PrivateSlurm, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The hub with its profiles."""
    folder = tmp_path_factory.mktemp("whichever")
    folder.chmod(0o777)
    bin_dir = commands(folder / "bin", slurm_cluster.bin_dir, {})
    lines = f"{CONFIG}\nc.GPUSlurmSpawner.slurm_bin_dir = {str(bin_dir)!r}"
    hub = start_light_hub(lines, profiles(folder / "seen"))
    return Site(hub, slurm_cluster, bin_dir, folder / "seen")


def test_what_is_free_runs_the_server_and_the_job_that_waited_is_cancelled(site: Site, holder: str) -> None:
    """The server is that of the accepted profile, and everything of the other one is gone."""
    start(site.hub, "ada", "node", alternatives="light")
    site.hub.wait("ada", ready=True)
    wait_until(lambda: not site.rival("ada"), site.hub.log_end)
    jobs = site.jobs("ada")

    assert [(job.partition, job.state) for job in jobs] == [("gpu", "CANCELLED"), ("batch", "RUNNING")]
    assert site.servers("ada") == [jobs[1].job_id]
    assert environment(site.hub, "ada")["JUPYTERHUB_DEFAULT_URL"] == "/lab/light"
    state = stored(site.hub, "ada")
    assert (state["profile"], state["job_id"], state["contest"]) == ("light", jobs[1].job_id, {"decided": True})

    site.hub.end("ada")


@dataclass(frozen=True)
class Moment:
    """A moment at which the hub is killed, or Slurm falls silent."""

    accepted: str
    """The profile that is accepted as well."""
    changed: Mapping[str, str]
    """Commands of the hub until then."""
    reached: Callable[[Site, str], object]
    """Whether it is there, for this user."""
    lost: bool = False
    """The job beside is lost with the hub."""


def _beside(site: Site, user: str) -> bool:
    return len(site.jobs(user)) == 2


MOMENTS = {
    "stored": Moment("light", {"sbatch": LATE}, lambda site, user: site.rival(user), lost=True),
    "submitted": Moment("light", {"sbatch": WITHOUT_ANSWER}, _beside, lost=True),
    "beside": Moment("slow", {}, lambda site, user: site.rival(user).get("job_id")),
    "decided": Moment("light", {}, lambda site, user: site.contest(user).get("decided")),
    "cancelling": Moment(
        "light", {"scancel": "sleep 60"}, lambda site, user: (site.hub.server(user) or {}).get("ready")
    ),
}
"""The job beside is stored and not submitted; it is submitted, and the hub has no id; it runs, and has not asked; it is
stored which one runs the server; the other one cannot be cancelled."""


def assert_one_server_and_two_jobs(site: Site, user: str) -> None:
    """The server runs, in one job; there were never more than two, and the one that waited kept its place till then."""
    site.hub.wait(user, ready=True)
    wait_until(lambda: not site.rival(user), site.hub.log_end)
    wait_until(lambda: sum(job.ended == NEVER for job in site.jobs(user)) == 1, lambda: site.jobs(user))
    jobs = site.jobs(user)
    running = [job for job in jobs if job.state == "RUNNING"]

    assert len(running) == 1, jobs
    assert site.servers(user) == [running[0].job_id], jobs
    assert stored(site.hub, user)["job_id"] == running[0].job_id
    assert at_once(jobs) <= 2, jobs
    assert jobs[0] == running[0] or jobs[0].ended >= running[0].submitted, jobs
    assert all(job.ended < running[0].ended for job in jobs if job != running[0])


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_hub_that_is_killed_at_any_moment_comes_back_to_one_server(site: Site, holder: str, moment: str) -> None:
    """Nothing of the two jobs is lost, and none is left over."""
    user, at = f"killed-{moment}", MOMENTS[moment]
    site.change(**at.changed)
    start(site.hub, user, "node", alternatives=at.accepted)
    wait_until(lambda: at.reached(site, user), site.hub.log_end)
    site.hub.kill()
    site.change()
    site.hub.start()
    if at.lost:  # nothing is submitted in its place, and the one that waited still has its own
        wait_until(lambda: not site.rival(user), site.hub.log_end)
        time.sleep(5)
        assert (site.hub.server(user) or {}).get("pending") == "spawn"
        site.slurm.run("scancel", holder)

    assert_one_server_and_two_jobs(site, user)
    assert stored(site.hub, user)["profile"] == ("node" if at.lost else at.accepted)
    site.hub.end(user)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_slurm_that_is_silent_at_any_moment_changes_nothing_of_that(site: Site, holder: str, moment: str) -> None:
    """What was under way is made sure of once it answers."""
    user, at = f"silent-{moment}", MOMENTS[moment]
    site.change(**at.changed)
    start(site.hub, user, "node", alternatives=at.accepted)
    wait_until(lambda: at.reached(site, user), site.hub.log_end)
    with hanging(site.slurm):
        time.sleep(8)
    site.change()

    assert_one_server_and_two_jobs(site, user)
    site.hub.end(user)


def test_of_two_jobs_that_wait_for_a_hub_that_is_down_one_runs_the_server(site: Site, holder: str) -> None:
    """Both have their nodes when it is back: the first that asks wins, and the other one ends before its server."""
    start(site.hub, "both", "node", alternatives="slow")
    wait_until(lambda: site.rival("both").get("job_id"), site.hub.log_end)
    site.hub.kill()
    site.slurm.run("scancel", holder)
    wait_until(lambda: [job.state for job in site.jobs("both")] == ["RUNNING"] * 2, lambda: site.jobs("both"))
    time.sleep(8)  # the second one's own lines have ended, too
    assert site.servers("both") == []
    site.hub.start()

    assert_one_server_and_two_jobs(site, "both")
    site.hub.end("both")


def test_the_job_that_waited_runs_the_server_where_it_comes_first(site: Site, holder: str) -> None:
    """The one beside has a node, and has not asked."""
    start(site.hub, "first", "node", alternatives="slow")
    wait_until(lambda: site.rival("first").get("job_id"), site.hub.log_end)
    site.slurm.run("scancel", holder)

    assert_one_server_and_two_jobs(site, "first")
    assert stored(site.hub, "first")["profile"] == "node"
    site.hub.end("first")


def test_a_job_that_is_submitted_when_the_other_one_runs_the_server_is_cancelled(site: Site, holder: str) -> None:
    """The one that waited asks while sbatch still runs for the one beside."""
    site.change(sbatch=LATE)
    start(site.hub, "overtaken", "node", alternatives="light")
    wait_until(lambda: site.rival("overtaken"), site.hub.log_end)
    site.slurm.run("scancel", holder)
    site.hub.wait("overtaken", ready=True)
    time.sleep(7)  # sbatch has ended
    site.change()

    assert_one_server_and_two_jobs(site, "overtaken")
    assert stored(site.hub, "overtaken")["profile"] == "node"
    site.hub.end("overtaken")


def test_a_limit_on_submitted_jobs_is_no_failure_of_the_one_that_waits(site: Site, holder: str) -> None:
    """It waits on, and starts when its node is free."""
    site.change(sbatch=REFUSED)
    start(site.hub, "limited", "node", alternatives="light")
    wait_until(lambda: "Nothing is submitted beside job" in site.hub.log.read_text(), site.hub.log_end)
    wait_until(lambda: not site.rival("limited"), site.hub.log_end)
    assert (site.hub.server("limited") or {}).get("pending") == "spawn"
    site.slurm.run("scancel", holder)
    site.hub.wait("limited", ready=True)
    site.change()

    assert [(job.partition, job.state) for job in site.jobs("limited")] == [("gpu", "RUNNING")]
    site.hub.end("limited")


def test_a_stop_cancels_both_jobs(site: Site, holder: str) -> None:
    """None of them runs a server."""
    start(site.hub, "stopped", "node", alternatives="slow")
    wait_until(lambda: site.rival("stopped").get("job_id"), site.hub.log_end)
    site.hub.end("stopped")
    wait_until(lambda: [job.state for job in site.jobs("stopped")] == ["CANCELLED"] * 2, lambda: site.jobs("stopped"))

    assert site.servers("stopped") == []


def test_what_is_accepted_can_be_said_while_waiting(site: Site, holder: str) -> None:
    """On the page of the server that waits, by whose choice it is; the page says what was submitted beside."""
    start(site.hub, "later", "node")
    person = Visitor(site.hub, "later")

    def boxes() -> list[str]:
        form = person.pending().soup.select("#gpuspawner-alternatives input[type=checkbox]")
        return [str(box["value"]) for box in form]

    wait_until(lambda: boxes() == ["light", "slow"], site.hub.log_end)
    assert len(site.jobs("later")) == 1
    assert person.click("/hub/gpuspawner/alternatives/later", alternatives="node").status_code == 400
    assert person.click("/hub/gpuspawner/alternatives/later", alternatives="slow").ok
    wait_until(lambda: site.rival("later").get("job_id"), site.hub.log_end)
    page = person.pending().soup.get_text()
    assert "Takes its time before its server is free. A job for it was submitted as well" in page

    assert_one_server_and_two_jobs(site, "later")
    assert stored(site.hub, "later")["profile"] == "slow"
    site.hub.end("later")


@pytest.mark.parametrize(
    ("user", "refused", "partitions"), [("either", "none", "gpu,batch"), ("refused", "gpu,batch", "gpu")]
)
def test_choices_that_differ_by_partition_alone_are_one_job(
    site: Site, user: str, refused: str, partitions: str
) -> None:
    """Slurm takes the first that is free; where it refuses several partitions, the job has its own alone."""
    scripts = site.seen.with_name(f"scripts-{user}")
    refusing = f'case $script in *"--partition={refused}"*) echo "sbatch: error: no" >&2; exit 1 ;; esac'
    lines = f'script=$(cat)\nprintf "%s\\n" "$script" >{scripts}\n{refusing}\nprintf "%s" "$script" | "$real" "$@"'
    site.change(sbatch=lines)
    start(site.hub, user, "anywhere", alternatives="elsewhere")
    site.hub.wait(user, ready=True)
    site.change()

    assert f"#SBATCH --partition={partitions}\n" in scripts.read_text()
    assert len(site.jobs(user)) == 1
    assert site.servers(user) == [site.jobs(user)[0].job_id]
    site.hub.end(user)
