"""A site whose plugins rewrite jobs (job_submit/lua, cli_filter/lua) and give each a /tmp of its own (SPANK)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.demo.slurm_cluster import DEMO_CLUSTER, ClusterDescription, SimulatedPartition
from tests.fixtures.hubs import COMMAND, offer, start_hub
from tests.fixtures.slurm import ChangedSlurm
from tests.hub.servers import environment, in_the_end, job_id, start
from tests.hub.visitor import Visitor
from tests.nightly.sites.main_job import CONFIG, MainJob, Site, profiles
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

SOURCE = Path(__file__).parents[2] / "standins" / "spank" / "private_tmp.c"
CLUSTER = ClusterDescription(
    nodes=tuple(node for node in DEMO_CLUSTER.nodes if node.name in ("g1", "c1")),
    partitions=(
        SimulatedPartition("gpu", ("g1",)),
        SimulatedPartition("night", ("g1",)),
        SimulatedPartition("closed", ("c1",)),
        SimulatedPartition("frozen", ("c1",)),
        SimulatedPartition("batch", ("c1",), default=True),
    ),
    name="plugins",
)
JOB_SUBMIT = """
function slurm_job_submit(desc, parts, uid)
   if desc.partition == "closed" then
      slurm.log_user("Your project p1234 has used its hours for November.")
      slurm.log_user("They are renewed on the 1st of December.")
      slurm.log_user("Questions: hpc-support@example.org")
      return slurm.ERROR
   end
   desc.comment = "charged to p1234"
   if desc.partition == "gpu" then
      desc.partition = "night"
      desc.time_limit = math.min(desc.time_limit, 8)
      slurm.log_user("Your job goes to the partition night, for at most 8 minutes.")
   elseif desc.partition == "batch" then
      desc.name = "p1234"
   end
   return slurm.SUCCESS
end
function slurm_job_modify(desc, job, parts, uid)
   return slurm.SUCCESS
end
"""
"""All jobs are charged to a project by their comment. In the partition gpu they get another one, and less time; in the
partition batch another name; the partition closed is closed."""
CLI_FILTER = """
function slurm_cli_setup_defaults(options, early)
   return slurm.SUCCESS
end
function slurm_cli_pre_submit(options, offset)
   slurm.log_info("The cluster is down for maintenance on Monday.")
   if options["partition"] == "frozen" then
      slurm.log_error("The partition frozen thaws on Monday.")
      return slurm.ERROR
   end
   return slurm.SUCCESS
end
function slurm_cli_post_submit(offset, job, step)
   return slurm.SUCCESS
end
"""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder outside of /tmp and /var/tmp, since each job has its own."""
    if os.geteuid() != 0 or not shutil.which("gcc") or not Path("/usr/include/slurm/spank.h").exists():
        pytest.skip("needs root for mounts, gcc, and Slurm's header files (libslurm-dev) of the same version")
    path = Path(tempfile.mkdtemp(prefix="gpus-", dir="/srv"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def site(needs_slurm: None, folder: Path) -> Iterator[Site]:
    """Slurm with the three plugins; the profiles ask for the partition gpu."""
    plugin = folder / "private_tmp.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", plugin, SOURCE], check=True)
    (folder / "private").mkdir()
    files = {
        "job_submit.lua": JOB_SUBMIT,
        "cli_filter.lua": CLI_FILTER,
        "plugstack.conf": f"required {plugin} {folder}/private\n",
    }
    lines = "JobSubmitPlugins=lua\nCliFilterPlugins=lua\nPlugStackConfig={folder}/plugstack.conf\n"
    with ExitStack() as stack:
        slurm = stack.enter_context(ChangedSlurm(CLUSTER, folder / "slurm", lambda conf: conf + lines, files))
        hub = start_hub(stack, slurm, folder / "hub", lines=CONFIG, profiles=profiles())
        yield Site(hub, slurm, partition="night")


class TestMainJob(MainJob):
    """The main job."""


CLAIM = f"""
- {{display_name: Claims, slug: claims, command: {COMMAND}, placement: {{claim: 1}},
   slurm: {{partition: night, gpus: 2, gpu_type: k80, cpus: 1, memory: 300M, time: "0:10:00"}}}}
"""
MORE = CLAIM + "".join(
    f"""
- {{display_name: In {partition}, slug: {partition}, command: {COMMAND},
   slurm: {{partition: {partition}, cpus: 1, memory: 300M, time: "0:10:00"}}}}
"""
    for partition in ("closed", "frozen", "batch")
)


@pytest.fixture(scope="module")
def more(site: Site) -> None:
    """Servers are offered in partitions that plugins close, and in the one in which they rename jobs."""
    offer(site.hub, "more", MORE)


REFUSALS = {
    "closed": "Your project p1234 has used its hours for November. They are renewed on the 1st of December. "
    "Questions: hpc-support@example.org.",
    "frozen": "The partition frozen thaws on Monday.",
}


@pytest.mark.usefixtures("more")
@pytest.mark.parametrize(("partition", "words"), REFUSALS.items())
def test_what_a_plugin_refuses_with_is_read_as_the_site_wrote_it(site: Site, partition: str, words: str) -> None:
    """Each line, without what is announced at every submission; before the start, after it, and from `check`."""
    user = Visitor(site.hub, partition)
    options = {"user_options": {"profile": partition}}
    trial = site.hub.api("POST", f"/gpuspawner/trial/{partition}", options).json()
    start(site.hub, partition, partition)
    wait_until(lambda: "did not start" in user.pending().text, site.hub.log_end)
    findings = site.check("--submit", "--profile", partition, "--user", "ada")

    assert (trial["chance"], f"{trial['sentence']}.") == ("never", f"{words[0].lower()}{words[1:]}")
    assert re.match(f"Your server did not start .*{re.escape(words)} Choose something else", user.pending().text)
    refused = [finding["text"] for finding in findings if finding["code"] == "job-refused"]
    assert refused == [f"the job was not submitted: Slurm refused the job: {words}"]


def test_time_and_partition_are_shown_as_the_plugin_has_set_them(site: Site) -> None:
    """Not as the profile asks for them."""
    user = Visitor(site.hub, "eve")
    site.hub.spawn("eve", {"profile": "main"})

    home = user.look("/hub/home").text
    assert re.search(r"\b[78] min left\b", home)
    assert "partition night" in home


def test_a_step_of_the_job_finds_the_launchers_files_which_the_node_itself_does_not_have(site: Site) -> None:
    """As `gpuspawner-run` in a notebook needs them: each step enters the job's own /tmp."""
    job, variables = job_id(site.hub, "eve"), environment(site.hub, "eve")
    archive = Path(variables["GPUSPAWNER_LAUNCHER"])

    step = site.slurm.run("srun", "--overlap", f"--jobid={job}", "--mem=0", "ls", str(archive), timeout=60)
    assert (step, archive.is_relative_to("/tmp"), archive.exists()) == (str(archive), True, False)
    site.hub.end("eve")


@pytest.mark.usefixtures("more")
def test_a_server_whose_job_has_neither_comment_nor_name_of_ours_is_kept_and_stopped(site: Site) -> None:
    """The hub has its id, and knows whose it is. The hub's log says once what the plugin takes away."""
    site.hub.spawn("fay", {"profile": "batch"})
    job = job_id(site.hub, "fay")
    named = site.slurm.run("squeue", "-h", "-j", job, "-o", "%k|%j")
    site.hub.restart()
    site.hub.wait("fay", ready=True)
    job_after_restart = job_id(site.hub, "fay")
    site.hub.end("fay")

    assert (named, job_after_restart, in_the_end(site.slurm, job)) == ("charged to p1234|p1234", job, "CANCELLED")


@pytest.mark.usefixtures("more")
def test_where_claims_of_others_cannot_be_seen_a_server_gets_no_gpu(site: Site) -> None:
    """Two servers would use the same one: the locks are in /var/tmp."""
    placement = site.hub.spawn("kim", {"profile": "claims"})
    site.hub.end("kim")

    source = r"/srv/gpus-\w+/private/[0-9]+/var_tmp"
    problem = rf"No GPU was claimed: the claims folder /var/tmp is this job's alone, .* mounts {source} there\)\."
    assert placement["gpus"] == []
    assert [text for text in placement["problems"] if re.fullmatch(problem, text)], placement["problems"]


@pytest.mark.usefixtures("more")
@pytest.mark.parametrize(
    ("profile", "texts"),
    [
        (
            "main",
            [
                "Slurm shows the comment 'charged to p1234', not the one that the job was submitted with; jobs are "
                "found again by their name instead.",
                "Slurm put the job into partition night, and it asked for gpu: the form shows what is free in a "
                "partition where servers do not run.",
            ],
        ),
        (
            "batch",
            [
                "Slurm shows the comment 'charged to p1234' and the name 'p1234', not those of the job: a job whose id "
                "is lost cannot be found again.",
            ],
        ),
    ],
)
def test_check_with_a_job_says_what_plugins_change(site: Site, profile: str, texts: list[str]) -> None:
    """And that the rest is in order."""
    findings = site.check("--submit", "--profile", profile, "--user", "ada")

    changed = [finding["text"] for finding in findings if finding["code"] == "job-changed"]
    assert changed == texts, findings
    assert [finding["severity"] for finding in findings if finding["code"] == "job-ran"] == ["ok"], findings
