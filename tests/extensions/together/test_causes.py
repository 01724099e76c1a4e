"""What people read when a server does not start: each cause is made for real, in one hub and one Slurm, side by side.

With ``GPUSPAWNER_CAUSES=1`` the sentences are written into ``docs/explanation/causes-table.md``.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from jupyterhub_gpuspawner.demo.hub import HubFailed, HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm, SlurmFailed
from jupyterhub_gpuspawner.hub.job.ending import stored_ending
from jupyterhub_gpuspawner.slurm.job import SILENT
from tests.fixtures.hubs import start_hub
from tests.hub.servers import job_id, stored
from tests.hub.visitor import Visitor
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.nightly]

TABLE = Path(__file__).parents[3] / "docs" / "explanation" / "causes-table.md"
SYSTEM_PYTHON = "/usr/bin/python3"
ASK = "please tell your administrator."
NEEDED = f"The profile needs it: {ASK}"
NODES = re.compile(r"\b(c1|c2|d1|m1)\b")


@dataclass(frozen=True)
class Cause:
    """One cause: how it is made, and what is read of it. NODE, JOB, HOME and the like stand for what differs."""

    description: str
    """For the table's reader."""
    profile: Mapping[str, object]
    """Fields of the user's profile."""
    sentence: str
    advice: str
    fault: str
    """The class of the cause, as session records have it."""
    log: str = ""
    """What the line in the hub's log begins with, where that is not the sentence."""
    home: str = ""
    """Shell lines that prepare the home folder, as root; its path is ``$HOME``."""
    login: str = ""
    """The user's ``.bash_profile``."""
    then: Callable[[PrivateSlurm, str], object] | None = None
    """What happens to the job once it runs."""


def slow(**fields: object) -> dict[str, object]:
    """A server that never answers."""
    return {"command": ["/bin/sh", "-c", "sleep 600"], **fields}


def cancelled(slurm: PrivateSlurm, job: str) -> None:
    """Somebody cancels the job."""
    slurm.run("scancel", job)


def at_its_end(slurm: PrivateSlurm, job: str) -> None:
    """The job's time is over; limits are in minutes."""
    slurm.run("scontrol", "update", f"jobid={job}", "endtime=now")


def without_node(slurm: PrivateSlurm, _job: str) -> None:
    """The job's node is set to DOWN."""
    slurm.run("scontrol", "update", "nodename=d1", "state=down", "reason=gone")


MODULE = 'module() { echo "Lmod has detected the following error: unknown module: $2" >&2; return 1; }\n'
CONDA = (
    'conda() { if [ "$1" = shell.bash ]; then echo :; else echo "EnvironmentNameNotFound: Could not find conda '
    'environment: $2" >&2; return 1; fi; }\n'
)
FULL = 'mount -t tmpfs -o size=64k none "$HOME" && { head -c 1M /dev/zero > "$HOME/data" 2>/dev/null || :; }'
LINE = "If this does not help you, send it to your administrator."
LOG = f"The log may say more. {LINE}"
ENDED = "Job JOB ended before your server was ready: "
MEMORY = "Start again with more memory if you can choose it, or work on less data at a time."
CAUSES: dict[str, Cause] = {
    "nomodules": Cause(
        "the node has no `module` command",
        {"environment": {"modules": ["CUDA/12.4"]}},
        "There is no module command on NODE.",
        NEEDED,
        "module_command",
    ),
    "module": Cause(
        "a module that does not exist",
        {"environment": {"modules": ["CUDA/99"]}},
        "The module CUDA/99 cannot be loaded on NODE.",
        NEEDED,
        "module",
        login=MODULE,
    ),
    "noconda": Cause(
        "the node has no `conda` command",
        {"environment": {"conda": "course2026"}},
        "There is no conda command on NODE.",
        NEEDED,
        "conda_command",
    ),
    "conda": Cause(
        "a conda environment that does not exist",
        {"environment": {"conda": "course2026"}},
        "The conda environment course2026 cannot be activated on NODE.",
        NEEDED,
        "conda",
        login=CONDA,
    ),
    "license": Cause(
        "a licence server that does not answer, asked in the profile's `setup`",
        {"environment": {"setup": "echo 'The licence server lic1 does not answer. Ask Bob.' >&2; exit 1"}},
        "The profile's setup ended the job before your server was started. "
        'It wrote: "The licence server lic1 does not answer. Ask Bob."',
        LINE,
        "setup",
    ),
    "prologue": Cause(
        "a line of the site's prologue that fails",
        {"traits": {"req_prologue": "ls /scratch-that-is-not-mounted || exit 1"}},
        "The site's own lines ended the job before your server was started. "
        "It wrote: \"ls: cannot access '/scratch-that-is-not-mounted': No such file or directory\"",
        LINE,
        "prologue",
    ),
    "full": Cause(
        "a home folder that is full (a file system of 64 KiB), and with it the log",
        {"command": [sys.executable, "-c", "open('x', 'w').write('x' * 9999)"]},
        "Your home folder is full.",
        "Delete what you no longer need, or move it elsewhere, and start again; or ask your administrator for more "
        "room.",
        "home_full",
        home=FULL,
    ),
    "readonly": Cause(
        "a home folder that is mounted read-only, with the log elsewhere",
        {"command": [sys.executable, "-c", "open('x', 'w')"], "traits": {"log_dir": "LOGS"}},
        "Your home folder cannot be written on NODE. It wrote: \"OSError: [Errno 30] Read-only file system: 'x'\"",
        "Please contact your administrator.",
        "home_unwritable",
        home='mount --bind "$HOME" "$HOME" && mount -o remount,ro,bind "$HOME"',
    ),
    "tmp": Cause(
        "a folder for temporary files that is full",
        {"command": [sys.executable, "-c", "import os; open(os.environ['TMPDIR'] + '/x', 'w').write('x' * 9999)"]},
        'The folder for temporary files on NODE is full. It wrote: "OSError: [Errno 28] No space left on device"',
        "Please contact your administrator.",
        "tmp_full",
        home=f'mkdir "$HOME/tmp"; HOME=$HOME/tmp; {FULL}',
        login='export TMPDIR="$HOME/tmp"\n',
    ),
    "nolog": Cause(
        "a folder for logs that does not exist on the node",
        {"command": ["/bin/true"], "traits": {"log_dir": "/no/such/folder"}},
        f"{ENDED}The job failed: its log file could not be written.",
        "Please contact your administrator.",
        "job_no_log",
    ),
    "nocommand": Cause(
        "a command that is not there",
        {"command": ["/sw/jupyter/bin/jupyterhub-singleuser"]},
        "There is no command /sw/jupyter/bin/jupyterhub-singleuser on NODE.",
        NEEDED,
        "command",
    ),
    "nojupyter": Cause(
        "jupyterhub is not in the environment",
        {"command": [SYSTEM_PYTHON, "-I", "-S", "-m", "jupyterhub.singleuser"]},
        'The server ended before it was ready. It wrote: "PYTHON: Error while finding module specification for '
        "'jupyterhub.singleuser' (ModuleNotFoundError: No module named 'jupyterhub')\"",
        LOG,
        "server",
    ),
    "port": Cause(
        "a server with a port of its own that is in use",
        {"command": [sys.executable, "-c", "import socket; socket.socket().bind(('127.0.0.1', PORT))"]},
        'The server ended before it was ready. It wrote: "OSError: [Errno 98] Address already in use"',
        LOG,
        "server",
    ),
    "image": Cause(
        "a container image that is missing, with a stand-in for Apptainer that says what it says",
        {
            "command": [
                "/bin/sh",
                "-c",
                'echo "FATAL:   could not open image $0: failed to retrieve path" >&2; exit 255',
                "/sw/images/torch.sif",
            ]
        },
        'The server ended before it was ready. It wrote: "FATAL: could not open image /sw/images/torch.sif: failed to '
        'retrieve path"',
        LOG,
        "server",
    ),
    "memory": Cause(
        "a process that is killed by signal 9, as the kernel does for its memory",
        {"command": [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]},
        f"{ENDED}The job was killed (exit code 137), most often for its memory.",
        MEMORY,
        "job_killed",
    ),
    "login": Cause(
        "a shell profile that exits",
        {"command": ["/bin/true"]},
        f"{ENDED}The job has finished. It reported nothing.",
        SILENT,
        "job_silent",
        login="exit 0\n",
    ),
    "hub": Cause(
        "the node cannot reach the hub",
        slow(environment={"setup": "export JUPYTERHUB_API_URL=http://127.0.0.1:1/hub/api"}, start_timeout=25),
        "Your server did not start within 25 s after Slurm had started its job, so the start was cancelled. Last known "
        'state: Job JOB: The job is running on NODE. It wrote: "The report could not be sent to the hub: [Errno 111] '
        'Connection refused. The report will be sent again for up to ten minutes."',
        "Start again. If it happens again, contact your administrator.",
        "timeout",
    ),
    "hook": Cause(
        "a `pre_spawn_hook` that raises",
        {"command": ["/bin/true"]},
        "The hub could not prepare your server.",
        f"This was not caused by you: {ASK}",
        "hook",
        log="pre_spawn_hook raised OSError: [Errno 30] Read-only file system: '/home/hook' (own_config.py, line N)",
    ),
    "cancelled": Cause(
        "`scancel`, while the server starts",
        slow(),
        f"{ENDED}The job was cancelled.",
        "If you did not cancel it yourself, contact your administrator.",
        "job_cancelled",
        then=cancelled,
    ),
    "limit": Cause(
        "the job's time limit, while the server starts",
        slow(),
        f"{ENDED}The job reached its time limit of LIMIT.",
        "Your files are kept as you last saved them. Start again, with more time if you can choose it.",
        "job_time_limit",
        then=at_its_end,
    ),
    "node": Cause(
        "the node goes DOWN, while the server starts",
        slow(slurm={"partition": "gpu", "cpus": 1, "memory": "100M", "extra": ["--nodelist=d1"]}),
        f"{ENDED}The node of the job failed.",
        "This was not caused by you. Start again: Slurm uses another node if one is available.",
        "job_node_failed",
        then=without_node,
    ),
    "prolog": Cause(
        "Slurm's `Prolog` fails on the node",
        {
            "command": ["/bin/true"],
            "slurm": {"partition": "gpu", "cpus": 1, "memory": "100M", "extra": ["--nodelist=m1"]},
        },
        f"{ENDED}The job was cancelled. Its node takes no more jobs: Prolog error.",
        "This was not caused by you. Start again: Slurm uses another node if one is available.",
        "job_node_drained",
    ),
    "refused": Cause(
        "sbatch refuses the job: no such partition",
        {"command": ["/bin/true"], "slurm": {"partition": "nowhere"}},
        "There is no partition nowhere (available: batch, gpu).",
        "Choose something else, or something smaller; if that does not help, contact your administrator.",
        "submit_rejected",
        log="Slurm refused the job: there is no partition nowhere.",
    ),
}
"""By the user whose server does not start for it."""
LINES = """
import os
from pathlib import Path
c.GPUProfilesSpawner.courses_dir = str(Path(os.environ["GPUSPAWNER_DEMO_FOLDER"]) / "courses")
c.GPUCourses.people = "[a-z]+"
c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 0.5}
c.JupyterHub.concurrent_spawn_limit = 0
c.Spawner.http_timeout = 600

def hook(spawner):  # in the place of the demo's, which writes to homes
    if spawner.user.name == "hook":
        raise OSError(30, "Read-only file system", "/home/hook")

c.Spawner.pre_spawn_hook = hook
from jupyterhub_gpuspawner.extensions.records import keeper
keeper.FAILING_NODES_SECONDS = 1.0
"""


@dataclass(frozen=True)
class Reading:
    """What was read of a start that failed."""

    sentence: str
    """On the page of the person."""
    advice: str
    tile: str
    """On the instructor's page."""
    log: str
    """The line in the hub's log."""
    fault: str
    """The class of the cause."""


def shell(lines: str, home: Path) -> None:
    """Run shell lines for a home folder."""
    subprocess.run(["/bin/sh", "-c", lines], env={**os.environ, "HOME": str(home)}, check=True, timeout=30)


def profile_of(user: str, cause: Cause, folder: Path, port: int) -> dict[str, object]:
    """The profile that the user starts."""
    fields = {"slurm": {"partition": "batch", "cpus": 1, "memory": "100M", "time": "0:10:00"}, **cause.profile}
    text = yaml.safe_dump({"display_name": user, "slug": user, **fields}).replace("LOGS", str(folder / "logs"))
    document: dict[str, object] = yaml.safe_load(text.replace("PORT", str(port)))
    return document


def course_of(user: str) -> str:
    """A course of one person, all day long."""
    today = datetime.now(timezone.utc).date().isoformat()
    sessions = [{"date": today, "from": "00:00", "to": "23:59"}]
    fields = {"name": user, "instructors": ["prof"], "roster": [user], "profile": {"slug": user}}
    return str(yaml.safe_dump({**fields, "zone": "UTC", "sessions": sessions}))


def prepare(hub_folder: Path, user: str, cause: Cause, stack: ExitStack) -> None:
    """The home folder of a user; what is mounted there ends with ``stack``."""
    home = hub_folder / "homes" / user
    home.mkdir(parents=True)
    if cause.home:
        stack.callback(subprocess.run, ["umount", "-l", str(home)], check=False, capture_output=True)
        stack.callback(subprocess.run, ["umount", "-l", str(home / "tmp")], check=False, capture_output=True)
    if cause.login:
        (home / ".bash_profile").write_text(cause.login)
    if cause.home:
        shell(cause.home, home)


def failing_prolog(slurm: PrivateSlurm, stack: ExitStack) -> None:
    """Have slurmd of m1 run a Prolog that fails."""
    before = slurm.conf.read_text()
    program = slurm.folder / "prolog"
    program.write_text('#!/bin/sh\n[ "$SLURMD_NODENAME" != m1 ] || exit 1\n')
    program.chmod(0o755)

    def restore() -> None:
        slurm.conf.write_text(before)
        slurm.run("scontrol", "reconfigure")

    stack.callback(restore)
    slurm.conf.write_text(f"{before}Prolog={program}\n")
    slurm.run("scontrol", "reconfigure")


def resume(slurm: PrivateSlurm) -> None:
    """Take the nodes back that were lost."""

    def back() -> bool:
        for node in ("d1", "m1"):
            with suppress(SlurmFailed):
                slurm.run("scontrol", "update", f"nodename={node}", "state=resume")
        states = slurm.run("sinfo", "-h", "-N", "-n", "d1,m1", "-o", "%T").split()
        return set(states) <= {"idle", "mixed"}

    wait_until(back, "nodes d1 and m1 do not come back", seconds=90)


@pytest.fixture(scope="module")
def hub(slurm_cluster: PrivateSlurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """A hub in which everything is prepared for each cause."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        pytest.skip("needs root, and mounts")
    folder = tmp_path_factory.mktemp("hub")
    (folder / "logs").mkdir()
    (folder / "courses").mkdir()
    for user in CAUSES:
        (folder / "courses" / f"{user}.yaml").write_text(course_of(user))
    with ExitStack() as stack:
        stack.callback(resume, slurm_cluster)
        failing_prolog(slurm_cluster, stack)
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        for user, cause in CAUSES.items():
            prepare(folder, user, cause, stack)
        profiles = [profile_of(user, cause, folder, listener.getsockname()[1]) for user, cause in CAUSES.items()]
        lines = f"{LINES}\nc.GPUProfilesSpawner.profiles = {profiles!r}"
        yield start_hub(stack, slurm_cluster, folder, lines=lines)


@pytest.fixture(scope="module")
def readings(hub: HubProcess, slurm_cluster: PrivateSlurm) -> Mapping[str, Reading]:
    """What was read of each cause."""
    read = fail_all(hub, slurm_cluster)
    if os.environ.get("GPUSPAWNER_CAUSES"):
        TABLE.write_text(table(read))
    return read


def runs(slurm: PrivateSlurm, job: str) -> bool:
    """Whether Slurm has started the job."""
    return slurm.run("squeue", "-h", "-j", job, "-o", "%T") == "RUNNING"


def fail_all(hub: HubProcess, slurm: PrivateSlurm) -> dict[str, Reading]:
    """Start all servers, let happen what ends them, and read."""
    instructor = Visitor(hub, "prof")
    for user in CAUSES:
        hub.api("POST", f"/users/{user}")
        answer = hub.api("POST", f"/users/{user}/server", {"profile": f"course-{user}"})
        assert "There is no profile" not in answer.text, answer.text
    for user, cause in CAUSES.items():
        if cause.then is not None:
            job = job_id(hub, user)
            wait_until(partial(runs, slurm, job), f"{user} waits")
            cause.then(slurm, job)
    for user in CAUSES:
        with suppress(HubFailed):
            hub.wait(user, ready=False, timeout=150)
    token = instructor.token()
    return {user: reading(hub, user, tile(hub, user, token)) for user in CAUSES}


def tile(hub: HubProcess, user: str, token: str) -> str:
    """What the instructor reads of the one person in a course."""
    [person] = hub.api("GET", f"/gpuspawner/courses/{user}", token=token).json()["people"]
    return str(person["fault"])


def reading(hub: HubProcess, user: str, on_tile: str) -> Reading:
    """What is read of one start, with what differs from run to run replaced."""
    page = Visitor(hub, user).pending()
    what, ending = page.soup.select_one("#gpuspawner-what"), stored_ending(stored(hub, user))
    advice = what.find_next_sibling("p") if what is not None else None
    lines = re.findall(rf"The start of {user} failed: (.*)", hub.log.read_text())
    texts = (what.get_text() if what else page.text, advice.get_text() if advice else "", on_tile, " | ".join(lines))
    sentence, why, on_tile, in_log = (plain(hub, user, text) for text in texts)
    return Reading(sentence, why, on_tile, in_log, ending.cause.fault if ending is not None else "")


def plain(hub: HubProcess, user: str, text: str) -> str:
    """The text with names in place of numbers, nodes and folders."""
    text = " ".join(text.encode("latin-1", "replace").decode("utf-8", "replace").split()) if "â" in text else text
    for path, name in ((hub.folder / "homes" / user, "HOME"), (hub.folder / "logs", "LOGS"), (SYSTEM_PYTHON, "PYTHON")):
        text = text.replace(str(path), name)
    text = re.sub(r"\b([Jj]ob) \d+", r"\1 JOB", text)
    text = re.sub(r"jupyterhub-\d+\.log", "jupyterhub-JOB.log", text)
    text = re.sub(r"time limit of [^.]*\.", "time limit of LIMIT.", text)
    text = re.sub(r"\(/[^ ]*/(\w+\.py), line \d+\)", r"(\1, line N)", text)
    return NODES.sub("NODE", " ".join(text.split()))


def table(readings: Mapping[str, Reading]) -> str:
    """The page of the documentation."""
    rows = [
        f"| {cause.description} | {cell(read.sentence)} *{cell(read.advice)}* | {same(read)} | {cell(read.log)} |"
        for cause, read in ((CAUSES[user], read) for user, read in readings.items())
    ]
    return "\n".join([*HEAD.splitlines(), *rows, ""])


HEAD = """\
# What people read when a server does not start

Written by `GPUSPAWNER_CAUSES=1 scripts/test tests/extensions/together/test_causes.py`: each cause is made for real, in
one hub and one Slurm of simulated nodes, and the sentences are copied from the page of the person, from the page of
their instructor, and from the hub's log. NODE, JOB, HOME, LOGS, PYTHON, LIMIT and N stand for what differs. In italics:
what the person is told to do. [When a server does not start](../howto/when-a-server-does-not-start.md) says what an
administrator does.

| cause | the person reads | the instructor's tile | the hub's log, after `The start of NAME failed:` |
| --- | --- | --- | --- |
"""


def cell(text: str) -> str:
    """A text in a table's cell."""
    return text.replace("|", "\\\\|").replace("*", "\\\\*")


def same(read: Reading) -> str:
    """The tile's sentence, where it is another one."""
    return "the same sentence" if read.tile == read.sentence else cell(read.tile)


def to_others(sentence: str) -> str:
    """The sentence as somebody else than the server's user reads it."""
    return sentence.replace("Your", "The").replace("your", "the")


@pytest.mark.parametrize("user", CAUSES)
def test_a_start_that_fails_says_why(readings: Mapping[str, Reading], user: str) -> None:
    """On the person's page, on the instructor's, and in one line of the hub's log."""
    cause, read = CAUSES[user], readings[user]

    assert (read.sentence, read.advice) == (cause.sentence, cause.advice)
    assert (read.tile, read.fault) == (to_others(cause.sentence), cause.fault)
    assert read.log.startswith(cause.log or cause.sentence)
    assert " | " not in read.log  # one line


@pytest.mark.usefixtures("readings")
def test_the_administrator_asks_why(hub: HubProcess) -> None:
    """Of one person the sentence that they have read, of all the causes with what the profile names."""
    config = str(hub.write_configuration())

    def answer(*words: str) -> Any:
        command = [str(Path(sys.executable).with_name("gpuspawner")), *words, "--json", "--config", config]
        return json.loads(subprocess.run(command, cwd=hub.folder, check=True, capture_output=True, timeout=60).stdout)

    why, failures = answer("why", "module"), answer("failures")["failures"]

    assert (why["state"], why["cause"]) == ("failed", {"kind": "start failed", "fault": "module"})
    assert plain(hub, "module", why["sentence"]) == CAUSES["module"].sentence
    assert why["fix"].startswith("Correct `environment.modules` of profile course-module; on ")
    assert {(group["fault"], group["subject"]) for group in failures if group["subject"]} == {
        ("module", "CUDA/99"),
        ("conda", "course2026"),
    }


@pytest.mark.usefixtures("readings")
def test_the_map_marks_the_nodes_on_which_starts_fail(hub: HubProcess) -> None:
    """Those that ``gpuspawner failures`` lists, each with how many starts of how many people, and what drains it."""
    command = [str(Path(sys.executable).with_name("gpuspawner")), "failures", "--json", "--config"]
    listed = subprocess.run(
        [*command, str(hub.write_configuration())], cwd=hub.folder, check=True, capture_output=True, timeout=60
    )
    nodes = json.loads(listed.stdout)["nodes"]
    admin = Visitor(hub, "admin")

    def marks() -> list[str]:
        return [
            " ".join(mark.get_text(" ").split())
            for mark in admin.look("/hub/gpuspawner/cluster").soup(class_="failing")
        ]

    wait_until(lambda: len(marks()) == len(nodes), "the map does not mark them")

    assert nodes
    for node, mark in zip(nodes, marks(), strict=True):
        assert f"{node['starts']} starts" in mark
        assert mark.endswith(node["drain"])
