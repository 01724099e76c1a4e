"""A job that does not run its server: what it reports to the hub, which fault and what has failed.

The whole script is run, with the real launcher.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from jupyterhub_gpuspawner.batch.launcher import launcher_archive
from jupyterhub_gpuspawner.batch.script import render
from jupyterhub_gpuspawner.batch.template import render_template
from jupyterhub_gpuspawner.hub.report.server_report import parse_report
from jupyterhub_gpuspawner.node.failure import last_of
from jupyterhub_gpuspawner.node.folder import faulty_folder, log_folder
from jupyterhub_gpuspawner.profiles.sections import ServerCommand
from jupyterhub_gpuspawner.wire.documents import LaunchPlan, NodeReport, PlacementDocument, StartFailure
from tests.node.conftest import request_of
from tests.standins.report_hub import ReportHub

SETTINGS: Mapping[str, Any] = {"tag": "t", "log_path": "/dev/null", "job_name": "j", "chdir": "/"}
COMMAND = (sys.executable, "-c", "")
NODE = os.uname().nodename


def script(environment: Mapping[str, Any], command: Sequence[str], prologue: str) -> str:
    """The script of a job with this environment and command."""
    request = request_of({"environment": environment} if environment else {})
    return render(
        request,
        launcher=launcher_archive(),
        plan=LaunchPlan(),
        command=ServerCommand(tuple(command)),
        prologue=prologue,
        **SETTINGS,
    )


def run(folder: Path, text: str, *, mounts: str = "", **variables: str) -> tuple[int, list[NodeReport], str]:
    """Run a job's script; returns its exit code, its reports, and its log."""
    if mounts:
        tried = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True, check=False)
        if tried.returncode != 0:
            pytest.skip(f"needs a mount namespace: {tried.stderr.strip()}")
    job, log, home = folder / "job.sh", folder / "job.log", folder / "home"
    job.write_text(text)
    home.mkdir()
    words = ["unshare", "--mount", "/bin/sh", "-c", f'{mounts}exec "$0" "$@"'] if mounts else []
    with ReportHub() as hub, log.open("w") as output:
        done = subprocess.run(
            [*words, "/bin/bash", str(job)],
            env={"PATH": os.environ["PATH"], "HOME": str(home), "SLURM_JOB_ID": "7", **hub.environ, **variables},
            stdout=output,
            stderr=output,
            cwd=folder,
            timeout=120,
            check=False,
        )
        reports = [parse_report(request.body) for request in hub.requests]
    return done.returncode, reports, log.read_text()


MODULES = 'module() { [ "$2" != CUDA/99 ] && [ "$1" != use ]; }\n'
LICENSE = "echo 'The license server lic1 does not answer. Ask Bob.'; exit 3"
CAUSES: dict[str, tuple[Mapping[str, Any], Sequence[str], str, int, StartFailure]] = {
    "no module command": ({"modules": ["CUDA/99"]}, COMMAND, "", 1, StartFailure("module_command")),
    "a line of the profile exits": (
        {"setup": f"{LICENSE}\n"},
        COMMAND,
        "",
        3,
        StartFailure("setup", line="The license server lic1 does not answer. Ask Bob."),
    ),
    "a line of the profile fails with set -e": (
        {"setup": "set -eu; exec 2>&1; echo first; ls /no/such/folder"},
        COMMAND,
        "",
        2,
        StartFailure("setup", line="ls: cannot access '/no/such/folder': No such file or directory"),
    ),
    "a line of the profile ends the job without an error": (
        {"setup": "exit 0"},
        COMMAND,
        "",
        0,
        StartFailure("setup"),
    ),
    "no conda command": ({"conda": "course", "setup": "echo more"}, COMMAND, "", 1, StartFailure("conda_command")),
    "a virtual environment": ({"venv": "/no/such/venv"}, COMMAND, "", 1, StartFailure("venv", "/no/such/venv")),
    "a line of the site": (
        {},
        COMMAND,
        "echo 'scratch is not mounted' >&2; false || exit 9",
        9,
        StartFailure("prologue", line="scratch is not mounted"),
    ),
    "a command that is not there": (
        {},
        ["jupyterhub-no-such-server"],
        "",
        127,
        StartFailure("command", "jupyterhub-no-such-server"),
    ),
    "a command that is no program": ({}, ["/etc/passwd"], "", 126, StartFailure("command_refused", "/etc/passwd")),
}


def test_a_line_of_the_setup_that_fails_ends_the_job_only_if_it_says_so(tmp_path: Path) -> None:
    """As the guide says: a line such as ``cp -n`` may fail and do no harm."""
    ended, reports, log = run(tmp_path, script({"setup": "ls /no/such/folder\nfalse"}, COMMAND, ""))
    (tmp_path / "home").rmdir()
    stopped, failed, _ = run(tmp_path, script({"setup": "ls /no/such/folder || exit 1"}, COMMAND, ""))

    assert (ended, [report.failure for report in reports]) == (0, [None]), log
    assert (stopped, [report.failure and report.failure.fault for report in failed]) == (1, ["setup"])


@pytest.mark.parametrize(("environment", "command", "prologue", "code", "failure"), CAUSES.values(), ids=CAUSES.keys())
def test_a_job_that_cannot_run_its_server_reports_the_step_that_failed(
    tmp_path: Path,
    environment: Mapping[str, Any],
    command: Sequence[str],
    prologue: str,
    code: int,
    failure: StartFailure,
) -> None:
    """With what has failed, or the last line that a program wrote; and the job's exit code stays."""
    ended, reports, log = run(tmp_path, script(environment, command, prologue))
    failures = [report.failure for report in reports if report.failure is not None]

    assert (ended, failures[:1]) == (code, [failure]), log
    assert {report.placement.job_id for report in reports} == {"7"}


def test_a_module_is_named_and_nothing_else_is_reported(tmp_path: Path) -> None:
    """There is no placement to be shown."""
    (tmp_path / "modules.sh").write_text(MODULES)
    modules = script({"modules": ["GCC", "CUDA/99"]}, COMMAND, "")
    ended, reports, _ = run(tmp_path, modules, BASH_ENV=str(tmp_path / "modules.sh"))
    (tmp_path / "home").rmdir()
    paths = script({"module_use": ["/sw/my modules"], "modules": ["GCC"]}, COMMAND, "")
    _, of_path, _ = run(tmp_path, paths, BASH_ENV=str(tmp_path / "modules.sh"))

    placement = PlacementDocument(job_id="7", node=NODE)
    assert (ended, reports) == (1, [NodeReport(0, placement, failure=StartFailure("module", "CUDA/99"))])
    assert of_path == [NodeReport(0, placement, failure=StartFailure("module_path", "/sw/my modules"))]


CONDA = 'conda() { [ "$1" = shell.bash ] && echo :; }\n'


def test_a_conda_environment_that_cannot_be_activated_is_named(tmp_path: Path) -> None:
    """The command itself is there."""
    (tmp_path / "conda.sh").write_text(CONDA)
    text = script({"conda": "no-such-env", "setup": "echo more"}, COMMAND, "")
    ended, reports, log = run(tmp_path, text, BASH_ENV=str(tmp_path / "conda.sh"))

    assert (ended, [report.failure for report in reports]) == (1, [StartFailure("conda", "no-such-env")])
    assert log == "gpuspawner: conda environment no-such-env cannot be activated\n"


OLD_LIBC = "import os, sys; del os.memfd_create; code = sys.argv.pop(1); exec(code)"
"""A Python that was built for an older libc, as those of conda are: it makes no files in memory."""


def old_python(folder: Path) -> str:
    """A PATH on which such a Python is the first."""
    program = folder / "bin" / "python3"
    program.parent.mkdir()
    program.write_text(
        f"#!/bin/sh\n"
        f'while [ "$1" = -I ] || [ "$1" = -S ]; do shift; done\n'
        f'[ "$1" != -c ] || {{ shift; exec {sys.executable} -I -c \'{OLD_LIBC}\' "$@"; }}\n'
        f'exec {sys.executable} -I "$@"\n'
    )
    program.chmod(0o755)
    return f"{program.parent}:{os.environ['PATH']}"


@pytest.mark.parametrize("prologue", ["", "true"])
def test_a_launcher_that_fits_nowhere_is_not_blamed_on_the_lines_before_it(tmp_path: Path, prologue: str) -> None:
    """Neither the profile's setup nor the site's prologue failed: no folder and no memory holds it."""
    mounts = "for place in /tmp /dev/shm; do mount --bind $place $place && mount -o remount,ro,bind $place; done; "
    text = script({}, COMMAND, prologue)
    ended, reports, log = run(tmp_path, text, mounts=mounts, PATH=old_python(tmp_path))

    assert (ended, [report.failure for report in reports]) == (1, [StartFailure("launcher")]), log


def test_a_python_without_files_in_memory_reports_a_failure(tmp_path: Path) -> None:
    """It keeps the launcher in a file for temporary files."""
    _, reports, log = run(tmp_path, script({"modules": ["GCC"]}, COMMAND, ""), PATH=old_python(tmp_path))

    assert [report.failure for report in reports] == [StartFailure("module_command")], log


FAILS = "import sys; print('\\x1b[31mstarting\\x1b[0m', file=sys.stderr); import no_such_module"


def test_a_server_that_fails_reports_the_last_line_of_its_log(tmp_path: Path) -> None:
    """After its placement; in a script of the site's own, too, which does not say when it starts the server."""
    command = [sys.executable, "-c", FAILS]
    ended, reports, _ = run(tmp_path, script({}, command, ""))
    (tmp_path / "home").rmdir()
    own = render_template(
        "#!/bin/bash\n{cmd}\n",
        {},
        launcher=launcher_archive(),
        plan=LaunchPlan(),
        command=ServerCommand(tuple(command)),
        tag="t",
    )
    _, of_own, _ = run(tmp_path, own.script)

    failure = StartFailure("server", line="ModuleNotFoundError: No module named 'no_such_module'")
    assert (ended, [report.failure for report in reports]) == (1, [None, failure])
    assert [report.failure for report in of_own] == [None, failure]


def test_the_log_is_read_though_its_path_is_that_of_another_file(tmp_path: Path) -> None:
    """In the job's own mount namespace."""
    (tmp_path / "other").write_text("another job's\n")
    _, reports, _ = run(
        tmp_path, script({"setup": LICENSE}, COMMAND, ""), mounts="mount --bind other job.log || exit 9; "
    )

    line = "The license server lic1 does not answer. Ask Bob."
    assert [report.failure for report in reports] == [StartFailure("setup", line=line)]


def test_a_script_of_the_sites_own_that_fails_before_the_server_says_so(tmp_path: Path) -> None:
    """With its last line; one that ends without an error has run its server."""
    names: Any = {"launcher": launcher_archive(), "plan": LaunchPlan(), "command": ServerCommand(COMMAND), "tag": "t"}
    fails = render_template("#!/bin/bash\necho no scratch; exit 4\n{cmd}\n", {}, **names)
    ended, reports, _ = run(tmp_path, fails.script)
    (tmp_path / "home").rmdir()
    ends = render_template("#!/bin/bash\n{cmd}\necho done\n", {}, **names)
    _, of_server, _ = run(tmp_path, ends.script)

    assert (ended, [report.failure for report in reports]) == (4, [StartFailure("script", line="no scratch")])
    assert [report.failure for report in of_server] == [None]


FULL = 'mount -t tmpfs -o size=4k,nr_inodes=9 none "$HOME" && head -c 4096 /dev/zero > "$HOME/data"; '
READ_ONLY = 'mount --bind "$HOME" "$HOME" && mount -o remount,ro,bind "$HOME"; '
NO_INODE = 'mount -t tmpfs -o nr_inodes=1 none "$HOME"; '
FOLDERS = {
    "full": (FULL, "home_full", "No space left on device"),
    "without room for one more file": (NO_INODE, "home_full", "No space left on device"),
    "read-only": (READ_ONLY, "home_unwritable", "Read-only file system"),
}


@pytest.mark.parametrize(("mounts", "fault", "word"), FOLDERS.values(), ids=FOLDERS.keys())
def test_a_home_that_takes_no_byte_is_reported_and_the_server_starts(
    tmp_path: Path, mounts: str, fault: str, word: str
) -> None:
    """With its placement, in which it is a problem: what the server makes of it is its own."""
    ended, reports, log = run(tmp_path, script({}, COMMAND, ""), mounts=mounts)
    home = tmp_path / "home"

    assert (ended, [report.failure for report in reports]) == (0, [StartFailure(fault, str(home))]), log
    assert f"{home} cannot be written: {word}." in reports[0].placement.problems


def test_a_log_and_a_temporary_folder_that_are_full_are_faults_of_their_own(tmp_path: Path) -> None:
    """The one in which the server would write first."""
    mounts = "mkdir small; mount -t tmpfs -o size=4k,nr_inodes=9 none small && head -c 4096 /dev/zero > small/data; "
    _, reports, log = run(tmp_path, script({}, COMMAND, ""), mounts=mounts, TMPDIR=str(tmp_path / "small"))

    assert [report.failure for report in reports] == [StartFailure("tmp_full", str(tmp_path / "small"))], log


def test_a_log_whose_folder_the_job_does_not_see_hides_no_other_fault(tmp_path: Path) -> None:
    """In a mount namespace of the job's own, the path of the log may be that of another one."""
    logs, missing = tmp_path / "logs", str(tmp_path / "missing")
    logs.mkdir()
    stderr = os.dup(2)
    with (logs / "job.log").open("w") as log:
        shutil.rmtree(logs)
        os.dup2(log.fileno(), 2)
    try:
        failure = faulty_folder({"HOME": str(tmp_path), "TMPDIR": missing}, log_folder())
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)

    assert failure == (
        StartFailure("tmp_unwritable", missing),
        f"{missing} cannot be written: No such file or directory.",
    )


def test_a_folder_that_hangs_does_not_hang_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a file server that is away does."""
    os.mkfifo(tmp_path / "pipe")
    opened = os.open

    def hang(path: str, flags: int, *mode: int) -> int:
        return opened(tmp_path / "pipe", os.O_WRONLY) if ".gpuspawner-" in str(path) else opened(path, flags, *mode)

    monkeypatch.setattr(os, "open", hang)

    assert faulty_folder({"HOME": str(tmp_path)}, "", 0.5) == (
        StartFailure("home_silent", str(tmp_path)),
        f"A byte could not be written to {tmp_path} within 0.5 s.",
    )


def test_folders_that_can_be_written_are_no_fault_and_nothing_stays_in_them(tmp_path: Path) -> None:
    """Home and TMPDIR may be one."""
    assert faulty_folder({"HOME": str(tmp_path), "TMPDIR": str(tmp_path)}, "") == (None, "")
    assert list(tmp_path.iterdir()) == []


LINES = {
    "Traceback:\n  File x\nImportError: no\n\n": "ImportError: no",
    "no license\nslurmstepd: error: *** JOB 7 CANCELLED ***\n": "no license",
    "no license\n[2026-11-25T01:00:00.000] slurmstepd-g1: error: x\n": "no license",
    "no license\ngpuspawner: The report could not be sent\n++ gpuspawner_report\n": "no license",
    "\x1b[1;31mred\x1b[0m": "red",
    "": "",
}


@pytest.mark.parametrize(("text", "line"), LINES.items())
def test_the_last_line_is_that_of_a_program(text: str, line: str) -> None:
    """Neither Slurm's nor ours, and without colours."""
    assert last_of(text) == line


def test_no_failure_is_reported_of_a_server_that_was_ended(tmp_path: Path) -> None:
    """scancel sends SIGTERM to the script and to what it has started."""
    command = ["/bin/sh", "-c", "kill -TERM $PPID; exit 7"]
    ended, reports, _ = run(tmp_path, script({}, command, ""))

    assert (ended, [report.failure for report in reports]) == (7, [None])


def test_a_hub_that_is_away_does_not_keep_the_job(tmp_path: Path) -> None:
    """And what cannot be sent is not the last line of the log."""
    environ = {"JUPYTERHUB_API_URL": "http://127.0.0.1:1/hub/api"}
    ended, _, log = run(tmp_path, script({"setup": "echo no license; exit 3"}, COMMAND, ""), **environ)

    assert (ended, log) == (3, "no license\n")


def test_a_report_of_a_failure_is_json_that_the_hub_reads() -> None:
    """With the step, in version 4."""
    report = NodeReport(0, PlacementDocument(job_id="7"), failure=StartFailure("setup", line="no license"))
    document = json.loads(report.dumps())

    assert (document["version"], document["failure"]) == (4, {"fault": "setup", "subject": "", "line": "no license"})
