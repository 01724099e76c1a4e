"""The private Slurm: what its jobs see, and that nothing is left of it."""

from __future__ import annotations

import json
import random
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

import jupyterhub_gpuspawner
from jupyterhub_gpuspawner.demo import slurm_cluster as subject
from jupyterhub_gpuspawner.demo.slurm_cluster import (
    DEMO_CLUSTER,
    ClusterDescription,
    PrivateSlurm,
    SimulatedNode,
    SimulatedPartition,
    SlurmFailed,
    free_ports,
    missing,
)
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("needs_slurm")]

SMALL = ClusterDescription(
    nodes=(SimulatedNode("n1", machine="cpu", sockets=1, cores_per_socket=2, memory_mib=2000),),
    partitions=(SimulatedPartition("batch", ("n1",), default=True),),
)


def runs(pid: int) -> bool:
    """Whether a process is alive; a zombie, as in a container without init, is not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Jobs:
    """Jobs that write their environment to a file and then wait to be cancelled."""

    def __init__(self, slurm: PrivateSlurm, folder: Path) -> None:
        self.slurm = slurm
        self.folder = folder

    def submit(self, *options: str) -> str:
        script = "env > $SLURM_JOB_ID.part; mv $SLURM_JOB_ID.part $SLURM_JOB_ID"
        common = ["--parsable", "--cpus-per-task=2", "--output=/dev/null", f"--chdir={self.folder}"]
        job = self.slurm.run("sbatch", *common, *options, f"--wrap={script}; sleep 600")
        wait_until((self.folder / job).exists, f"job {job} has started")
        return job

    def environment(self, job: str) -> dict[str, str]:
        lines = (self.folder / job).read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def granted(self, job: str) -> list[tuple[str, str]]:
        """Node and GPUs, as ``scontrol show job -d`` has them."""
        detail = self.slurm.run("scontrol", "show", "job", "-d", job)
        return re.findall(r"Nodes=(\S+) .* GRES=(\S*)", detail)


@pytest.fixture(scope="module")
def idle_cluster(needs_slurm: None, public_folder: Path) -> Iterator[PrivateSlurm]:
    """A demo cluster for this module only, so that its free resources are known."""
    with PrivateSlurm(DEMO_CLUSTER, public_folder / "idle") as slurm:
        yield slurm


@pytest.fixture
def jobs(idle_cluster: PrivateSlurm, tmp_path: Path) -> Iterator[Jobs]:
    """Jobs on an idle cluster, all killed at the end."""
    jobs = Jobs(idle_cluster, tmp_path)
    yield jobs
    ids = [path.name for path in tmp_path.iterdir()]
    if ids:
        idle_cluster.run("scancel", "--full", "--signal=KILL", *ids)
        wait_until(lambda: not idle_cluster.run("squeue", "-h", "--jobs", ",".join([*ids, "999999"])), "jobs are gone")


def test_the_nodes_are_those_described(slurm_cluster: PrivateSlurm) -> None:
    """Slurm shows each node with its cores, memory, GPUs with the sockets beside them, and features."""
    listing = slurm_cluster.run("sinfo", "--Node", "--noheader", "--format=%N|%R|%z|%m|%G|%f")
    assert listing.splitlines() == [
        "c1|batch|2:20:1|190000|(null)|cpu",
        "c2|batch|2:20:1|190000|(null)|cpu",
        "d1|gpu|2:20:1|512000|gpu:p100:8(S:0-1)|p100,nvlink",
        "g1|gpu|2:12:1|64000|gpu:k80:4(S:0-1)|k80",
        "m1|gpu|2:16:1|512000|gpu:a100:2(S:0),gpu:1g.10gb:4(S:1)|a100,mig",
    ]


@pytest.mark.parametrize(
    ("gres", "indices", "granted"),
    [
        ("gpu:k80:2", "0,1", ("g1", "gpu:k80:2(IDX:0-1)")),
        ("gpu:p100:4", "0,1,2,3", ("d1", "gpu:p100:4(IDX:0-3)")),
        ("gpu:a100:1", "0", ("m1", "gpu:a100:1(IDX:0)")),
        ("gpu:1g.10gb:2", "2,3", ("m1", "gpu:1g.10gb:2(IDX:2-3)")),
    ],
)
def test_a_job_sees_its_gpus(jobs: Jobs, gres: str, indices: str, granted: tuple[str, str]) -> None:
    """A job's environment names the GPUs that Slurm says it granted."""
    job = jobs.submit("--partition=gpu", f"--gres={gres}")
    environment = jobs.environment(job)
    assert {key: environment[key] for key in ("CUDA_VISIBLE_DEVICES", "SLURM_JOB_GPUS", "SLURMD_NODENAME")} == {
        "CUDA_VISIBLE_DEVICES": indices,
        "SLURM_JOB_GPUS": indices,
        "SLURMD_NODENAME": granted[0],
    }
    assert jobs.granted(job) == [granted]


def test_a_job_outlives_a_restart_of_the_controller(tmp_path: Path, public_folder: Path) -> None:
    """slurmctld keeps its state: a running job keeps its id, and the nodes have registered when it is ready."""
    with PrivateSlurm(SMALL, public_folder / "restart") as slurm:
        jobs = Jobs(slurm, tmp_path)
        job = jobs.submit("--mem=100")
        before = slurm.pids["slurmctld"]
        slurm.restart_controller()
        assert slurm.pids["slurmctld"] != before
        assert slurm.run("squeue", "--noheader", "--format=%i %T") == f"{job} RUNNING"
        assert slurm.run("sinfo", "--noheader", "--format=%T") in ("mixed", "allocated")


def test_stop_leaves_no_process_and_no_folder_and_a_second_start_works(tmp_path: Path, public_folder: Path) -> None:
    """Daemons, steps and detached processes of a job end; the folder is removed and can be created again."""
    for _ in range(2):
        with PrivateSlurm(SMALL, public_folder / "again") as slurm:
            job = slurm.run(
                "sbatch",
                "--parsable",
                "--output=/dev/null",
                f"--wrap=setsid sleep 600 & echo $! > {tmp_path}/pid; sleep 600",
            )
            wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "", f"job {job} runs")
            pids = [*slurm.pids.values(), int((tmp_path / "pid").read_text())]
            assert all(runs(pid) for pid in pids)
        assert [pid for pid in pids if runs(pid)] == []
        assert not slurm.folder.exists()
        (tmp_path / "pid").unlink()


OWNER = """
import json, sys, time
from pathlib import Path
from jupyterhub_gpuspawner.demo.slurm_cluster import DEMO_CLUSTER, PrivateSlurm
with PrivateSlurm(DEMO_CLUSTER, Path(sys.argv[1])) as slurm:
    slurm.run("sbatch", "--output=/dev/null", "--chdir=/", "--wrap=sleep 987")
    states = ""
    while states != "RUNNING":
        states = slurm.run("squeue", "-h", "-o", "%T")
        time.sleep(0.1)
    print(json.dumps(slurm.pids), flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGKILL, id="SIGKILL"),
        pytest.param(signal.SIGTERM, id="SIGTERM", marks=pytest.mark.nightly),
        pytest.param(signal.SIGINT, id="SIGINT", marks=pytest.mark.nightly),
    ],
)
def test_everything_ends_when_its_owner_dies(number: signal.Signals, public_folder: Path) -> None:
    """Ctrl-C, SIGTERM, and even SIGKILL of the process that started it: no process and no folder is left."""
    folder = public_folder / "owned"
    argv = [sys.executable, "-c", OWNER, str(folder)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as owner:
        assert owner.stdout is not None
        pids = list(json.loads(owner.stdout.readline()).values())
        guard = psutil.Process(pids[0]).ppid()
        pids += [guard, *(child.pid for child in psutil.Process(guard).children(recursive=True))]
        owner.send_signal(number)
        owner.wait(30)
    wait_until(lambda: not any(runs(pid) for pid in pids), "every process has ended")
    assert not folder.exists()


ORDINARY = """
import sys
from pathlib import Path
from jupyterhub_gpuspawner.demo.slurm_cluster import DEMO_CLUSTER, PrivateSlurm
with PrivateSlurm(DEMO_CLUSTER, Path(sys.argv[1])) as slurm:
    options = ["--wait", "--partition=gpu", "--gres=gpu:k80:2", "--output=out"]
    slurm.run("sbatch", *options, "--wrap=id -un; echo $CUDA_VISIBLE_DEVICES $SLURM_JOB_GPUS")
"""


@pytest.mark.users
def test_it_runs_as_an_ordinary_user(two_users: tuple[str, str], public_folder: Path) -> None:
    """Without root: the same daemons, the same GPUs in a job's environment."""
    home = public_folder / two_users[0]
    # a copy, since the user may not be able to enter the folder of this one
    shutil.copytree(Path(jupyterhub_gpuspawner.__file__).parent, public_folder / "lib" / "jupyterhub_gpuspawner")
    as_user = ["setpriv", f"--reuid={two_users[0]}", f"--regid={two_users[0]}", "--init-groups"]
    done = subprocess.run(
        [*as_user, sys.executable, "-c", ORDINARY, home / "slurm"],
        env={"PATH": "/usr/bin:/bin", "HOME": str(home), "PYTHONPATH": str(public_folder / "lib")},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (home / "out").read_text().split() == [two_users[0], "0,1", "0,1"]
    assert not (home / "slurm").exists()


def test_a_cluster_that_cannot_start_says_why(tmp_path: Path) -> None:
    """The message names the daemon and contains the end of its log; nothing is left behind."""
    wrong = ClusterDescription(SMALL.nodes, (SimulatedPartition("batch", ("nobody",), default=True),))
    message = r"(?s)slurmctld ended with status 1\.\n.*fatal: Invalid node names in partition batch"
    with pytest.raises(SlurmFailed, match=message), PrivateSlurm(wrong, tmp_path / "slurm"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    """An existing folder is refused, since the end would remove it."""
    (tmp_path / "mine").touch()
    with pytest.raises(SlurmFailed, match="exists already"), PrivateSlurm(SMALL, tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_long_folder_name_is_no_obstacle(public_folder: Path) -> None:
    """Paths of Unix sockets are short, so the daemons use another folder, which is removed too."""
    with PrivateSlurm(SMALL, public_folder / ("long" * 30)) as slurm:
        assert slurm.run("sinfo", "--noheader", "--format=%N %T") == "n1 idle"
        assert slurm.topology_pattern.startswith(str(public_folder))
        elsewhere = slurm.conf.parent
        assert len(str(elsewhere)) < 40
    assert not elsewhere.exists()
    assert not slurm.folder.exists()


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Slurm is not installed, the reason names the commands and the packages."""
    monkeypatch.setattr(subject, "SEARCH_PATH", "/nonexistent")
    reason = missing()
    assert reason is not None
    assert reason.startswith("sbatch, scancel, scontrol, sinfo, slurmctld, slurmd, squeue, munged not found")
    assert "slurm-wlm and munge" in reason


def test_secrets_are_not_for_others(slurm_cluster: PrivateSlurm) -> None:
    """Others can read the configuration, which commands need, but not the key."""
    modes = {name: (slurm_cluster.conf.parent / name).stat().st_mode & 0o777 for name in ("munge.key", "slurm.conf")}
    assert modes == {"munge.key": 0o600, "slurm.conf": 0o644}


def test_ports_of_two_processes_are_not_the_same() -> None:
    """One that starts a hub anew finds its ports as it left them, whatever the other chooses meanwhile."""
    program = "from jupyterhub_gpuspawner.demo.slurm_cluster import free_ports; print(*free_ports(100)); input()"
    processes = [
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    ports = [set(process.stdout.readline().split()) for process in processes if process.stdout is not None]
    for process in processes:
        process.communicate("\n")

    assert ([len(chosen) for chosen in ports], ports[0] & ports[1]) == ([100, 100], set())


def test_a_sites_own_variables_do_not_lead_commands_to_its_cluster(
    slurm_cluster: PrivateSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some sites export them for everybody."""
    monkeypatch.setenv("SLURM_CLUSTERS", "another")

    assert "is UP" in slurm_cluster.run("scontrol", "ping")


def test_programs_with_the_same_seed_choose_different_ports() -> None:
    """Tests that run side by side have one seed, and a port that was free is taken a moment later."""
    chosen = []
    for _ in range(2):
        random.seed(1)
        chosen.append(free_ports(5))

    assert chosen[0] != chosen[1]
