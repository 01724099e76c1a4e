"""sbatch's answer is lost, malformed or forged, or a plugin replaces the job's comment: no job is lost or mistaken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.demo.slurm_cluster import DEMO_CLUSTER, PrivateSlurm
from tests.fixtures.hubs import start_hub
from tests.hub.commands import OddSite, commands
from tests.hub.servers import alive, in_the_end, start, state, stored
from tests.hub.visitor import Visitor
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

CONFIG = """
c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 0}
from jupyterhub_gpuspawner.slurm import watcher
watcher.ACTIVE_INTERVAL = 0.5
from jupyterhub_gpuspawner.hub import lost_jobs
lost_jobs.CONFIRMED_AFTER = 1.0
c.GPUSlurmSpawner.slurm_bin_dir = BIN
"""
ODD: dict[str, str] = {
    "says a number after the id": '"$real" "$@"; echo "Credits left:"; echo "12 of 300"',
    "fails after it has submitted": '"$real" "$@"; echo "submit: the mail was not sent" >&2; exit 3',
    "is killed after it has submitted": '"$real" "$@" >/dev/null; kill -9 $$',
}
"""What a site's own sbatch does, as shell lines."""


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
def test_a_job_whose_sbatch_answered_oddly_becomes_the_persons_server(odd_site: OddSite, odd: str) -> None:
    """The job is found at once by its comment, and the user's server runs in it; there is no second job."""
    log = odd_site.change({"sbatch": odd})

    job = odd_site.hub.spawn("una", {"profile": "light"})["job_id"]

    assert [line.partition("|")[0] for line in alive(odd_site.slurm)] == [job]
    assert f"sbatch failed, but created job {job}, which is used" in log()

    odd_site.hub.end("una")
    wait_until(lambda: not alive(odd_site.slurm), lambda: (alive(odd_site.slurm), odd_site.hub.log_end()))


def test_a_job_whose_sbatch_answered_oddly_and_that_is_seen_late_is_cancelled(odd_site: OddSite) -> None:
    """squeue takes a second, so the user sees that the start has failed, and the job is cancelled."""
    log = odd_site.change({"sbatch": ODD["fails after it has submitted"], "squeue": 'sleep 1; exec "$real" "$@"'})
    start(odd_site.hub, "ute", "light")
    odd_site.hub.wait("ute", ready=False)

    wait_until(lambda: ": cancelling it" in log(), odd_site.hub.log_end)
    wait_until(lambda: not alive(odd_site.slurm), lambda: (alive(odd_site.slurm), odd_site.hub.log_end()))


@pytest.mark.users
def test_a_neighbours_job_with_the_starts_comment_is_not_taken_for_the_persons(
    odd_site: OddSite, two_users: tuple[str, str], tmp_path: Path
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
    hub = odd_site.hub
    query_log = tmp_path / "asked"
    log = odd_site.change({"sbatch": forge, "squeue": f'echo >>{query_log}; exec "$real" "$@"'})
    visitor = Visitor(hub, "vera")
    start(hub, "vera", "light")
    hub.wait("vera", ready=False)
    before = len(query_log.read_text())
    forged = (tmp_path / "forged").read_text().strip()

    page = visitor.pending()
    assert (page.status, "Slurm is not responding" in page.text) == (503, True)
    assert "sbatch failed: slurmctld is not responding." in log()
    assert "job_id" not in stored(hub, "vera")
    # it looks for a job of the start twice more: with the second question the first answer has been dealt with
    wait_until(lambda: len(query_log.read_text()) >= before + 2, hub.log_end)
    assert state(odd_site.slurm, forged) in ("PENDING", "RUNNING")
    assert f"job {forged}" not in log()

    odd_site.slurm.run("scancel", f"--user={two_users[1]}")


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


@pytest.mark.nightly
def test_where_a_plugin_replaces_comments_jobs_are_found_by_their_names(
    slurm_with_a_plugin: PrivateSlurm, tmp_path: Path
) -> None:
    """A server starts, survives a hub restart and stops; an orphaned job is cancelled; one warning is logged."""
    slurm, answered = slurm_with_a_plugin, tmp_path / "answered"
    folder = commands(tmp_path / "bin", slurm.bin_dir, {})
    with ExitStack() as stack:
        hub = start_hub(stack, slurm, tmp_path / "hub", lines=CONFIG.replace("BIN", repr(str(folder))))
        site = OddSite(hub, slurm, folder)
        job = hub.spawn("kept", {"profile": "light"})["job_id"]
        hub.spawn("second", {"profile": "light"})
        hub.end("second")

        assert slurm.run("squeue", "-h", "-j", job, "-o", "%k") == "project 7"
        assert hub.log.read_text().count("something replaces comments") == 1

        site.change({"sbatch": ODD["is killed after it has submitted"]})
        odd_job = hub.spawn("odd", {"profile": "light"})["job_id"]
        late_answer = f'"$real" "$@" >{answered}.part; mv {answered}.part {answered}; sleep 20; cat {answered}'
        site.change({"sbatch": late_answer})
        start(hub, "una", "light")
        wait_until(answered.exists, hub.log_end)
        lost = answered.read_text().strip()
        hub.restart()

        assert in_the_end(slurm, lost) == "CANCELLED"
        assert [state(slurm, number) for number in (job, odd_job)] == ["RUNNING", "RUNNING"]
        hub.wait("kept", ready=True)
        hub.wait("odd", ready=True)

        hub.end("kept")

        assert in_the_end(slurm, job) == "CANCELLED"
