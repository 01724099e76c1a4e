"""``gpuspawner course rehearse --real``: what its jobs look at, what they cost, and the table by cause."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.check.finding import Severity
from jupyterhub_gpuspawner.check.probe_job import render
from jupyterhub_gpuspawner.check.submit import COMMAND, PENDING, findings_of, parse_log
from jupyterhub_gpuspawner.cli.main import main
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from jupyterhub_gpuspawner.extensions.courses import real_rehearsal as module
from jupyterhub_gpuspawner.extensions.courses.check import SessionPlan
from jupyterhub_gpuspawner.extensions.courses.course import CourseDate
from jupyterhub_gpuspawner.extensions.courses.real_rehearsal import (
    NBGITPULLER,
    Causes,
    Probed,
    ProbeTarget,
    RealRehearsal,
    course_faults,
    targets_of,
)
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles
from jupyterhub_gpuspawner.profiles.resolve import resolve
from jupyterhub_gpuspawner.site.configuration import Site
from tests.check.test_job import LOG, PROBE, changed_log, followed
from tests.cli.runner import cli_runner
from tests.extensions.courses.test_check import snapshot, two_profiles

NOW = datetime(2026, 3, 2, 9, tzinfo=timezone.utc)
PLAN = SessionPlan(CourseDate(NOW, NOW + timedelta(hours=3), "2026-03-02"), ("ada", "ben"))


def node_facts(
    home: Path, *, gpus: bool = False, git: str = "", path: str = "/usr/bin:/bin", **variables: str
) -> list[str]:
    """What the job prints of its node, isolated from this package."""
    source = Path(module.__file__).with_name("on_node.py").read_text()
    questions = json.dumps({"gpus": gpus, "git": git, "branch": "main"})
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", source, questions],
        capture_output=True,
        text=True,
        check=True,
        env={"HOME": str(home), "PATH": path, **variables},
    )
    facts = parse_log(ran.stdout).facts
    return [f"{fact}: {values['why']}" for fact, values in facts.items()]


def program(folder: Path, name: str, lines: str) -> str:
    """A folder with a program."""
    (folder / name).write_text(f"#!/bin/sh\n{lines}\n")
    (folder / name).chmod(0o755)
    return str(folder)


def test_a_job_looks_at_home_gpu_and_materials(tmp_path: Path) -> None:
    """And leaves nothing behind in the home folder."""
    home, path = tmp_path / "home", f"{tmp_path}:/usr/bin:/bin"
    home.mkdir()
    program(tmp_path, "nvidia-smi", "echo 'GPU 0: Tesla K80'")
    program(tmp_path, "git", 'echo "fatal: no branch" >&2; exit 2')
    url = "https://git.example.org/course"

    facts = [
        node_facts(home),
        node_facts(home, gpus=True, path=path, CUDA_VISIBLE_DEVICES="0"),
        node_facts(home, gpus=True, path=path),
        node_facts(home, git=url, path=path),
        node_facts(home / "missing", git=url, path="/nowhere"),
    ]

    assert facts == [
        ["home: "],
        ["home: ", "gpu: "],
        ["home: ", "gpu: Slurm has given the job no GPU"],
        ["home: ", "materials: fatal: no branch"],
        ["home: No such file or directory", "materials: there is no git"],
    ]
    assert list(home.iterdir()) == []


FACTS = {"home": "Disk quota exceeded", "gpu": "", "materials": "\\u001b[2J"}


def test_a_job_looks_where_the_server_would_fetch_the_materials() -> None:
    """With the proxy of the profile."""
    (profile,) = parse_profiles(
        [{"display_name": "P", "environment": {"variables": {"https_proxy": "http://p:3128"}, "login_shell": False}}]
    )
    moment = datetime(2026, 3, 2, tzinfo=timezone.utc)
    request = resolve([profile], {"profile": "p"}, username="ada", groups=(), server_name="", now=moment)
    script = render(replace(PROBE, requests=(request,), extra='echo "by $https_proxy with $GPUSPAWNER_PYTHON"'))
    (part,) = [part for part in script.split("\n\n") if 'echo "by' in part]

    ran = subprocess.run(
        ["bash", "-c", f"GPUSPAWNER_PYTHON=python3\n{part}"], capture_output=True, text=True, check=True, env={}
    )

    assert ran.stdout == "by http://p:3128 with python3\n"


def test_the_facts_of_a_job_become_findings() -> None:
    """Without characters that a terminal would act on."""
    log = "".join(f'gpuspawner-check {fact} {{"why": "{why}"}}\n' for fact, why in FACTS.items())
    findings = course_faults(replace(followed(), log=parse_log(log)), "g1")

    assert [(finding.code, finding.where, finding.text) for finding in findings] == [
        ("home-unwritable", "node g1", "nothing can be written to the home folder: Disk quota exceeded"),
        ("materials-missing", "node g1", "the materials cannot be fetched:  [2J"),
    ]


def test_a_profile_without_nbgitpuller_cannot_fetch_the_materials() -> None:
    """Its environment is looked at, with the server's command."""
    lacks = 'gpuspawner-check nbgitpuller {"slug": "gpu", "what": "nbgitpuller", "found": false}\n'
    ran = followed(changed_log(LOG, "gpuspawner-check launcher", f"{lacks}gpuspawner-check launcher"))
    findings = findings_of(replace(ran, job=replace(PROBE, packages=NBGITPULLER)))

    assert [(finding.severity, finding.code, finding.where) for finding in findings] == [
        (Severity.ERROR, "nbgitpuller-missing", "profile gpu"),
        (Severity.OK, "job-placed", "node g1"),
    ]


def a_rehearsal(*targets: ProbeTarget, gpus: tuple[int, ...]) -> RealRehearsal:
    """One of profiles with or without GPUs."""
    profiles = parse_profiles(
        [
            {"display_name": "P", "slug": f"p{rank}", "slurm": {"gpus": number} if number else {"cpus": 2}}
            for rank, number in enumerate(gpus)
        ]
    )
    requests = tuple(
        resolve(profiles, {"profile": profile.slug}, username="ada", groups=(), server_name="", now=NOW)
        for profile in profiles
    )
    return RealRehearsal(Site.__new__(Site), replace(PLAN, requests=requests), None, targets)


def test_the_cost_is_said_first() -> None:
    """At most: each job may take five minutes."""
    two = (ProbeTarget("ada"), ProbeTarget("ben"))
    costs = [
        a_rehearsal(*two, gpus=(1,)).cost(4),
        a_rehearsal(two[0], gpus=(0,)).cost(1),
        a_rehearsal(*two, ProbeTarget("cleo", rank=1, profile="p1"), gpus=(1, 0)).cost(4),
    ]

    assert costs == [
        "2 jobs of at most 5 min and 1 GPU each: 10 GPU minutes at most; 4 at a time, at the lowest priority.",
        "1 job of at most 5 min each: 5 minutes of a core at most; 1 at a time, at the lowest priority.",
        "3 jobs of at most 5 min each, 2 with 1 GPU: 10 GPU minutes at most; 4 at a time, at the lowest priority.",
    ]


def test_each_job_has_the_profile_that_its_participant_would_get() -> None:
    """The first one that has a seat left; on nodes, each profile has a job on each of its own."""
    plan = two_profiles(snapshot())
    of_people = [str(target) for target in targets_of(plan, ("t8", "t4", "t5", "guest"), {"": snapshot()}, nodes=False)]
    of_nodes = [str(target) for target in targets_of(plan, ("t1", "t2"), {"": snapshot()}, nodes=True)]

    assert of_people == ["t8, profile one", "t4, profile two", "t5, profile one", "guest, profile two"]
    assert of_nodes == [f"t1 on {node}, profile {profile}" for profile in ("two", "one") for node in ("g0", "g1")]


def test_a_table_by_cause() -> None:
    """The most frequent first; each job with its node, and what to do once."""
    command = COMMAND.error("profile p", "there is no command lab on g1.", "Install it.")
    waits = PENDING.warning("partition gpu", "job 7 did not start.")
    causes = Causes()
    for done in (
        Probed(ProbeTarget("ada"), "g1", (command,)),
        Probed(ProbeTarget("ben"), "g2", ()),
        Probed(ProbeTarget("cleo"), "g1", (command,)),
        Probed(ProbeTarget("dora"), "", (waits,)),
    ):
        causes.add(done)

    assert list(causes.table()) == [
        "WRONG 2 people: the server's command does not exist on a node.",
        "      Install it.",
        "      ada (g1): there is no command lab on g1.",
        "      cleo (g1): there is no command lab on g1.",
        "warn  1 person: the job did not start in time, so its node was not looked at.",
        "      dora: job 7 did not start.",
        "ok    1 job found nothing wrong",
    ]


def test_a_table_of_jobs_on_each_node_counts_nodes() -> None:
    """All are of one participant."""
    causes = Causes()
    for node in ("g1", "g2"):
        causes.add(Probed(ProbeTarget("ada", node), node, (COMMAND.error("profile p", "no lab.", "Install it."),)))

    assert list(causes.table()) == [
        "WRONG 2 nodes: the server's command does not exist on a node.",
        "      Install it.",
        "      ada on g1: no lab.",
        "      ada on g2: no lab.",
        "ok    0 jobs found nothing wrong",
    ]


COURSE = """
name: Deep learning
instructors: grace
roster: [ada, ben]
profile: lesson
materials: {{git: "https://git.invalid/course"}}
zone: {zone}
sessions: [{{date: {day:%Y-%m-%d}, from: "9:00", to: "17:00"}}]
"""
LINES = """
c.JupyterHub.spawner_class = "gpu-profiles"
c.JupyterHub.hub_port = {port}
c.GPUSlurmSpawner.slurm_bin_dir = {bin_dir!r}
c.GPUSlurmSpawner.req_homedir = "{folder}/home/{{username}}"
c.GPUSlurmSpawner.log_dir = "{folder}"
c.GPUSlurmSpawner.exec_prefix = ""
c.GPUSlurmSpawner.dangerously_run_servers_as_root = True
c.GPUSlurmSpawner.topology_file = {topology!r}
c.GPUProfilesSpawner.courses_dir = "{folder}"
c.GPUProfilesSpawner.profiles = [
    {{"display_name": "Lesson", "slug": "lesson", "command": ["/bin/true"],
      "slurm": {{"partition": "gpu", "gpus": 1, "gpu_type": "k80", "time": "8:00:00"}}}},
]
"""


@pytest.mark.slurm
def test_a_rehearsal_with_real_jobs(tmp_path: Path, slurm_cluster: PrivateSlurm, unused_tcp_port: int) -> None:
    """One participant has no home, and nobody the materials; nothing runs without an answer, and no job is left."""
    (tmp_path / "home" / "ada").mkdir(parents=True)
    tomorrow = datetime.now(timezone.utc) + timedelta(days=1)
    (tmp_path / "deep.yaml").write_text(COURSE.format(zone="UTC", day=tomorrow))
    config = tmp_path / "jupyterhub_config.py"
    where = {"folder": tmp_path, "bin_dir": slurm_cluster.bin_dir, "topology": slurm_cluster.topology_pattern}
    config.write_text(LINES.format(port=unused_tcp_port, **where))
    words = ["course", "rehearse", "deep", "--real", "--config", str(config)]

    refused = cli_runner().invoke(main, words, input="n\n", env=slurm_cluster.environment)
    done = cli_runner().invoke(main, [*words, "--yes"], env=slurm_cluster.environment)
    nodes = cli_runner().invoke(main, [*words, "--yes", "--nodes"], env=slurm_cluster.environment)
    jobs = slurm_cluster.run("squeue", "-h", "-t", "PD,CF,R", "-o", "%i")

    cost = "2 jobs of at most 5 min and 1 GPU each: 10 GPU minutes at most; 4 at a time, at the lowest priority."
    assert (refused.exit_code, refused.stdout.splitlines()[0]) == (1, cost)
    assert (done.exit_code, jobs) == (1, ""), done.output
    lines = done.stdout.splitlines()
    assert (lines[0], sorted(line.partition(" (")[0] for line in lines[1:3])) == (cost, ["WRONG ada", "WRONG ben"])
    assert "WRONG 1 person: the user's home does not exist on a node." in lines
    assert "WRONG 2 people: nbgitpuller, which fetches a course's materials, is missing." in lines
    assert "WRONG 2 people: a node cannot fetch the course's materials." in lines
    assert lines[-1] == "ok    0 jobs found nothing wrong"
    assert [line for line in nodes.stdout.splitlines() if " on " in line and "(" not in line][:1] == ["WRONG ada on g1"]
    assert nodes.stdout.startswith("1 job of at most 5 min and 1 GPU each: ")
