"""The small job of `gpuspawner check --submit`: what its log and Slurm's answers are taken to mean."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.check import run, submit
from jupyterhub_gpuspawner.check.finding import Finding, Options, Severity
from jupyterhub_gpuspawner.check.machine import START
from jupyterhub_gpuspawner.check.probe_job import ProbeJob
from jupyterhub_gpuspawner.check.submit import FollowedJob, findings_of, parse_log
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from jupyterhub_gpuspawner.site.configuration import load_site
from jupyterhub_gpuspawner.slurm.job import Job, Phase
from jupyterhub_gpuspawner.wire.documents import LaunchPlan

PROBE = ProbeJob(
    partition="gpu",
    requests=(),
    command="jupyterhub-singleuser",
    plan=LaunchPlan(),
    hub="http://10.0.0.10:8081/hub/api",
    ports=(20000, 20999),
    tag="jupyterhub-gpuspawner/jupyter/ada/#check-0123",
    name="jupyterhub-check-0123",
    word="0123",
    log_dir="/home/ada",
    home="/home/ada",
)
JOB = Job("7", Phase.RUNNING, "RUNNING", batch_host="g1", partition="gpu", tag=PROBE.tag, name=PROBE.name, user="ada")
LOG = """\
slurmstepd: a line of Slurm's
gpuspawner-check began {}
gpuspawner-check shell {"slug": "gpu"}
gpuspawner-check profile {"slug": "gpu"}
gpuspawner-check command {"slug": "gpu", "what": "jupyterhub-singleuser", "found": true}
gpuspawner-check launcher {}
gpuspawner-check unpacked {}
gpuspawner-check starts {}
gpuspawner: g1: GPUs 0; CPUs 0-3; memory default
gpuspawner-check python {"version": "3.11.2", "node": "g1"}
gpuspawner-check environment {"arrived": true, "sbatch": []}
gpuspawner-check hub {"reached": true, "status": 200, "hub": true}
gpuspawner-check port {"port": 20345, "tried": 1}
"""


def followed(log: str = LOG, **values: object) -> FollowedJob:
    """A job that ran, with this log."""
    whole = FollowedJob(PROBE, job_id="7", first=JOB, last=JOB, log=parse_log(log), back="")
    return replace(whole, **values)  # type: ignore[arg-type]


def changed_log(log: str, old: str, new: str) -> str:
    """The log with one part of it changed."""
    assert old in log
    return log.replace(old, new)


UNUSABLE = "cannot be used for the launcher"
PLACED, RAN = "ok job-placed: node g1", "ok job-ran: node g1"
CASES: dict[str, tuple[FollowedJob, list[str]]] = {
    "all is well": (followed(), [PLACED, RAN]),
    "the log's folder is missing": (
        followed("", last=replace(JOB, phase=Phase.ENDED, state="FAILED", exit_code="0:53")),
        ["error log-dir-missing: node g1"],
    ),
    "the log is on the node alone": (followed(""), ["warning job-log-unread: node g1"]),
    "the log may not be read": (followed("", log_is_readable=False), ["warning job-log-unread: node g1"]),
    "the queue is long": (
        followed("", first=replace(JOB, phase=Phase.QUEUED), last=replace(JOB, phase=Phase.QUEUED, reason="Resources")),
        ["warning job-pending: partition gpu"],
    ),
    "a Prolog that takes long": (
        followed(prolog=92.0, batch_start=10),
        ["warning prolog-long: node g1", PLACED, RAN],
    ),
    "a Prolog that the site allows for": (followed(prolog=92.0, batch_start=120), [PLACED, RAN]),
    "a Prolog that does not end": (
        followed("", last=replace(JOB, reason="Prolog"), prolog=118.0, batch_start=200),
        ["warning job-pending: node g1"],
    ),
    "no command": (
        followed(changed_log(LOG, '"jupyterhub-singleuser", "found": true', '"jupyterhub-singleuser", "found": false')),
        ["error command-missing: profile gpu", PLACED],
    ),
    "a module is missing": (
        followed(
            changed_log(
                LOG,
                'gpuspawner-check command {"slug": "gpu", "what": "jupyterhub-singleuser", "found": true}',
                'gpuspawner: module cuda/99 cannot be loaded\ngpuspawner-check setup {"slug": "gpu"}',
            )
        ),
        ["error environment-fails: profile gpu", PLACED],
    ),
    "a login profile that exits": (
        followed(
            changed_log(
                LOG,
                'gpuspawner-check profile {"slug": "gpu"}\n'
                'gpuspawner-check command {"slug": "gpu", "what": "jupyterhub-singleuser", "found": true}',
                'gpuspawner-check setup {"slug": "gpu"}',
            )
        ),
        ["error login-shell-ends: node g1", PLACED],
    ),
    "a login profile that runs fish instead, after a profile whose module is missing": (
        followed(
            changed_log(
                LOG,
                'gpuspawner-check command {"slug": "gpu", "what": "jupyterhub-singleuser", "found": true}',
                'gpuspawner: module cuda/99 cannot be loaded\ngpuspawner-check setup {"slug": "gpu"}\n'
                'gpuspawner-check shell {"slug": "other"}',
            )
        ),
        ["error login-shell-ends: node g1", "error environment-fails: profile gpu", PLACED],
    ),
    "a login profile that waits for an answer": (
        followed(LOG.partition("gpuspawner-check profile")[0], back=None),
        ["error login-shell-ends: node g1"],
    ),
    "a module that takes too long": (
        followed(LOG.partition("gpuspawner-check command")[0], back=None),
        ["error environment-fails: profile gpu"],
    ),
    "no container runtime": (
        followed(
            changed_log(
                LOG,
                '"what": "jupyterhub-singleuser", "found": true}',
                '"what": "jupyterhub-singleuser", "found": true}\n'
                'gpuspawner-check runtime {"slug": "lab", "what": "apptainer", "found": false}',
            )
        ),
        ["error container-missing: profile lab", PLACED],
    ),
    "no Python": (
        followed(
            LOG.partition("gpuspawner-check starts")[0]
            + "gpuspawner: no Python 3.9 or newer on g1; load a module that has one, or set GPUSPAWNER_PYTHON\n",
            back=None,
        ),
        ["error python-missing: node g1"],
    ),
    "the home is not mounted": (
        followed(changed_log(LOG, "gpuspawner-check profile", "gpuspawner-check no-home {}\ngpuspawner-check profile")),
        ["error home-missing: node g1", PLACED, RAN],
    ),
    "a TMPDIR that is full": (
        followed(
            changed_log(
                LOG,
                "gpuspawner-check unpacked",
                f"gpuspawner: /scratch {UNUSABLE}: No space left on device\ngpuspawner-check unpacked",
            )
        ),
        ["warning folder-full: node g1", PLACED],
    ),
    "a Python that does not start": (
        followed(
            changed_log(
                LOG,
                "gpuspawner-check starts",
                "gpuspawner: with PYTHONHOME=/opt python3 does not start: it is unset\ngpuspawner-check starts",
            )
        ),
        [PLACED, "warning job-placed: node g1", RAN],
    ),
    "variables do not arrive": (
        followed(changed_log(LOG, '"arrived": true, "sbatch": []', '"arrived": false, "sbatch": ["SBATCH_EXPORT"]')),
        ["error job-environment: node g1", "warning job-environment: node g1", PLACED],
    ),
    "a firewall before the hub": (
        followed(
            changed_log(LOG, '"reached": true, "status": 200, "hub": true', '"reached": false, "why": "timed out"')
        ),
        ["error hub-unreachable: node g1", PLACED],
    ),
    "another program at the hub's address": (
        followed(changed_log(LOG, '"status": 200, "hub": true', '"status": 404, "hub": false')),
        ["error hub-unreachable: node g1", PLACED],
    ),
    "a firewall before the nodes": (
        followed(back="no answer within 5 s"),
        ["error node-unreachable: node g1", PLACED],
    ),
    "all ports are taken": (
        followed(changed_log(LOG, '"port": 20345, "tried": 1', '"port": 0, "tried": 1000'), back=None),
        ["error ports-taken: node g1", PLACED],
    ),
    "a plugin writes its own comments": (
        followed(first=replace(JOB, tag="project 5")),
        ["warning job-changed: job 7", PLACED, RAN],
    ),
    "and its own names": (
        followed(first=replace(JOB, tag="project 5", name="job")),
        ["error job-changed: job 7", PLACED, RAN],
    ),
    "a plugin moves jobs": (
        followed(first=replace(JOB, partition="short")),
        ["warning job-changed: job 7", PLACED, RAN],
    ),
    "the job stays": (
        followed(not_cancelled="Access/permission denied"),
        ["error job-left: partition gpu", PLACED, RAN],
    ),
}


@pytest.mark.parametrize(("job", "expected"), CASES.values(), ids=CASES.keys())
def test_what_a_followed_job_means(job: FollowedJob, expected: list[str]) -> None:
    """Codes, places and severities, in order; a job that has what servers need is said to."""
    assert [f"{finding.severity.value} {finding.code}: {finding.where}" for finding in findings_of(job)] == expected


def test_a_log_cannot_write_to_the_terminal() -> None:
    """The user's job writes the log, so control characters in it are replaced."""
    job = followed('gpuspawner-check began {}\ngpuspawner-check hub {"reached": false, "why": "\\u001b[2J"}\n')

    assert [finding.text for finding in findings_of(job)] == [f"the hub is not reached at {PROBE.hub}:  [2J."]


def test_what_runs_on_the_node_is_of_the_standard_library() -> None:
    """Its source starts isolated, without this package, as in the job."""
    source = Path(submit.__file__).with_name("on_node.py").read_text()
    questions = '{"hub": "http://127.0.0.1:9/", "ports": [0, 0], "word": "0123", "seconds": 0}'
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", source, questions], capture_output=True, text=True, check=True
    )
    log = parse_log(ran.stdout)

    assert (ran.stderr, log.facts["environment"]["arrived"], log.facts["hub"]["reached"]) == ("", False, False)
    assert log.port


LINES = """
c.JupyterHub.spawner_class = "gpu-profiles"
c.JupyterHub.hub_port = {port}
c.GPUProfilesSpawner.profiles = [
    {{"display_name": "GPU", "slurm": {{"partition": "gpu", "gpus": 2}}, "command": ["no-such-server"]}},
    {{"display_name": "Modules", "slurm": {{"partition": "gpu"}}, "environment": {{"modules": "no/such"}}}},
    {{"display_name": "Batch", "slurm": {{"partition": "batch"}}, "command": ["/bin/true"]}},
]
c.GPUSlurmSpawner.exec_prefix = ""
c.GPUSlurmSpawner.dangerously_run_servers_as_root = True
c.GPUSlurmSpawner.slurm_bin_dir = {bin_dir!r}
c.GPUSlurmSpawner.req_homedir = {home!r}
c.GPUSlurmSpawner.topology_file = {topology!r}
c.Spawner.cmd = ["/bin/true"]
"""


async def submitted(folder: Path, slurm: PrivateSlurm, free_port: int, more: str = "") -> list[Finding]:
    """The findings of --submit on the private cluster."""
    lines = LINES.format(port=free_port, bin_dir=slurm.bin_dir, home=str(folder), topology=slurm.topology_pattern)
    (folder / "jupyterhub_config.py").write_text(lines + more)
    context = await run.context_of(load_site(folder / "jupyterhub_config.py"), Options(submit=True))
    return list(await run.findings(context, (submit.check_submit,)))


@pytest.fixture
def cluster(slurm_cluster: PrivateSlurm, monkeypatch: pytest.MonkeyPatch) -> PrivateSlurm:
    """The session's cluster, which commands of this process find."""
    for name, value in slurm_cluster.environment.items():
        monkeypatch.setenv(name, value)
    return slurm_cluster


def left(slurm: PrivateSlurm) -> str:
    """Jobs of checks that have not ended."""
    queue = slurm.run("squeue", "-h", "-o", "%i %k", "-t", "PENDING,RUNNING,SUSPENDED,CONFIGURING")
    return "\n".join(line for line in queue.splitlines() if f"#{START}-" in line)


@pytest.mark.slurm
async def test_a_job_in_each_partition_tells_what_its_node_lacks(
    tmp_path: Path, cluster: PrivateSlurm, unused_tcp_port: int
) -> None:
    """Real jobs, one for each partition, reach this machine and are reached; they leave neither job nor log behind."""
    findings = await submitted(tmp_path, cluster, unused_tcp_port)
    errors = [(finding.code, finding.where, finding.text) for finding in findings if finding.severity is Severity.ERROR]
    node = next(finding.where for finding in findings if finding.code == "job-placed")

    assert errors == [
        (
            "environment-fails",
            "profile modules",
            f"its environment cannot be set up on {node}: there is no module command on this node.",
        ),
        (
            "command-missing",
            "profile gpu",
            f"there is no command no-such-server on {node} after the profile's environment is set up.",
        ),
    ]
    assert [finding.code for finding in findings if finding.severity is Severity.OK] == [
        "job-placed",
        "job-placed",
        "job-ran",
    ]
    assert [finding.text for finding in findings if finding.severity is Severity.WARNING] == []
    assert left(cluster) == ""


@pytest.mark.slurm
async def test_a_tmpdir_that_cannot_be_written_is_named(
    tmp_path: Path, cluster: PrivateSlurm, unused_tcp_port: int
) -> None:
    """A real job whose launcher is elsewhere, and nothing is said to be in order."""
    more = (
        "c.GPUProfilesSpawner.profiles = c.GPUProfilesSpawner.profiles[2:]\n"
        "c.Spawner.environment = {'TMPDIR': '/proc'}\n"
    )
    findings = await submitted(tmp_path, cluster, unused_tcp_port, more)

    assert [(finding.severity.value, finding.code) for finding in findings] == [
        ("warning", "folder-full"),
        ("ok", "job-placed"),
    ]
    assert findings[0].text.startswith(f"/proc {UNUSABLE}: ")
    assert findings[1].text.startswith("the launcher found GPUs not set")


@pytest.mark.slurm
async def test_a_log_dir_that_no_node_has_and_a_check_that_is_interrupted(
    tmp_path: Path, cluster: PrivateSlurm, unused_tcp_port: int
) -> None:
    """The folder is named; and when the check is cancelled while a job is pending, the job is cancelled."""
    more = "c.GPUProfilesSpawner.profiles = c.GPUProfilesSpawner.profiles[2:]\n"
    (finding,) = await submitted(
        tmp_path, cluster, unused_tcp_port, f"{more}c.GPUSlurmSpawner.log_dir = '/proc/no/such/logs'\n"
    )
    assert (finding.code, finding.severity) == ("log-dir-missing", Severity.ERROR)
    assert "/proc/no/such/logs does not exist there" in finding.text

    held = "c.GPUProfilesSpawner.profiles[0]['slurm']['extra'] = ['--nodelist=c1']\n"
    cluster.run("scontrol", "update", "nodename=c1", "state=drain", "reason=check")
    try:
        task = asyncio.ensure_future(submitted(tmp_path, cluster, unused_tcp_port, more + held))
        while not left(cluster):
            assert not task.done(), task.result()
            await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert left(cluster) == ""
    finally:
        cluster.run("scontrol", "update", "nodename=c1", "state=resume")
