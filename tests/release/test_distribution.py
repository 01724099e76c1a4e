"""The wheel and the source distribution are complete, and work where nothing else of this clone is installed."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

import pytest

from jupyterhub_gpuspawner import __version__

ROOT = Path(__file__).parents[2]
PACKAGE = "jupyterhub_gpuspawner"
NAME = f"{PACKAGE}-{__version__}"
LOAD = """
import importlib.metadata, json
names = ("gpu-profiles", "gpu-slurm")
points = {each.name: each for each in importlib.metadata.entry_points(group="jupyterhub.spawners")}
import jupyterhub_gpuspawner
print(json.dumps([jupyterhub_gpuspawner.__file__, [points[name].load().__name__ for name in names]]))
"""
CONFIG = """
c.JupyterHub.spawner_class = "gpu-profiles"
c.GPUProfilesSpawner.profiles = [
    {"display_name": "One GPU", "slurm": {"partition": "gpu", "gpus": 1, "cpus": 6, "memory": "16G"}},
]
c.GPUSlurmSpawner.req_homedir = "/home/{username}"
"""


def built(source: Path, folder: Path, *kinds: str) -> None:
    """Build distributions of a source tree by its own build backend."""
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", *kinds, "-d", str(folder)],
        cwd=source,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def files(wheel: Path) -> set[str]:
    """The files of the package in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if name.startswith(f"{PACKAGE}/")}


def source_files(folder: str) -> set[str]:
    """The files of a folder of this clone, without what Python makes of them."""
    paths = (path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in paths}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source distribution of this clone."""
    if not importlib.metadata.packages_distributions().get("hatchling"):
        pytest.skip("hatchling is not installed")
    folder = tmp_path_factory.mktemp("dist")
    built(ROOT, folder)
    return folder


@pytest.fixture(scope="module")
def environment(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new virtual environment with the wheel, which takes the dependencies from that of the tests."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, capture_output=True)
    python = folder / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, str(dist / f"{NAME}-py3-none-any.whl")], check=True)
    (site,) = (folder / "lib").glob("python3*/site-packages")
    # After the wheel's own folder. A .pth file within it is not read, so the clone is not on the path.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return folder


def run(environment: Path, folder: Path, *argv: str) -> str:
    """The output of a program of the environment, in an empty folder."""
    done = subprocess.run(
        [str(environment / "bin" / argv[0]), *argv[1:]],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_has_every_file_of_the_package(dist: Path) -> None:
    """Templates, static files, the demo's machines and profiles and ``py.typed``, with what an admin installs."""
    config = {f"{PACKAGE}/{name}" for name in source_files("config")}

    assert files(dist / f"{NAME}-py3-none-any.whl") == source_files(PACKAGE) | config


def test_the_source_distribution_has_what_guides_and_scripts_name(dist: Path) -> None:
    """The examples in config with their modes, the documentation, and all that builds the same wheel again."""
    with tarfile.open(dist / f"{NAME}.tar.gz") as archive:
        modes = {member.name.partition("/")[2]: member.mode for member in archive.getmembers()}
    wanted = source_files("config") | source_files(PACKAGE) | source_files("docker") | source_files("scripts")
    scripts = {name for name in wanted if name.startswith("config/wrappers/")}

    assert wanted - set(modes) == set()
    assert {name: oct(modes[name]) for name in scripts} == dict.fromkeys(scripts, "0o755")
    assert {"CHANGELOG.md", "LICENSE", "README.md", "SECURITY.md", "docs/index.md"} <= set(modes)
    assert [name for name in modes if "__pycache__" in PurePosixPath(name).parts or name.startswith(".ci")] == []


def test_the_source_distribution_builds_the_same_wheel(dist: Path, tmp_path: Path) -> None:
    """Whoever packages it needs no clone."""
    subprocess.run(["tar", "-xzf", str(dist / f"{NAME}.tar.gz"), "-C", str(tmp_path)], check=True)
    built(tmp_path / NAME, tmp_path, "-t", "wheel")

    assert files(tmp_path / f"{NAME}-py3-none-any.whl") == files(dist / f"{NAME}-py3-none-any.whl")


def test_the_installed_wheel_works_without_the_clone(environment: Path, tmp_path: Path) -> None:
    """The command, both spawners by their entry points, a batch script, and the files that an admin installs."""
    (tmp_path / "jupyterhub_config.py").write_text(CONFIG)
    version = run(environment, tmp_path, "gpuspawner", "--version")
    file, spawners = json.loads(run(environment, tmp_path, "python", "-c", LOAD))
    script = run(environment, tmp_path, "gpuspawner", "show", "one-gpu", "--user", "ada")
    run(environment, tmp_path, "gpuspawner", "files", "etc", "--systemd", "--wrappers")
    unit = (tmp_path / "etc" / "jupyterhub.service").read_text()

    assert version == f"gpuspawner, version {__version__}\n"
    assert Path(file).is_relative_to(environment)
    assert spawners == ["GPUProfilesSpawner", "GPUSlurmSpawner"]
    assert "\n#SBATCH --gres=gpu:1\n" in script
    assert f"\nExecStart={environment}/bin/jupyterhub -f {tmp_path}/etc/jupyterhub_config.py\n" in unit
    assert (tmp_path / "etc" / "wrappers" / "submit").stat().st_mode & 0o777 == 0o755
