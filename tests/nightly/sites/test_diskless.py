"""Nodes without disks: home and TMPDIR on file servers that squash root and may hang, and ``/tmp`` is mounted noexec.

The file servers are FUSE (``tests/standins/file_server``), since not every kernel has NFS; what a client of NFS sees of
a server is real there. Mounts and accounts are real.
"""

from __future__ import annotations

import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests
import yaml

from jupyterhub_gpuspawner.demo.slurm_cluster import DEMO_CLUSTER
from tests.fixtures.hubs import offer, start_hub
from tests.fixtures.slurm import ChangedSlurm
from tests.fixtures.users import accounts
from tests.hub.servers import environment, job_id, start, state, why_it_ended
from tests.hub.visitor import Visitor
from tests.nightly.sites.main_job import CONFIG, MainJob, Site, profiles
from tests.standins import file_server
from tests.standins.file_server import FileServer
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.users]

SLURM = "partition: gpu, gpus: 2, gpu_type: k80, cpus: 4"
AS_USERS = """
c.GPUSlurmSpawner.exec_prefix = "runuser -u {username} --"
c.GPUSlurmSpawner.req_homedir = ""
"""
WITHOUT_DISK = """
keep=$1; shift
for folder in /mnt /dev/shm; do mount -t tmpfs -o noexec,nosuid,nodev,mode=1777,size=64m none $folder; done
mkdir -p "/mnt/${keep#/tmp/}" && mount --rbind "$keep" "/mnt/${keep#/tmp/}" && mount --move /mnt /tmp || exit 1
exec "$@"
"""
"""Shell lines that run a slurmd where /tmp and /dev/shm are small and noexec; ``$1`` stays as it is."""
TASK_PROLOG = """#!/bin/sh
echo "export TMPDIR={scratch}/$SLURM_JOB_USER"
"""


class DisklessSlurm(ChangedSlurm):
    """A private Slurm whose slurmds have mounts of their own."""

    def _start(self, name: str, argv: list[str]) -> None:
        if name.startswith("slurmd-"):
            unshare = str(shutil.which("unshare"))
            argv = [unshare, "--mount", "/bin/sh", "-c", WITHOUT_DISK, "sh", str(self.folder.parent), *argv]
        super()._start(name, argv)


@dataclass(frozen=True)
class Servers:
    """The two file servers, and who has a home there."""

    home: FileServer
    scratch: FileServer
    user: str
    other: str


@pytest.fixture(scope="module")
def servers(public_folder: Path) -> Iterator[Servers]:
    """Both serve folders of the same users: the one of the main job, another one, and one for the time limit."""
    reason = file_server.missing()
    if reason is not None:
        pytest.skip(reason)
    if public_folder.parent != Path("/tmp"):
        pytest.skip("the tests' folder for all users is not in /tmp")
    folders = {name: public_folder / name for name in ("home", "scratch")}
    for folder in folders.values():
        folder.mkdir(mode=0o755)
    program = file_server.build(public_folder)
    shells = dict.fromkeys(("disk", "disk-minute", "diskother"), "/bin/bash")
    with accounts(folders["home"], shells) as names, ExitStack() as stack:
        for name in names.values():
            (folders["home"] / name).chmod(0o700)
            (folders["scratch"] / name).mkdir(mode=0o700)
            shutil.chown(folders["scratch"] / name, name, name)
        served = {
            name: stack.enter_context(FileServer(program, folder, public_folder / f"{name}-control").mounted())
            for name, folder in folders.items()
        }
        yield Servers(served["home"], served["scratch"], names["disk"], names["diskother"])


@pytest.fixture(scope="module")
def site(
    servers: Servers,
    needs_slurm: None,
    public_folder: Path,
    public_command: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Site]:
    """The demo's cluster on nodes without disks, and a hub that runs as root, whom the file servers refuse."""

    def with_task_prolog(conf: str) -> str:
        return f"{conf}TaskProlog={{folder}}/task_prolog\n"

    files = {"task_prolog": TASK_PROLOG.replace("{scratch}", str(servers.scratch.folder))}
    with ExitStack() as stack:
        slurm = stack.enter_context(DisklessSlurm(DEMO_CLUSTER, public_folder / "slurm", with_task_prolog, files))
        offered = profiles(public_command, slurm=SLURM)
        hub = start_hub(stack, slurm, tmp_path_factory.mktemp("hub"), lines=CONFIG + AS_USERS, profiles=offered)
        yield Site(hub, slurm, user=servers.user)


class TestMainJob(MainJob):
    """The main job."""


@pytest.fixture
def other(servers: Servers, site: Site) -> Iterator[str]:
    """A user with a home there; a server that a test has started is stopped."""
    yield servers.other
    if site.hub.server(servers.other):
        site.hub.end(servers.other)
    # a job that ends while a home hangs keeps its GPUs until it answers
    wait_until(lambda: not site.slurm.run("squeue", "-h", "-u", servers.other), lambda: site.slurm.run("squeue"))


def test_root_may_not_enter_a_home_and_servers_use_the_folders_of_the_site(
    servers: Servers, site: Site, other: str
) -> None:
    """So the site is as it should be: the launcher is on the file server, and the log in the home."""
    job = site.hub.spawn(other, {"profile": "main"})["job_id"]
    variables = environment(site.hub, other)
    home, scratch = Path(pwd.getpwnam(other).pw_dir), servers.scratch.folder / other
    with pytest.raises(PermissionError):
        list(home.iterdir())
    logs = subprocess.run(
        ["runuser", "-u", other, "--", "find", str(home), "-name", "*.log"], capture_output=True, check=True
    )

    assert (variables["HOME"], variables["TMPDIR"]) == (str(home), str(scratch))
    assert Path(variables["GPUSPAWNER_LAUNCHER"]).parents[1] == scratch
    assert Path(logs.stdout.decode().strip()).name == f"jupyterhub-{job}.log"


def test_a_home_over_its_quota_starts_a_server_and_a_server_that_fails_for_it_says_so(
    servers: Servers, site: Site, other: str, public_command: str
) -> None:
    """A server that must write to the home ends; its user reads why, and what to do. Others start as ever."""
    write = "import os; f = open('x', 'w'); f.write('x' * 9999); f.close()"
    offer(
        site.hub,
        "quota",
        f'- {{display_name: Writes, slug: writes, command: [/usr/bin/python3, -c, "{write}"],'
        f"   slurm: {{{SLURM}, memory: 600M, time: 0:10:00}}}}",
    )
    visitor = Visitor(site.hub, other)
    with servers.home.over_quota(other):
        placement = site.hub.spawn(other, {"profile": "main"})
        card = visitor.look("/hub/home").text
        site.hub.end(other)
        start(site.hub, other, "writes")
        wait_until(lambda: not site.hub.server(other), site.hub.log_end, seconds=60)
        ended = why_it_ended(site.hub, other)
        page = visitor.look("/hub/home").text

    home = pwd.getpwnam(other).pw_dir
    assert any(f"{home} cannot be written: Disk quota exceeded." in problem for problem in placement["problems"])
    assert "1 warning" in card
    assert ended.startswith("Your home folder is full.")
    assert "Delete what you no longer need" in page


def test_everything_over_its_quota_starts_a_server(servers: Servers, site: Site, other: str) -> None:
    """The launcher finds room in /tmp."""
    with servers.home.over_quota(other), servers.scratch.over_quota(other):
        site.hub.spawn(other, {"profile": "main"})
        launcher = Path(environment(site.hub, other)["GPUSPAWNER_LAUNCHER"])

    assert launcher.parents[1] == Path("/tmp")


def test_a_home_that_hangs_keeps_nobody_else_from_the_hub(servers: Servers, site: Site, other: str) -> None:
    """While no home answers, pages come, with or without a log; afterwards the server goes on, and stops."""
    visitor, admin = Visitor(site.hub, other), Visitor(site.hub, "admin")
    job = site.hub.spawn(other, {"profile": "main"})["job_id"]
    with servers.home.hanging():
        log = visitor.look(f"/hub/gpuspawner/log/{other}")
        pages = [someone.look("/hub/home").status for someone in (visitor, admin)]
        health = requests.get(f"{site.hub.url}/hub/health", timeout=10).status_code
        site.hub.end(other)
    next_job = site.hub.spawn(other, {"profile": "main"})["job_id"]

    assert (log.status, pages, health) == (200, [200, 200], 200)
    assert "on a file server that does not respond" in log.text
    assert f"jupyterhub-{job}.log" in log.text
    assert state(site.slurm, job, "RUNNING") == "CANCELLED"
    assert state(site.slurm, next_job) == "RUNNING"


def test_a_start_waits_for_a_home_that_hangs(servers: Servers, site: Site, other: str) -> None:
    """The job starts, and its server as soon as the home answers; the hub goes on meanwhile."""
    with servers.home.hanging(), servers.scratch.hanging():
        start(site.hub, other, "main")
        job = job_id(site.hub, other)
        wait_until(lambda: state(site.slurm, job) == "RUNNING", lambda: site.slurm.run("scontrol", "show", "job", job))
        site.hub.restart()
        ready = (site.hub.server(other) or {}).get("ready")
    site.hub.wait(other, ready=True)

    assert (ready, environment(site.hub, other)["SLURM_JOB_ID"]) == (False, job)


def test_gpuspawner_run_where_nothing_in_tmp_may_be_executed(site: Site, other: str, public_command: str) -> None:
    """Without a TMPDIR the launcher is in /tmp, and its command works there all the same."""
    python, stand_in = public_command.strip("[]").split(", ")
    tried = "gpuspawner-run echo it works > $HOME/run.txt 2>&1"
    slurm = f'{{{SLURM}, memory: 600M, time: "0:10:00"}}'
    profile = {
        "display_name": "In tmp",
        "slug": "tmp",
        "slurm": yaml.safe_load(slurm),
        "environment": {"setup": "unset TMPDIR"},
        "command": ["/bin/sh", "-c", f"{tried}; exec {python} {stand_in}"],
    }
    offer(site.hub, "tmp", yaml.safe_dump([profile]))
    site.hub.spawn(other, {"profile": "tmp"})
    launcher = Path(environment(site.hub, other)["GPUSPAWNER_LAUNCHER"])

    assert launcher.parents[1] == Path("/tmp")
    assert "it works" in of_home(other, "run.txt")


def of_home(user: str, name: str) -> str:
    """The text of a file in a home, which root may not read."""
    words = ["runuser", "-u", user, "--", "cat", f"{pwd.getpwnam(user).pw_dir}/{name}"]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
