"""sbatch's answer is lost, malformed or forged, or a plugin replaces the job's comment: no job is lost or mistaken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import DEMO_CLUSTER, PrivateSlurm
from tests.fixtures.hubs import StartHub, start_hub
from tests.hub.commands import commands
from tests.hub.test_cancelled_starts import alive
from tests.hub.test_life import in_the_end, start, state, stored
from tests.hub.visitor import Visitor
from tests.waiting import true_within, wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

CONFIG = """
c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 0}
from jupyterhub_gpuspawner.slurm import watcher
watcher.ACTIVE_INTERVAL = 0.5
c.GPUSlurmSpawner.slurm_bin_dir = BIN
"""
ODD: dict[str, str] = {
    "says more than the id": '"$real" "$@"; echo "Have a nice day."',
    "says a number after the id": '"$real" "$@"; echo "Credits left:"; echo "12 of 300"',
    "fails after it has submitted": '"$real" "$@"; echo "submit: the mail was not sent" >&2; exit 3',
    "is killed after it has submitted": '"$real" "$@" >/dev/null; kill -9 $$',
}
"""What a site's own sbatch does, as shell lines."""


@dataclass(frozen=True)
class OddSite:
    """A hub, and the folder of the commands that it runs."""

    hub: HubProcess
    slurm: PrivateSlurm
    folder: Path

    def change(self, changed: Mapping[str, str]) -> Callable[[], str]:
        """Give the hub these commands; return a function that reads what it has logged since then."""
        commands(self.folder, self.slurm.bin_dir, changed)
        logged = len(self.hub.log.read_text())
        return lambda: self.hub.log.read_text()[logged:]


@pytest.fixture(scope="module")
def site(
    start_light_hub: StartHub, slurm_cluster: PrivateSlurm, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OddSite]:
    """One hub for all tests that change nothing but the commands."""
    folder = commands(tmp_path_factory.mktemp("odd") / "bin", slurm_cluster.bin_dir, {})
    hub = start_light_hub(lines=CONFIG.replace("BIN", repr(str(folder))))
    yield OddSite(hub, slurm_cluster, folder)
    hub.stop()


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
def test_a_job_whose_sbatch_answered_oddly_becomes_the_persons_server(site: OddSite, odd: str) -> None:
    """The job is found at once by its comment, and the user's server runs in it; there is no second job."""
    log = site.change({"sbatch": odd})

    job = site.hub.spawn("una", {"profile": "light"})["job_id"]

    assert [line.partition("|")[0] for line in alive(site.slurm)] == [job]
    assert f"sbatch failed, but created job {job}, which is used" in log()

    site.hub.end("una")
    wait_until(lambda: not alive(site.slurm), lambda: (alive(site.slurm), site.hub.log_end()))


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
def test_a_job_whose_sbatch_answered_oddly_and_that_is_seen_late_is_cancelled(site: OddSite, odd: str) -> None:
    """squeue takes a second, so the user sees that the start has failed, and the job is cancelled."""
    log = site.change({"sbatch": odd, "squeue": 'sleep 1; exec "$real" "$@"'})
    start(site.hub, "ute", "light")
    site.hub.wait("ute", ready=False)

    wait_until(lambda: ": cancelling it" in log(), site.hub.log_end)
    wait_until(lambda: not alive(site.slurm), lambda: (alive(site.slurm), site.hub.log_end()))


@pytest.mark.users
def test_a_neighbours_job_with_the_starts_comment_is_not_taken_for_the_persons(
    site: OddSite, two_users: tuple[str, str], tmp_path: Path
) -> None:
    """sbatch times out without submitting; a neighbour who has seen the comment has a job with the same comment."""
    forge = f"""
script=$(cat)
comment=$(sed -n 's/^#SBATCH --comment="\\(.*\\)"$/\\1/p' <<<"$script")
"$real" --parsable --uid={two_users[1]} -p batch -c 1 --mem=50M --output=/dev/null --chdir=/ \
    --comment="$comment" --wrap="sleep 600" >{tmp_path}/forged.part
mv {tmp_path}/forged.part {tmp_path}/forged
echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2
exit 1
"""
    hub = site.hub
    log = site.change({"sbatch": forge})
    visitor = Visitor(hub, "vera")
    start(hub, "vera", "light")
    hub.wait("vera", ready=False)
    forged = (tmp_path / "forged").read_text().strip()

    page = visitor.pending()
    assert (page.status, "Slurm is not responding" in page.text) == (503, True)
    assert "sbatch failed: slurmctld is not responding." in log()
    assert "job_id" not in stored(hub, "vera")
    assert not true_within(8, lambda: state(site.slurm, forged) not in ("PENDING", "RUNNING"))
    assert f"job {forged}" not in log()

    site.slurm.run("scancel", forged)


PLUGIN = """
function slurm_job_submit(job, partitions, uid)
    job.comment = "project 7"
    return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, uid)
    return slurm.SUCCESS
end
"""


@pytest.fixture
def slurm_with_a_plugin(needs_slurm: None, public_folder: Path, tmp_path: Path) -> Iterator[PrivateSlurm]:
    """A Slurm whose job_submit plugin (in Lua) replaces every comment with the site's own."""
    with PrivateSlurm(DEMO_CLUSTER, public_folder / f"plugin-{tmp_path.name[-20:]}") as slurm:
        (slurm.conf.parent / "job_submit.lua").write_text(PLUGIN)
        slurm.conf.write_text(f"{slurm.conf.read_text()}JobSubmitPlugins=lua\n")
        try:
            slurm.restart_controller()
        except Exception as error:  # noqa: BLE001 - a Slurm without Lua does not start with this plugin
            pytest.skip(f"no job_submit/lua: {error}")
        yield slurm


def test_where_a_plugin_replaces_comments_jobs_are_found_by_their_names(
    slurm_with_a_plugin: PrivateSlurm, tmp_path: Path
) -> None:
    """A server starts, survives a hub restart and stops; an orphaned job is cancelled; one warning is logged."""
    slurm, answered = slurm_with_a_plugin, tmp_path / "answered"
    slow_answer = f'"$real" "$@" >{answered}.part; mv {answered}.part {answered}; sleep 20; cat {answered}'
    slow = commands(tmp_path / "slow", slurm.bin_dir, {"sbatch": slow_answer})
    odd = commands(tmp_path / "odd", slurm.bin_dir, {"sbatch": ODD["is killed after it has submitted"]})
    with ExitStack() as stack:
        hub = start_hub(stack, slurm, tmp_path / "hub", lines=CONFIG.replace("BIN", repr(slurm.bin_dir)))
        job = hub.spawn("kept", {"profile": "light"})["job_id"]
        hub.spawn("second", {"profile": "light"})
        hub.end("second")

        assert slurm.run("squeue", "-h", "-j", job, "-o", "%k") == "project 7"
        assert hub.log.read_text().count("something replaces comments") == 1

        config = hub.config.read_text()
        hub.config.write_text(f"{config}c.GPUSlurmSpawner.slurm_bin_dir = {str(odd)!r}\n")
        hub.restart()
        found = hub.spawn("odd", {"profile": "light"})["job_id"]
        hub.config.write_text(f"{config}c.GPUSlurmSpawner.slurm_bin_dir = {str(slow)!r}\n")
        hub.restart()
        start(hub, "una", "light")
        wait_until(answered.exists, hub.log_end)
        lost = answered.read_text().strip()
        hub.restart()

        assert in_the_end(slurm, lost) == "CANCELLED"
        assert [state(slurm, each) for each in (job, found)] == ["RUNNING", "RUNNING"]
        hub.wait("kept", ready=True)
        hub.wait("odd", ready=True)

        hub.end("kept")

        assert in_the_end(slurm, job) == "CANCELLED"
