"""The launcher as a job runs it: packed, by each Python there is, reporting to a real HTTP server."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

import jupyterhub_gpuspawner
from jupyterhub_gpuspawner.hub.report.server_report import parse_report
from jupyterhub_gpuspawner.placement.topology import NodeTopology, from_document, load
from jupyterhub_gpuspawner.wire.documents import ASKS_TURN, LaunchPlan, NodeReport, StartFailure, Step
from tests.node.conftest import StandinNvml, dies
from tests.standins.nvml import describe
from tests.standins.report_hub import ReportHub
from tests.waiting import wait_until

MACHINES = Path(jupyterhub_gpuspawner.__file__).parent / "demo" / "machines"
SHOW = """
import json, os, signal, sys
print(json.dumps({
    "environ": dict(os.environ),
    "arguments": sys.argv[1:],
    "cpus": sorted(os.sched_getaffinity(0)),
    "ignored": [n for n in range(1, 32) if n not in (9, 19) and signal.getsignal(n) == signal.SIG_IGN],
    "files": sorted(int(n) for n in os.listdir("/proc/self/fd")),
}))
"""
IN_A_JOB = {
    "SLURM_JOB_ID": "17",
    "SLURM_JOB_GPUS": "2,3",
    "CUDA_VISIBLE_DEVICES": "2,3",
    "SLURM_GPUS_ON_NODE": "2",
    "SLURM_CPUS_ON_NODE": "24",
    "SLURMD_NODENAME": "k1",
    "SLURM_JOB_PARTITION": "gpu",
    "SLURM_JOB_END_TIME": "1795259690",
}

NOWHERE = Step("nowhere:nothing", doing="Bringing a part")
"""A step whose module is not there."""


@lru_cache
def pythons() -> dict[str, str]:
    """Every Python 3 of this machine by version: of the PATH, and of pyenv where that is used."""
    interpreters = {".".join(map(str, sys.version_info[:2])): sys.executable}
    names = [f"python3.{minor}" for minor in range(6, 16)]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [*map(shutil.which, ("python3", *names)), *sorted(map(str, pyenv.glob("3.*/bin/python3")))]
    for path in filter(None, candidates):
        process = subprocess.run(
            [path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
            capture_output=True,
            text=True,
            check=False,
        )
        if process.returncode == 0:
            interpreters.setdefault(process.stdout.strip(), path)
    return interpreters


SUPPORTED = {version: path for version, path in pythons().items() if int(version.split(".")[1]) >= 9}
TOO_OLD = {version: path for version, path in pythons().items() if int(version.split(".")[1]) < 9}


@pytest.fixture
def k80(tmp_path: Path) -> str:
    """A pattern of topology files in which the node k1 is the two-socket K80 node."""
    shutil.copy(MACHINES / "k80-2socket.json", tmp_path / "k1.json")
    return f"{tmp_path}/{{node}}.json"


@pytest.fixture
def real_k80(tmp_path: Path) -> str:
    """The topology file of such a node that is not marked as simulated."""
    topology = json.loads((MACHINES / "k80-2socket.json").read_text()) | {"simulated": False}
    (tmp_path / "real.json").write_text(json.dumps(topology))
    return str(tmp_path / "real.json")


def launch(
    archive: Path,
    plan: LaunchPlan | str,
    environ: dict[str, str],
    *command: str,
    python: str = sys.executable,
    code: tuple[str, ...] = (),
) -> subprocess.CompletedProcess[str]:
    """Run the launcher as a job's script does; ``code``: Python that runs it, with its first arguments."""
    text = plan if isinstance(plan, str) else plan.dumps()
    first = ("-c", *code) if code else (str(archive),)
    return subprocess.run(
        [python, *first, "--plan", text, "--", *(command or (sys.executable, "-c", SHOW))],
        env={"PATH": "/usr/bin:/bin", **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def server_document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """What the server saw of its world."""
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def reported(hub: ReportHub) -> NodeReport:
    """The one report there was."""
    [request] = hub.requests
    return parse_report(request.body)


@pytest.mark.parametrize("version", sorted(SUPPORTED))
def test_a_job_is_placed_reported_and_started(archive: Path, hub: ReportHub, k80: str, version: str) -> None:
    """By any Python from 3.9: the server gets what Slurm granted, and the hub knows it before the server starts."""
    plan = LaunchPlan(gpus=2, cpus=4, topology_file=k80)
    command = (sys.executable, "-c", SHOW, "--port={port}")

    server = server_document(launch(archive, plan, hub.environ | IN_A_JOB, *command, python=SUPPORTED[version]))

    report = reported(hub)
    placement = report.placement
    environ = server["environ"]
    assert environ["CUDA_VISIBLE_DEVICES"] == ",".join(str(gpu.index) for gpu in placement.gpus) == "2,3"
    assert environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    [argument] = server["arguments"]
    port = argument.removeprefix("--port=")
    assert (environ["JUPYTERHUB_SERVICE_URL"], report.port) == (f"http://127.0.0.1:{port}/user/ada/", 0)
    assert (environ["GPUSPAWNER_CPUS"], environ["OMP_NUM_THREADS"]) == (placement.cpus, "12") == ("12-23", "12")
    assert (placement.job_id, placement.node, placement.partition) == ("17", "k1", "gpu")
    assert (placement.numa_nodes, placement.weakest_link, placement.aligned) == ((1,), "PIX", True)
    assert placement.ends_at == "2026-11-21T11:14:50Z"
    assert placement.simulated
    assert report.topology is not None
    assert len(from_document(report.topology).gpus) == 4


@pytest.mark.parametrize("version", sorted(SUPPORTED))
def test_the_launcher_is_light(archive: Path, hub: ReportHub, k80: str, tmp_path: Path, version: str) -> None:
    """When the server is exec'ed, at most 33 modules are loaded besides ctypes, dataclasses, json and what they need.

    What those need grows with Python: 3.14's dataclasses load annotationlib, its ctypes loads sysconfig and threading.
    """
    watch = """
import sys
def watch(event, _):
    if event == "os.exec":
        print(len({*sys.modules} - {"sitecustomize"}), file=sys.stderr)
sys.addaudithook(watch)
"""
    (tmp_path / "sitecustomize.py").write_text(watch)
    environ = hub.environ | IN_A_JOB | {"PYTHONPATH": str(tmp_path)}
    library = tmp_path / "library.pyz"
    with zipfile.ZipFile(library, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("__main__.py", "import ctypes, dataclasses, json, os; os.execv('/bin/true', ['true'])")
    python = SUPPORTED[version]

    bare = subprocess.run([python, str(library)], env=environ, capture_output=True, text=True, check=True, timeout=60)
    done = launch(archive, LaunchPlan(gpus=2, cpus=4, topology_file=k80), environ, "/bin/true", python=python)

    assert int(done.stderr.split()[-1]) - int(bare.stderr) <= 33


@pytest.mark.parametrize("version", sorted(TOO_OLD) or [pytest.param("", marks=pytest.mark.skip("no older Python"))])
def test_a_python_that_is_too_old_starts_the_server_all_the_same(archive: Path, version: str) -> None:
    """With the launcher if that happens to run, otherwise without it."""
    done = launch(archive, LaunchPlan(), {}, "/bin/echo", "started", python=TOO_OLD[version])

    assert (done.returncode, done.stdout) == (0, "started\n")


def test_the_real_node_is_read_bound_and_reported(archive: Path, hub: ReportHub) -> None:
    """On this machine, outside of Slurm: the last of its CPUs is what the server may use, by the kernel's word."""
    cpus = sorted(os.sched_getaffinity(0))

    server = server_document(launch(archive, LaunchPlan(cpus=1), hub.environ))

    placement = reported(hub).placement
    assert len(server["cpus"]) == 1
    assert placement.cpus == str(server["cpus"][0])
    assert server["cpus"][0] in cpus
    assert (placement.job_id, placement.simulated, placement.problems) == (None, False, ())


def test_a_job_that_nothing_binds_stays_on_the_cpus_that_slurm_granted(
    archive: Path, hub: ReportHub, tmp_path: Path
) -> None:
    """scontrol says which; the kernel restricts the server to them."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("this machine has one CPU")
    scontrol = tmp_path / "scontrol"
    scontrol.write_text("#!/bin/sh\nprintf '     Nodes=k1 CPU_IDs=1 Mem=1 GRES=\\n'\n")
    scontrol.chmod(0o755)
    environ = {"SLURM_JOB_ID": "17", "SLURM_CPUS_ON_NODE": "1", "SLURMD_NODENAME": "k1"}

    server = server_document(
        launch(archive, LaunchPlan(), hub.environ | environ | {"PATH": f"{tmp_path}:/usr/bin:/bin"})
    )

    assert len(server["cpus"]) == 1
    assert reported(hub).placement.cpus == str(server["cpus"][0])


def test_gpus_are_read_through_nvml(archive: Path, hub: ReportHub, standin: StandinNvml) -> None:
    """The driver's own names and links, in the report of a job in a device cgroup."""
    machine = load(str(MACHINES / "dgx1.json"))
    standin.machine.write_text(describe(machine))
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "0,1,2,3,4,5,6,7", "CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"}

    server = server_document(launch(archive, LaunchPlan(gpus=4), hub.environ | standin.environ | job))

    report = reported(hub)
    assert [gpu.uuid for gpu in report.placement.gpus] == [
        machine.gpus[gpu.index].uuid for gpu in report.placement.gpus
    ]
    assert server["environ"]["CUDA_VISIBLE_DEVICES"] == ",".join(str(gpu.index) for gpu in report.placement.gpus)
    assert report.topology is not None
    assert report.topology["links"] == [list(row) for row in machine.links]


def test_in_a_device_cgroup_a_server_whose_variable_was_unset_has_the_jobs_gpus(
    archive: Path, hub: ReportHub, standin: StandinNvml
) -> None:
    """To Slurm they are 5 and 7; CUDA, as NVML, counts the two that the job may open from 0."""
    machine = load(str(MACHINES / "dgx1.json"))
    links = tuple(tuple(machine.link(a, b) for b in (5, 7)) for a in (5, 7))
    gpus = tuple(replace(machine.gpus[n], index=index) for index, n in enumerate((5, 7)))
    standin.machine.write_text(describe(NodeTopology(gpus=gpus, links=links)))
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "5,7", "SLURM_GPUS_ON_NODE": "2"}

    server = server_document(launch(archive, LaunchPlan(gpus=2), hub.environ | standin.environ | job))

    placement = reported(hub).placement
    assert server["environ"]["CUDA_VISIBLE_DEVICES"] == server["environ"]["GPUSPAWNER_GPUS"] == "0,1"
    assert [gpu.uuid for gpu in placement.gpus] == [gpu.uuid for gpu in gpus]
    assert placement.why.endswith("To Slurm these are GPUs 5,7.")


def test_a_driver_that_hangs_delays_the_server_by_the_deadline(
    archive: Path, hub: ReportHub, standin: StandinNvml
) -> None:
    """It starts with the GPUs that Slurm granted, and the report says what timed out."""
    standin.machine.write_text(describe(load(str(MACHINES / "k80-2socket.json"))) + "fail nvmlDeviceGetUUID hang -1\n")

    server = server_document(launch(archive, LaunchPlan(gpus=2, deadline=1), hub.environ | standin.environ | IN_A_JOB))

    placement = reported(hub).placement
    assert (server["environ"]["CUDA_VISIBLE_DEVICES"], [gpu.index for gpu in placement.gpus]) == ("2,3", [2, 3])
    assert "Reading the hardware timed out after 1 s while asking NVML." in placement.problems


BREAK = """
import sys
sys.path.insert(0, sys.argv[1])
from jupyterhub_gpuspawner.node import folder, grant, hardware, main, placing, report
from jupyterhub_gpuspawner.placement import choice
def broken(*_, **__):
    raise RuntimeError("broken by the test")
owner, _, name = sys.argv[2].rpartition(".")
setattr(eval(owner), name, broken)
main.main(sys.argv[3:])
"""


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("placing.observe", "Reading the hardware failed: RuntimeError: broken by the test"),
        ("hardware._read_in_child", "Reading the hardware ended unexpectedly while starting."),
        ("hardware.from_document", "Reading the hardware failed: RuntimeError: broken by the test"),
        ("placing.allowed_cpus", "Reading the CPU affinity failed: RuntimeError: broken by the test"),
        ("grant.cpus", "Reading the granted CPUs failed: RuntimeError: broken by the test"),
        ("grant.gpus", "Choosing GPUs failed: RuntimeError: broken by the test"),
        ("choice.choose", "Choosing GPUs failed: RuntimeError: broken by the test"),
        ("placing.choose_cpus", "Choosing CPUs failed: RuntimeError: broken by the test"),
        ("placing.bind_cpus", "Binding CPUs failed: RuntimeError: broken by the test"),
        ("placing.bind_memory", "Binding memory failed: RuntimeError: broken by the test"),
        ("placing.Launch._export", "Setting the environment failed: RuntimeError: broken by the test"),
        ("placing.aligned", "Checking the alignment failed: RuntimeError: broken by the test"),
        ("placing.Launch._ends_at", "Reading the job's end failed: RuntimeError: broken by the test"),
        ("placing.Launch.place", "Placing the server failed: RuntimeError: broken by the test"),
        ("placing.PlacementDocument", "Placing the server failed: RuntimeError: broken by the test"),
        ("main.to_document", None),
        ("main.announce", None),
        ("main._take", "Bringing a part failed: RuntimeError: broken by the test"),
        ("main.read_plan", "The launch plan could not be read: broken by the test"),
    ],
)
def test_whatever_step_breaks_the_server_starts(
    archive: Path, hub: ReportHub, real_k80: str, target: str, problem: str | None
) -> None:
    """Each step in turn; the job's log names it, and so does the report, unless that is what broke."""
    plan = LaunchPlan(gpus=1, cpus=1, topology_file=real_k80, before=(NOWHERE,))
    done = launch(archive, plan, hub.environ | IN_A_JOB, "/bin/echo", "started", code=(BREAK, str(archive), target))

    assert (done.returncode, done.stdout) == (0, "started\n"), done.stderr
    assert (problem or "broken by the test") in done.stderr
    if problem:
        assert problem in reported(hub).placement.problems


def test_the_launcher_itself_broken_starts_the_server(archive: Path, tmp_path: Path) -> None:
    """If the first module of the archive is broken, the command is still run, with a message."""
    damaged = tmp_path / "damaged.pyz"
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(damaged, "w") as new:
        for name in old.namelist():
            new.writestr(name, "import nothing_of_that_name\n" if name.endswith("/main.py") else old.read(name))

    done = launch(damaged, LaunchPlan(), {}, "/bin/echo", "started")

    assert (done.returncode, done.stdout) == (0, "started\n")
    assert "nothing_of_that_name" in done.stderr

    visible = [
        launch(damaged, LaunchPlan(choose=choose), {"CUDA_VISIBLE_DEVICES": "0,1"}, "/bin/sh", "-c", VISIBLE).stdout
        for choose in (None, NOWHERE)
    ]
    assert visible == ["GPUs: [0,1]\n", "GPUs: []\n"]

    asks = launch(damaged, LaunchPlan(), {ASKS_TURN: "1"}, "/bin/echo", "started")
    assert (asks.returncode, asks.stdout) == (1, ""), "another job may run it"


@pytest.mark.parametrize(("answer", "stdout"), [(204, "started\n"), (409, "")])
def test_a_server_that_another_job_may_run_is_started_once_the_hub_says_so(
    archive: Path, answer: int, stdout: str
) -> None:
    """It is the first thing that the launcher does; where another job runs the server, this one ends in order."""
    with ReportHub(answer) as hub:
        environ = hub.environ | IN_A_JOB | {ASKS_TURN: "1"}
        done = launch(archive, LaunchPlan(), environ, "/bin/echo", "started")

    assert (done.returncode, done.stdout) == (0, stdout), done.stderr
    assert hub.requests[0].path == "/hub/api/gpuspawner/turn"
    assert len(hub.requests) == (1 if answer == 409 else 2)


def test_a_hub_that_is_not_there_is_one_sentence_in_the_log(archive: Path) -> None:
    """The server starts; the hub learns of it when it is back."""
    environ = {"JUPYTERHUB_API_URL": "http://127.0.0.1:1/hub/api", "JUPYTERHUB_API_TOKEN": "t"}

    done = launch(archive, LaunchPlan(), environ, "/bin/echo", "started")

    assert (done.returncode, done.stdout) == (0, "started\n")
    assert done.stderr == (
        "gpuspawner: The report could not be sent to the hub: [Errno 111] Connection refused. "
        "The report will be sent again for up to ten minutes.\n"
    )


def test_a_log_that_takes_no_more_starts_the_server_all_the_same(archive: Path, tmp_path: Path) -> None:
    """A full disk: only the launcher's messages are lost."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, str(archive), "--plan", LaunchPlan().dumps(), "--", "touch", str(tmp_path / "started")],
            env={"PATH": os.environ["PATH"]},
            stdout=full,
            stderr=full,
            check=False,
        )

    assert (done.returncode, (tmp_path / "started").exists()) == (0, True)


SLOW = """
import os, sys
sys.path.insert(0, sys.argv[1])
from jupyterhub_gpuspawner.node import failure, folder, main
pipe, failure.SILENT_SECONDS, end = sys.argv[2], float(sys.argv[3]), failure.report_if_silent
folder.WRITE_SECONDS = 0.1
def write(path):
    if path == os.environ["HOME"]:
        open(pipe).close()
def watched(*arguments):
    end(*arguments)
    os.rename(pipe, pipe + ".end")
folder._fault_of_write, failure.report_if_silent = write, watched
main.main(sys.argv[4:])
"""


@pytest.mark.parametrize(("seconds", "fault"), [(300.0, None), (0.1, "home_silent")], ids=["slow", "silent"])
def test_a_home_that_is_slow_is_not_silent(
    archive: Path, hub: ReportHub, tmp_path: Path, seconds: float, fault: str | None
) -> None:
    """The server starts at once; only a home that still takes no byte later is reported. A pipe stands for the home."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    code = (SLOW, str(archive), str(pipe), str(seconds))
    server_document(launch(archive, LaunchPlan(), hub.environ | {"HOME": str(tmp_path)}, code=code))
    if fault is None:
        pipe.open("w").close()  # waits for who writes

    wait_until(Path(f"{pipe}.end").exists, "the end of the check")
    first, *later = (parse_report(request.body) for request in hub.requests)
    assert (first.failure, first.placement.problems) == (None, ())
    assert [report.failure for report in later] == [StartFailure("home_silent", str(tmp_path))] * bool(fault)
    assert [report.placement.problems for report in later] == [
        (f"A byte could not be written to {tmp_path} within 0.1 s.",)
    ] * bool(fault)


def test_a_launch_without_a_report_asks_no_hub(archive: Path, hub: ReportHub) -> None:
    """It binds and execs."""
    server = server_document(launch(archive, LaunchPlan(cpus=1, report=False), hub.environ))

    assert len(server["cpus"]) == 1
    assert hub.requests == []
    assert server["environ"]["JUPYTERHUB_SERVICE_URL"] == hub.environ["JUPYTERHUB_SERVICE_URL"]


def test_the_server_starts_as_if_there_had_been_no_launcher(archive: Path, hub: ReportHub) -> None:
    """No signal ignored, no file left open, nothing of the plan in its environment, the output its own."""
    plan = LaunchPlan(topology_file="/nonexistent/plan-word")
    done = launch(archive, plan, hub.environ | {"KEPT": "as it was"})
    direct = subprocess.run(
        [sys.executable, "-c", SHOW], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True
    )

    server, alone = server_document(done), json.loads(direct.stdout)
    assert (server["ignored"], server["files"]) == (alone["ignored"], alone["files"])
    assert server["environ"]["KEPT"] == "as it was"
    assert "plan-word" not in json.dumps(server["environ"])


@pytest.mark.parametrize(
    ("command", "code", "sentence"),
    [
        (["/nonexistent/server"], 127, "/nonexistent/server: no such command; PATH is /usr/bin:/bin"),
        (["no-such-command"], 127, "no-such-command: no such command; PATH is /usr/bin:/bin"),
        (["/etc/passwd"], 126, "/etc/passwd cannot be run: Permission denied; PATH is /usr/bin:/bin"),
    ],
)  # fmt: skip
def test_a_command_that_is_not_there_is_named(archive: Path, command: list[str], code: int, sentence: str) -> None:
    """With a shell's exit code, and the PATH that was searched."""
    done = launch(archive, LaunchPlan(report=False), {}, *command)

    assert (done.returncode, done.stderr) == (code, f"gpuspawner: {sentence}\n")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "there is no command after --"),
        (["--plan", "{}"], "there is no command after --"),
        (["--plan", "{}", "--"], "there is no command after --"),
        (["--plan"], "--plan: unknown argument"),
        (["--plan", "{}", "command"], "command: unknown argument"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(archive: Path, arguments: list[str], reason: str) -> None:
    """With the usage, and exit code 2."""
    done = subprocess.run(
        [sys.executable, str(archive), *arguments], capture_output=True, text=True, timeout=60, check=False
    )

    usage = "usage: launch.pyz --plan FILE|JSON -- COMMAND [ARGUMENT...]"
    assert (done.returncode, done.stderr) == (2, f"gpuspawner: {reason}; {usage}\n")


NO_CLAIM = "No GPU is used: without the launch plan, it is unknown whether GPUs must be claimed on this node."
PLANS = {
    "no step": ('{"choose": 7, "gpus": 2}', "", "argument after ** must be a mapping, not int"),
    "cut off, and no claim": ('{"choose": null, "cpus": 2', "2,3", "Expecting ',' delimiter"),
    "a file that is empty": ("EMPTY", "", "Expecting value"),
    "a file that is gone": ("/nonexistent/plan.json", "", "No such file or directory"),
}


@pytest.mark.parametrize(("plan", "visible", "reason"), PLANS.values(), ids=PLANS.keys())
def test_a_plan_that_cannot_be_read_starts_no_server_on_gpus_that_others_may_have(
    archive: Path, hub: ReportHub, k80: str, tmp_path: Path, plan: str, visible: str, reason: str
) -> None:
    """The report says why it cannot be read.

    Where it is not known whether something must choose GPUs, none is used. The server starts in any case.
    """
    empty = tmp_path / "empty.json"
    empty.touch()
    text = plan.replace("EMPTY", str(empty))
    if text.startswith("{") and text.endswith("}"):
        text = json.dumps(json.loads(text) | {"topology_file": k80})
    server = server_document(launch(archive, text, hub.environ | IN_A_JOB))
    problems = reported(hub).placement.problems

    assert server["environ"]["CUDA_VISIBLE_DEVICES"] == visible
    assert problems[0].startswith("The launch plan could not be read: ")
    assert reason in problems[0]
    assert (NO_CLAIM in problems) is (visible == "")


def test_what_chooses_gpus_is_missing(archive: Path, hub: ReportHub, real_k80: str) -> None:
    """The server sees none, and its card says why."""
    plan = LaunchPlan(gpus=1, topology_file=real_k80, choose=NOWHERE)
    done = launch(archive, plan, hub.environ | IN_A_JOB, "/bin/sh", "-c", VISIBLE)

    sentence = "No GPU is used: what chooses GPUs on this node failed: ModuleNotFoundError: No module named 'nowhere'."
    assert (done.returncode, done.stdout) == (0, "GPUs: []\n")
    assert sentence in reported(hub).placement.problems


VISIBLE = 'echo "GPUs: [$CUDA_VISIBLE_DEVICES]"'
RUN_ARCHIVE = """
import runpy
archive, sys.argv = sys.argv[1], [sys.argv[1], *sys.argv[3:]]
runpy.run_path(archive, run_name="__main__")
"""


def test_each_module_is_compiled_once(archive: Path) -> None:
    """Compiling is a third of what a launch costs, and zipimport does it twice by itself."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", COMPILED + RUN_ARCHIVE, str(archive), "", "--port-taken"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    compiled = Counter(done.stdout.splitlines())
    assert {name: count for name, count in compiled.items() if count > 1} == {}
    assert f"{archive}/jupyterhub_gpuspawner/node/main.py" in compiled


COMPILED = """
import sys
def hook(event, arguments):
    if event == "compile" and f"{sys.argv[0]}/jupyterhub_gpuspawner/" in str(arguments[1]):
        print(arguments[1])
sys.addaudithook(hook)
"""


def test_a_plan_may_be_a_file_and_newer_than_the_launcher(archive: Path, hub: ReportHub, tmp_path: Path) -> None:
    """Unknown fields are ignored."""
    path = tmp_path / "plan.json"
    path.write_text('{"version": 2, "policy": "none", "moon_phase": "full"}')

    server_document(launch(archive, str(path), hub.environ))

    assert reported(hub).placement.policy == "none"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_launch_that_is_cancelled_ends_at_once(archive: Path, tmp_path: Path, number: signal.Signals) -> None:
    """Even while it waits for a file system that hangs; the waiting child ends with it."""
    topology = tmp_path / "k1.json"
    os.mkfifo(topology)
    plan = LaunchPlan(topology_file=str(topology), deadline=60).dumps()
    with subprocess.Popen(
        [sys.executable, str(archive), "--plan", plan, "--", "/bin/echo", "started"],
        env={"PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        writing = _held(topology)
        child = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())
        process.send_signal(number)
        output, _ = process.communicate(timeout=10)
    os.close(writing)

    assert process.returncode in (-number, 128 + number, 1)
    assert output == ""
    assert dies(child)


def _held(fifo: Path) -> int:
    """The other end of a FIFO, once a process has opened it to read; that waits for as long as this end is open."""
    for _ in range(1000):
        with suppress(OSError):  # ENXIO: nobody reads yet
            return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        time.sleep(0.01)
    raise AssertionError("the launcher has not opened the topology's file")
