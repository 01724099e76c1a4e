"""``gpuspawner-run`` as the launcher brings it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.extensions.several_nodes.carried import CARRIED
from jupyterhub_gpuspawner.extensions.several_nodes.node import command as run_command
from jupyterhub_gpuspawner.extensions.several_nodes.node.command import ENTRY
from tests.node.test_folder import hold, left, make
from tests.node.test_job_surroundings import run

pytestmark = pytest.mark.usefixtures("own_descriptors")


def test_gpuspawner_run_is_the_last_in_the_path(tmp_path: Path) -> None:
    """Only in a job, so that it hides no command of the user; it is removed with the folder."""
    folder = make(tmp_path, "gpuspawner.g1.AAAAAAAAAA")
    environ = {"GPUSPAWNER_LAUNCHER": f"{folder}/launch.pyz", "GPUSPAWNER_PYTHON": "/opt/a b/python3", "PATH": "/bin"}
    run_command.provide({}, environ, ["jupyterhub-singleuser"])
    assert environ["PATH"] == "/bin"

    environ["SLURM_JOB_ID"] = "7"
    for _ in range(2):
        run_command.provide({}, environ, ["jupyterhub-singleuser"])
    command = folder / "bin" / "gpuspawner-run"
    assert (environ["PATH"], environ["GPUSPAWNER_RUN"]) == (f"/bin:{folder}/bin", str(command))
    assert (
        command.read_text() == f"#!/bin/sh\nexec '/opt/a b/python3' -I '{folder}/launch.pyz' --entry {ENTRY} \"$@\"\n"
    )
    assert os.access(command, os.X_OK)

    os.utime(folder, (0, 0))
    hold(make(tmp_path, "gpuspawner.g1.BBBBBBBBBB", age=0))
    assert left(tmp_path) == ["gpuspawner.g1.BBBBBBBBBB"]


RUN = """#!/bin/bash
for shell in "bash -l" "bash --posix" "bash --posix -l" sh; do
    $shell -c 'gpuspawner-run --help' 2>&1 | head -n 1
done > found
mkdir login
echo 'PATH=/usr/bin:/bin; command_not_found_handle() { echo "not found"; }' > login/.bash_profile
HOME=$PWD/login bash -il <<< 'gpuspawner-run --help' 2>/dev/null | head -n 1 >> found
"$GPUSPAWNER_RUN" --help | head -n 1 >> found
bash --posix -c nosuch >> found 2>&1
"""


@pytest.mark.parametrize("options", ["defaults", "noexec"])
def test_gpuspawner_run_is_a_command_in_every_shell(tmp_path: Path, options: str) -> None:
    """In a login shell, which sets its own PATH, in a notebook cell's sh, in POSIX mode, and by its full path.

    Also in a terminal that has its own word for what it does not find, and where nothing may be executed in TMPDIR. Of
    a command that there is not, bash says that.
    """
    (tmp_path / "tmp").mkdir()
    server = tmp_path / "server"
    server.write_text(f'{RUN}exec {sys.executable} "$@"\n')
    server.chmod(0o755)
    environ = {"TMPDIR": str(tmp_path / "tmp"), "SLURM_JOB_ID": "7"}
    ran = run(
        tmp_path,
        environ,
        mounts=f'mount -t tmpfs -o {options} none "$TMPDIR"; ',
        python=str(server),
        carried=(CARRIED,),
    )

    usage = "usage: gpuspawner-run [OPTIONS] -- COMMAND [ARGUMENT...]"
    assert (ran.code, ran.folder) == (0, str(tmp_path / "tmp")), ran.log
    assert (tmp_path / "found").read_text().splitlines() == [usage] * 6 + ["bash: nosuch: command not found"], ran.log
