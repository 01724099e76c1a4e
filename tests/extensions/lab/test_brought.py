"""The companion of JupyterLab as the launcher brings it: unpacked, named to Jupyter, and removed with its folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.batch.launcher import launcher_archive
from jupyterhub_gpuspawner.extensions.lab import carried as lab
from jupyterhub_gpuspawner.extensions.lab.files import companion_files
from jupyterhub_gpuspawner.extensions.lab.node import companion
from tests.node.test_folder import hold, left, make

pytestmark = pytest.mark.usefixtures("own_descriptors")


def launcher_in(parent: Path, name: str = "gpuspawner.g1.AAAAAAAAAA") -> str:
    """The launcher, in a folder as the batch script makes it."""
    folder = parent / name
    folder.mkdir(mode=0o700, parents=True)
    (folder / "launch.pyz").write_bytes(launcher_archive((lab.CARRIED,)))
    return str(folder / "launch.pyz")


def test_the_companion_is_unpacked_and_named_to_jupyter(tmp_path: Path) -> None:
    """After the site's own folders, which keep their precedence; a second launch of the same job changes nothing."""
    environ = {"GPUSPAWNER_LAUNCHER": launcher_in(tmp_path), "JUPYTER_PATH": "/sw/share/jupyter", "HOME": "/home/ada"}
    for _ in range(2):
        companion.provide({}, environ, ["jupyterhub-singleuser"])

    folder = tmp_path / "gpuspawner.g1.AAAAAAAAAA" / "lab"
    files = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert files == companion_files()
    assert environ == {
        "GPUSPAWNER_LAUNCHER": str(folder.parent / "launch.pyz"),
        "HOME": "/home/ada",
        "JUPYTER_PATH": f"/sw/share/jupyter:{folder}",
        "JUPYTER_CONFIG_PATH": str(folder),
        "GPUSPAWNER_USAGE_FILE": f"{folder}/usage.json",
    }


@pytest.mark.parametrize(
    ("home", "bound"),
    [("/home/ada", True), ("parent", False)],
    ids=["a folder that Apptainer does not bind", "a folder in the home"],
)
def test_a_container_gets_the_companions_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str, bound: bool
) -> None:
    """Read-only, beside what the site binds; the folders that Apptainer binds by itself are not bound again."""
    monkeypatch.setattr(companion, "USUALLY_BOUND", ())
    parent = tmp_path / "scratch"
    environ = {
        "GPUSPAWNER_LAUNCHER": launcher_in(parent),
        "HOME": str(parent) if home == "parent" else home,
        "APPTAINER_BIND": "/data",
    }
    companion.provide({}, environ, ["/usr/bin/apptainer"])

    folder = parent / "gpuspawner.g1.AAAAAAAAAA" / "lab"
    binds = {name: environ.get(name) for name in ("APPTAINER_BIND", "SINGULARITY_BIND")}
    both = {"APPTAINER_BIND": f"/data,{folder}:{folder}:ro", "SINGULARITY_BIND": f"{folder}:{folder}:ro"}
    assert binds == (both if bound else {"APPTAINER_BIND": "/data", "SINGULARITY_BIND": None})


def test_a_launcher_without_a_folder_of_its_own_brings_no_companion(tmp_path: Path) -> None:
    """As one that is kept in memory, or the one for servers on the hub's machine."""
    environ = {"GPUSPAWNER_LAUNCHER": launcher_in(tmp_path, "gpuspawner-launcher-x")}
    before = dict(environ)
    companion.provide({}, environ, ["jupyterhub-singleuser"])

    assert environ == before
    assert left(tmp_path / "gpuspawner-launcher-x") == ["launch.pyz"]


def test_a_killed_jobs_companion_is_removed_with_its_folder(tmp_path: Path) -> None:
    """Whatever it contains."""
    gone = launcher_in(tmp_path, "gpuspawner.g1.BBBBBBBBBB")
    companion.provide({}, {"GPUSPAWNER_LAUNCHER": gone}, ["jupyterhub-singleuser"])
    os.utime(Path(gone).parent, (0, 0))
    own = make(tmp_path, "gpuspawner.g1.AAAAAAAAAA", age=0)

    hold(own)

    assert left(tmp_path) == [own.name]
