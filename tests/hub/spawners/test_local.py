"""Servers on the hub's own machine, and the launcher's file."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.batch.launcher import launcher_archive
from jupyterhub_gpuspawner.hub.spawners.delegate import LauncherFile
from tests.hub.conftest import COMMAND, StartHub


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_the_launchers_file_is_made_once(temporary: Path) -> None:
    """Everyone may read it, and only the hub may write it."""
    launcher = LauncherFile()
    path = launcher.path()

    assert launcher.path() == path
    assert path.parent.parent == temporary
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o644, 0o755)
    assert path.read_bytes() == launcher_archive()
    launcher.remove()
    assert list(temporary.iterdir()) == []


def _take_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


def _take_all(path: Path) -> None:
    shutil.rmtree(path.parents[1])


def _replace_folder(path: Path) -> None:
    shutil.rmtree(path.parent)
    path.parent.mkdir()
    path.write_bytes(b"x" * len(launcher_archive()))


def _link(path: Path) -> None:
    moved = path.parent.with_name("moved")
    path.parent.rename(moved)
    path.parent.symlink_to(moved)


TAKEN: dict[str, Callable[[Path], None]] = {
    "the file": Path.unlink,
    "its content": lambda path: os.truncate(path, 0),
    "the folder": _take_folder,
    "the folder of all temporary files": _take_all,
    "the folder, and another user made one of that name": _replace_folder,
    "the folder, and another user made a link of that name": _link,
}


@pytest.mark.parametrize("take", TAKEN.values(), ids=TAKEN.keys())
@pytest.mark.usefixtures("temporary")
def test_a_cleaner_takes_the_launcher(take: Callable[[Path], None]) -> None:
    """The next start creates another one, and does not run a file that another user has put in its place."""
    launcher = LauncherFile()
    path = launcher.path()
    take(path)
    again = launcher.path()

    assert again != path
    assert zipfile.is_zipfile(again)
    assert again.read_bytes() == launcher_archive()
    launcher.remove()


@pytest.mark.usefixtures("temporary")
def test_a_cleaner_that_goes_by_age_finds_it_new() -> None:
    """Each start touches file and folder."""
    launcher = LauncherFile()
    path = launcher.path()
    for each in (path, path.parent):
        os.utime(each, (0, 0))
    launcher.path()

    assert min(path.stat().st_mtime, path.parent.stat().st_mtime) > 0
    launcher.remove()


PROFILES = f"""
- {{display_name: Here, slug: here, kind: local, port_range: 21300-21399, command: {COMMAND}}}
"""


@pytest.mark.slurm
@pytest.mark.hub
def test_a_hub_that_lost_its_temporary_files_starts_servers_here(start_light_hub: StartHub, tmp_path: Path) -> None:
    """Twice, and within the profile's ports."""
    hub = start_light_hub(profiles=PROFILES, TMPDIR=str(tmp_path))
    for _ in range(2):
        hub.spawn("ann", {"profile": "here"})
        ports = re.findall(r"Adding user ann to proxy /user/ann/ => http://127\.0\.0\.1:(\d+)", hub.log.read_text())
        hub.end("ann")
        left = list(tmp_path.glob("gpuspawner-launcher-*"))
        for folder in left:
            shutil.rmtree(folder)
        assert len(left) == 1
        assert ports != []
        assert [port for port in ports if not 21300 <= int(port) <= 21399] == []
