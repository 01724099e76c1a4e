"""A start that is cancelled at any moment leaves no job, however slow Slurm is."""

from __future__ import annotations

import itertools
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from jupyterhub_gpuspawner.demo.hub import server_path
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from jupyterhub_gpuspawner.hub.lost_jobs import state_job_ids
from tests.fixtures.hubs import COMMAND, offer
from tests.hub.commands import OddSite, slow
from tests.hub.servers import alive, start, stored
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

TIMED = "".join(
    f"""
- display_name: {seconds} seconds
  slug: within-{seconds}
  slurm: {{partition: batch, cpus: 1, memory: 100M, time: "0:10:00"}}
  start_timeout: {seconds}
  environment: {{setup: "sleep 60"}}
  command: {COMMAND}
"""
    for seconds in (1, 2, 3, 4, 5)
)
SLOW: dict[str, tuple[dict[str, str], float]] = {
    "Slurm is quick": ({}, 0.1),
    "everything takes its time": (
        {"sbatch": slow(0.3, 0.7), "squeue": slow(0.3, 0.2), "scontrol": slow(0.5), "scancel": slow(0.3)},
        0.25,
    ),
    "sbatch answers late": ({"sbatch": slow(0.0, 5.0)}, 0.4),
    "sbatch begins late": ({"sbatch": slow(5.0)}, 0.4),
    "squeue and scontrol are dead": ({"squeue": "sleep 60", "scontrol": "exit 1"}, 0.2),
}
"""Changes to Slurm's commands, and the seconds between two moments at which starts are cancelled."""
OF_THE_GATE = "everything takes its time"
MOMENTS = 16
_COUNT = itertools.count()


def submitting(slurm: PrivateSlurm) -> bool:
    """Whether an sbatch for this Slurm is running, by which a job may still come."""
    return any(
        process.info["name"] == "sbatch"
        and (process.info["environ"] or {}).get("SLURM_CONF") == slurm.environment["SLURM_CONF"]
        for process in psutil.process_iter(["name", "environ"])
    )


@pytest.mark.parametrize(
    ("changed", "step"),
    [
        pytest.param(*how, id=name, marks=() if name == OF_THE_GATE else pytest.mark.nightly)
        for name, how in SLOW.items()
    ],
)
def test_a_start_that_is_stopped_at_any_moment_leaves_no_job(
    odd_site: OddSite, changed: dict[str, str], step: float
) -> None:
    """Sixteen starts, each stopped a little later than the one before: no job or state is left, and all can restart."""
    hub = odd_site.hub
    odd_site.change(changed)
    users = [f"user{next(_COUNT)}" for _ in range(MOMENTS)]

    def give_up(user: str, seconds: float) -> None:
        start(hub, user, "light")
        time.sleep(seconds)
        answer = hub.api("DELETE", server_path(user))
        assert answer.status_code in (202, 204), answer.text
        hub.wait(user, ready=False)

    with ThreadPoolExecutor(MOMENTS) as threads:
        list(threads.map(give_up, users, [step * number for number in range(MOMENTS)]))

    leaves_nothing(odd_site, users)


def leaves_nothing(site: OddSite, users: list[str]) -> None:
    """Wait until there is no job of a server, and none may come; then no state of these users names one."""
    wait_until(lambda: not submitting(site.slurm))
    wait_until(lambda: not alive(site.slurm), lambda: (alive(site.slurm), site.hub.log_end()), seconds=60)
    assert [state_job_ids(stored(site.hub, user)) for user in users] == [set()] * len(users)


@pytest.mark.nightly
def test_a_start_that_takes_too_long_at_any_moment_leaves_no_job(odd_site: OddSite) -> None:
    """The timeout expires before sbatch runs, while it runs, after it has answered, and after the allocation."""
    offer(odd_site.hub, "timed", TIMED)
    odd_site.change({"sbatch": slow(1.5, 2.0), "squeue": slow(0.3), "scontrol": slow(4.0)})
    users = [f"late{seconds}" for seconds in (1, 2, 3, 4, 5)]
    for user in users:
        start(odd_site.hub, user, f"within-{user[-1]}")
    for user in users:
        odd_site.hub.wait(user, ready=False)

    leaves_nothing(odd_site, users)


def test_a_hub_that_is_killed_at_any_moment_of_a_start_finds_the_job_again(odd_site: OddSite) -> None:
    """The hub is killed while eight users start servers: afterwards each job belongs to its server or is cancelled."""
    hub, slurm = odd_site.hub, odd_site.slurm
    odd_site.change({"sbatch": slow(0.2, 1.0), "scontrol": slow(0.3)})
    users = [f"kill{number}" for number in range(8)]
    for user in users:
        start(hub, user, "light")
        time.sleep(0.35)

    hub.restart()

    def starts_complete() -> bool:
        """Whether every start has succeeded or failed, and the jobs are exactly those of the servers."""
        models = [hub.server(user) for user in users]
        if any(model and model["pending"] for model in models):
            return False
        jobs = [((model or {}).get("state") or {}).get("job_id") for model in models]
        return sorted(filter(None, jobs)) == sorted(line.partition("|")[0] for line in alive(slurm))

    wait_until(starts_complete, lambda: (alive(slurm), [hub.server(user) for user in users], hub.log_end()), seconds=90)
    there = [user for user in users if hub.server(user)]
    assert there, "no start had come so far that its server was taken up"
    assert len(there) < len(users), "no start was between sbatch and the database"

    for user in there:
        hub.end(user)
    wait_until(lambda: not alive(slurm))
