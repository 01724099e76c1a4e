"""The folder of an application's socket."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.webapp.gpuspawner_gate import LONGEST_PATH, socket_folder


@pytest.mark.parametrize(
    ("name", "mode", "jobs_own"),
    [
        ("gpuspawner.abcdefghij", 0o700, True),
        ("gpuspawner.abcdefghij", 0o750, False),
        ("else", 0o700, False),
        ("x" * LONGEST_PATH + "/gpuspawner.abcdefghij", 0o700, False),
    ],
)
def test_a_socket_lies_in_a_folder_that_only_its_user_enters(
    tmp_path: Path, name: str, mode: int, jobs_own: bool
) -> None:
    """In the job's, where that is one and the path of the socket fits; otherwise in a new one."""
    job = tmp_path / name
    job.mkdir(parents=True)
    job.chmod(mode)

    folder, new = socket_folder(f"{job}/launch.pyz")

    assert (folder == str(job), new) == (jobs_own, not jobs_own)
    assert Path(folder).stat().st_mode & 0o777 == 0o700
    if new:
        shutil.rmtree(folder)
