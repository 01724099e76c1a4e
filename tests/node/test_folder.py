"""The launcher's own folder: its lock, and what is removed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from base64 import b64encode
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.node import folder as job_folder

pytestmark = pytest.mark.usefixtures("own_descriptors")
HOLD = """
import os, sys
from jupyterhub_gpuspawner.node import folder as job_folder
job_folder.lock_and_clean_up({"GPUSPAWNER_LAUNCHER": sys.argv[1] + "/launch.pyz"})
os.execvp("sh", ["sh", "-c", "echo held; read line"])
"""


def hold(own: Path) -> None:
    job_folder.lock_and_clean_up({"GPUSPAWNER_LAUNCHER": f"{own}/launch.pyz"})


def make(parent: Path, name: str, *, age: float = 100_000.0) -> Path:
    """A folder as the batch script makes it, of some age in seconds."""
    folder = parent / name
    folder.mkdir(mode=0o700)
    for file in ("launch.pyz", "plan.json"):
        (folder / file).write_text("x")
    then = folder.stat().st_mtime - age
    os.utime(folder, (then, then))
    return folder


def left(parent: Path) -> list[str]:
    """What is there."""
    return sorted(path.name for path in parent.iterdir())


def test_what_killed_jobs_have_left_is_removed(tmp_path: Path) -> None:
    """Every unlocked folder is removed; one of today may be of a job that copies data; what is unexpected stays."""
    own = make(tmp_path, "gpuspawner.g1.AAAAAAAAAA", age=0)
    make(tmp_path, "gpuspawner.g1.BBBBBBBBBB")
    make(tmp_path, "gpuspawner.g1.CCCCCCCCCC", age=3600)
    (make(tmp_path, "gpuspawner.g1.DDDDDDDDDD") / "of the user's own").write_text("kept")
    os.utime(tmp_path / "gpuspawner.g1.DDDDDDDDDD", (0, 0))
    make(tmp_path, "gpuspawner.longer-name")
    (tmp_path / "gpuspawner.g1.EEEEEEEEEE").symlink_to(make(tmp_path, "elsewhere"))

    hold(own)

    assert left(tmp_path) == [
        *("elsewhere", "gpuspawner.g1.AAAAAAAAAA", "gpuspawner.g1.CCCCCCCCCC", "gpuspawner.g1.DDDDDDDDDD"),
        *("gpuspawner.g1.EEEEEEEEEE", "gpuspawner.longer-name"),
    ]
    assert left(tmp_path / "elsewhere") == ["launch.pyz", "plan.json"]
    assert left(tmp_path / "gpuspawner.g1.DDDDDDDDDD") == ["of the user's own"]


@pytest.mark.parametrize(
    ("age", "text", "stays"),
    [
        (700.0, "{gone} 7", False),
        (500.0, "{gone} 7", True),
        (700.0, "{alive} 7", True),
        (700.0, "{alive} 8", False),
        (700.0, "", True),
        (700.0, "x y", True),
        (700.0, None, True),
        (100_000.0, "{alive} 7", False),
    ],
)
def test_of_scripts_that_have_ended_folders_stay_ten_minutes(
    tmp_path: Path, age: float, text: str | None, stays: bool
) -> None:
    """The file in it has the script's pid and job; the pid may be another process's by now."""
    left_behind, own = make(tmp_path, "gpuspawner.g1.BBBBBBBBBB"), make(tmp_path, "gpuspawner.g1.AAAAAAAAAA", age=0)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, env={"SLURM_JOB_ID": "7", "PATH": os.defpath}) as script:
        with subprocess.Popen(["true"]) as ended:
            pass
        if text is not None:
            (left_behind / "shell").write_text(text.format(gone=ended.pid, alive=script.pid))
        os.utime(left_behind, (time.time() - age,) * 2)

        hold(own)

        assert left_behind.exists() == stays
        assert script.stdin is not None
        script.stdin.close()


def test_folders_of_other_nodes_stay(tmp_path: Path) -> None:
    """In a parent that nodes share, the locks of their servers are not seen."""
    own = make(tmp_path, "gpuspawner.g1.AAAAAAAAAA", age=0)
    make(tmp_path, "gpuspawner.g1.BBBBBBBBBB")
    make(tmp_path, "gpuspawner.g2.AAAAAAAAAA")
    make(tmp_path, "gpuspawner.g1.cluster.AAAAAAAAAA")

    hold(own)

    assert left(tmp_path) == [
        *("gpuspawner.g1.AAAAAAAAAA", "gpuspawner.g1.cluster.AAAAAAAAAA", "gpuspawner.g2.AAAAAAAAAA")
    ]


def test_a_folder_is_held_as_long_as_its_server_lives(tmp_path: Path) -> None:
    """The claim outlives exec, and ends with the server, however that ends."""
    theirs, own = make(tmp_path, "gpuspawner.g1.AAAAAAAAAA"), make(tmp_path, "gpuspawner.g1.BBBBBBBBBB", age=0)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(theirs)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "held\n"

        hold(own)

        assert left(tmp_path) == [theirs.name, own.name]

        server.kill()
    hold(own)

    assert left(tmp_path) == [own.name]


@pytest.mark.users
def test_anothers_folder_is_not_touched(public_folder: Path, two_users: tuple[str, str]) -> None:
    """Even where it could be."""
    parent = public_folder / "launchers"
    parent.mkdir()
    parent.chmod(0o1777)
    theirs, own = make(parent, "gpuspawner.g1.AAAAAAAAAA"), make(parent, "gpuspawner.g1.BBBBBBBBBB", age=0)
    for path in (theirs, *theirs.iterdir()):
        shutil.chown(path, two_users[0])

    hold(own)

    assert left(parent) == [theirs.name, own.name]


def test_a_launcher_that_runs_from_elsewhere_has_no_folder(tmp_path: Path) -> None:
    """Nothing is locked, and nothing is swept."""
    make(tmp_path, "gpuspawner.g1.BBBBBBBBBB")

    hold(tmp_path)

    assert left(tmp_path) == ["gpuspawner.g1.BBBBBBBBBB"]


BECOME = """
import os, sys
from jupyterhub_gpuspawner.node.folder import unpack_certificates
unpack_certificates(os.environ, sys.argv[1])
os.execvp("sh", ["sh", "-c", 'cat "$JUPYTERHUB_SSL_KEYFILE"; env'])
"""


@pytest.mark.parametrize("folder", ["own", "/proc/self/fd"], ids=["a folder of its own", "a launcher in memory"])
def test_a_server_reads_its_key_wherever_the_launcher_is(folder: str, tmp_path: Path) -> None:
    """The environment has the file's name, and its content no longer."""
    (tmp_path / "own").mkdir()
    answer = subprocess.run(
        [sys.executable, "-c", BECOME, str(tmp_path / folder)],
        env={"PATH": "/usr/bin:/bin", "JUPYTERHUB_SSL_KEYFILE_CONTENT": b64encode(b"the key\n").decode()},
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert answer.startswith("the key\n")
    assert [line.partition("=")[0] for line in answer.splitlines() if "SSL" in line] == ["JUPYTERHUB_SSL_KEYFILE"]


BESIDE = """
import os, shutil, sys
from jupyterhub_gpuspawner.node import child, folder
folder.unpack_certificates(os.environ, "/proc/self/fd")
key = folder.for_another_process(os.environ)["JUPYTERHUB_SSL_KEYFILE"]
child.detach(lambda: os.rename(shutil.copyfile(key, sys.argv[1] + ".new"), sys.argv[1]))
os.execvp("sh", ["sh", "-c", 'until [ -e "$0" ]; do sleep 0.05; done', sys.argv[1]])
"""


def test_the_process_beside_a_server_reads_the_key_that_is_in_memory(tmp_path: Path) -> None:
    """It keeps nothing open, so it finds the server's file by the server's pid."""
    read = tmp_path / "read"
    subprocess.run(
        [sys.executable, "-c", BESIDE, str(read)],
        env={"PATH": "/usr/bin:/bin", "JUPYTERHUB_SSL_KEYFILE_CONTENT": b64encode(b"the key\n").decode()},
        timeout=60,
        check=True,
    )

    assert read.read_bytes() == b"the key\n"
