"""A job whose folders, variables or shell are broken: the server starts, the hub is told, and the log says what it is.

The whole script is run, with the real launcher, by both shells that a site's script may have.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.batch.carried import Carried
from tests.node.conftest import job_script
from tests.standins.report_hub import ReportHub

SERVER = "import json, os, sys; json.dump(dict(os.environ), open(sys.argv[1], 'w'))"
MOUNTS = 'for each in $READ_ONLY; do mount -t tmpfs -o ro none "$each" || exit 99; done; '
TINY = 'for each in $FULL; do mount -t tmpfs -o size=16k none "$each" || exit 99; done; '
"""Less space than the launcher needs, which shows only when it is written."""


TMP, SHM, VAR = "/tmp", "/dev/shm", "/var/tmp"


class Ran:
    """What became of a job."""

    def __init__(self, done: subprocess.CompletedProcess[str], environ_path: Path, reports: int) -> None:
        self.code, self.log, self.reports = done.returncode, done.stderr.splitlines(), reports
        self.server: dict[str, str] = json.loads(environ_path.read_text()) if environ_path.exists() else {}

    @property
    def folder(self) -> str:
        """Where the launcher was, without what is at random in the name."""
        return self.server["GPUSPAWNER_LAUNCHER"].rpartition("/gpuspawner.")[0]


def run(
    folder: Path,
    environ: Mapping[str, str],
    *,
    shell: str = "/bin/bash",
    setup: str = "",
    mounts: str = "",
    python: str = sys.executable,
    carried: Sequence[Carried] = (),
) -> Ran:
    """Run a job's script with these variables; ``mounts`` are shell lines in a mount namespace of its own.

    ``python`` is the server's; ``carried`` is what the job has of extensions.
    """
    if mounts:
        tried = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True, check=False)
        if tried.returncode != 0:
            pytest.skip(f"needs a mount namespace: {tried.stderr.strip()}")
    path, environ_path = folder / "job.sh", folder / "seen.json"
    path.write_text(job_script([python, "-c", SERVER, str(environ_path)], setup, carried))
    words = ["unshare", "--mount", "/bin/sh", "-c", f'{mounts}exec "$0" "$@"'] if mounts else []
    with ReportHub() as hub:
        done = subprocess.run(
            [*words, shell, str(path)],
            env={"PATH": os.environ["PATH"], "HOME": str(folder), **hub.environ, **environ},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    return Ran(done, environ_path, len(hub.requests))


@pytest.fixture(params=["/bin/bash", "/bin/dash"])
def shell(request: pytest.FixtureRequest) -> str:
    """The profile's own scripts are bash's; an admin's may be sh's."""
    if not Path(request.param).exists():
        pytest.skip(f"there is no {request.param}")
    return str(request.param)


@pytest.mark.parametrize("name", ["missing", "relative", "file"])
def test_a_tmpdir_that_is_no_folder_is_named_and_another_one_is_used(tmp_path: Path, shell: str, name: str) -> None:
    """It is /tmp then, and nothing is left in it."""
    (tmp_path / "file").touch()
    tmpdir = "file" if name == "relative" else str(tmp_path / name)
    ran = run(tmp_path, {"TMPDIR": tmpdir}, shell=shell)

    assert (ran.code, ran.reports, ran.folder) == (0, 1, TMP)
    assert f"gpuspawner: {tmpdir} cannot be used for the launcher: " in ran.log[0]
    assert not Path(ran.server["GPUSPAWNER_LAUNCHER"]).exists()
    assert ran.server["TMPDIR"] == tmpdir


def test_a_tmpdir_with_blanks_or_that_nothing_may_be_run_from_is_used(tmp_path: Path, shell: str) -> None:
    """The launcher is read, not run."""
    odd = tmp_path / "two words; 'quoted' $HOME"
    odd.mkdir()
    ran = run(tmp_path, {"TMPDIR": str(odd)}, shell=shell, mounts='mount -t tmpfs -o noexec none "$TMPDIR"; ')

    assert (ran.code, ran.reports, ran.folder) == (0, 1, str(odd))


LAST = "process"
FOLDERS: dict[str, tuple[list[str], list[str], str]] = {
    "TMPDIR is full": (["TMPDIR"], [], TMP),
    "TMPDIR takes nothing": ([], ["TMPDIR"], TMP),
    "TMPDIR and /tmp are full": (["TMPDIR", TMP], [], SHM),
    "all but the home are full": (["TMPDIR", TMP, SHM], [], "HOME"),
    "all are full": (["TMPDIR", TMP, SHM, "HOME"], [], LAST),
    "all take nothing": ([], ["TMPDIR", TMP, SHM, "HOME"], LAST),
}


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A folder that is there when /tmp is hidden by another file system."""
    folder = Path(VAR) / f"gpuspawner-test-{os.getpid()}-{tmp_path.name}"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize(("full", "read_only", "used"), FOLDERS.values(), ids=FOLDERS.keys())
def test_of_folders_that_are_full_or_take_nothing_the_next_one_is_used(
    elsewhere: Path, shell: str, full: list[str], read_only: list[str], used: str
) -> None:
    """At last a process keeps it in memory; each folder that failed is named; the server is placed and reported."""
    folders = {"TMPDIR": str(elsewhere / "tmp"), "HOME": f"{elsewhere}/home"}
    for folder in folders.values():
        Path(folder).mkdir()
    broken = [[folders.get(name, name) for name in which] for which in (full, read_only)]
    lists = {"FULL": " ".join(broken[0]), "READ_ONLY": " ".join(broken[1])}
    ran = run(elsewhere, {**folders, **lists}, shell=shell, mounts=MOUNTS + TINY)
    messages = [line for line in ran.log if " cannot be used for the launcher: " in line]

    assert (ran.code, ran.reports) == (0, 1), ran.log
    assert [line.split()[1] for line in messages if line.startswith("gpuspawner: ")] == [*broken[0], *broken[1]]
    if used == LAST:
        assert ran.server["GPUSPAWNER_LAUNCHER"].startswith("/proc/")
        assert "gpuspawner: no folder could hold the launcher; it is kept in memory" in ran.log
    else:
        assert ran.folder == folders.get(used, used)


def test_the_process_that_holds_the_launcher_ends_with_the_job(elsewhere: Path) -> None:
    """Nothing of a job stays."""
    ran = run(elsewhere, {"TMPDIR": "/no", "HOME": "/no", "READ_ONLY": f"{TMP} {SHM}"}, mounts=MOUNTS)
    holder = ran.server["GPUSPAWNER_LAUNCHER"].split("/")[2]

    subprocess.run(["timeout", "30", "tail", f"--pid={holder}", "-f", "/dev/null"], check=True)


BAD = "raise SystemExit('this is not Python\\'s own module')\n"


@pytest.mark.parametrize("name", ["PYTHONPATH", "PYTHONSTARTUP", "PYTHONUSERBASE", "PYTHONPLATLIBDIR"])
def test_no_variable_of_pythons_keeps_the_launcher_from_starting(tmp_path: Path, shell: str, name: str) -> None:
    """The server gets the variable unchanged, since it is the user's."""
    modules = tmp_path / "modules"
    modules.mkdir()
    for module in ("json", "socket", "zipimport", "runpy", "ctypes", "dataclasses", "typing", "site"):
        (modules / f"{module}.py").write_text(BAD)
    server = tmp_path / "server"
    server.write_text(f'#!/bin/sh\nunset PYTHONHOME; export SEEN="${name}"; {name}= exec {sys.executable} "$@"\n')
    server.chmod(0o755)
    ran = run(tmp_path, {name: str(modules)}, shell=shell, python=str(server))

    assert (ran.code, ran.reports, ran.server["SEEN"]) == (0, 1, str(modules)), ran.log


def test_a_pythonhome_that_is_none_is_named_and_unset(tmp_path: Path, shell: str) -> None:
    """With it no Python starts, so the server would not start either."""
    ran = run(tmp_path, {"PYTHONHOME": str(tmp_path)}, shell=shell)

    assert (ran.code, ran.reports) == (0, 1)
    assert "PYTHONHOME" not in ran.server
    assert ran.log[0].startswith(f"gpuspawner: with PYTHONHOME={tmp_path} ")


PYTHONS = {
    "broken": "#!/bin/sh\nkill -SEGV $$\n",
    "says something and does nothing": "#!/bin/sh\necho Welcome\n",
    "too old": "#!/bin/sh\necho False\n",
    "no program": "\x7fELF garbage",
}


@pytest.mark.parametrize("python", PYTHONS.values(), ids=PYTHONS.keys())
def test_a_python3_that_is_none_is_passed_over(tmp_path: Path, shell: str, python: str) -> None:
    """The next one is taken."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "python3").write_text(python)
    (tools / "python3").chmod(0o755)
    ran = run(tmp_path, {"PATH": f"{tools}:/usr/bin:/bin"}, shell=shell)

    assert (ran.code, ran.reports) == (0, 1), ran.log
    assert not ran.server["GPUSPAWNER_PYTHON"].startswith(str(tools))


SETUPS = {
    "a function called python3": "python3() { echo Welcome; }",
    "an alias called python3": "shopt -s expand_aliases; alias python3='echo Welcome'",
    "functions called as the tools that are used": (
        "mktemp() { echo /no; }; rm() { echo no; }; base64() { echo no; }; printf() { echo no; }"
    ),
    "set -e": "set -e",
    "set -u": "set -u",
    "noclobber": "set -o noclobber",
    "noglob": "set -f",
    "pipefail": "set -o pipefail",
    "all of them": "set -eufC -o pipefail",
    "a word separator": "IFS=/.-_",
    "a PATH without tools": "PATH=/no",
    "no standard output": "exec 1>&-",
    "no standard error": "exec 2>&-",
    "neither input nor output": "exec 0<&- 1>&- 2>&-",
    "everything is traced": "set -x",
}


@pytest.mark.parametrize("setup", SETUPS.values(), ids=SETUPS.keys())
def test_what_setup_lines_leave_behind_keeps_no_server_from_starting(tmp_path: Path, setup: str) -> None:
    """Options, functions, closed files: the job goes on, and nothing is left in TMPDIR."""
    (tmp_path / "tmp").mkdir()
    ran = run(tmp_path, {"TMPDIR": str(tmp_path / "tmp")}, setup=setup)

    assert (ran.code, ran.reports) == (0, 1), ran.log
    assert ran.folder == str(tmp_path / "tmp")
    assert list((tmp_path / "tmp").iterdir()) == []
    assert max(map(len, ran.log), default=0) < 1000  # the launcher itself is not traced
