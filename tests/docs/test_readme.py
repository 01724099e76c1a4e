"""Each command of README is run as it stands there, by a stranger: on a Debian that has git, make and certificates."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.docs.follow import ROOT, blocks, commands

SUITE = "bookworm"
README = (ROOT / "README.md").read_text("utf-8")
HOME = "/root"
CLONE = f"{HOME}/jupyterhub-gpuspawner"
OF_OTHERS = {"make test": "CI runs it", "make test-all": "it is what runs this test"}
"""Commands that are not tried, and why."""


def named() -> list[str]:
    """The commands of README in its order: those of blocks, and those in its sentences."""
    text = re.sub(r"\s+", " ", README)
    in_blocks = [command for kind, block in blocks(README) if kind == "console" for command, _ in commands(block)]
    in_sentences = re.findall(r"`((?:make|scripts/|gpuspawner )[^`]*)`", text)
    return list(dict.fromkeys([*in_blocks, *in_sentences]))


class Machine:
    """A Debian in a folder, with processes of its own."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / SUITE
        self._folder = folder
        made = self.begin(f"bare_root {SUITE} git,make,ca-certificates")
        output, _ = made.communicate()
        assert made.returncode == 0, output

    def begin(self, command: str, *arguments: str) -> subprocess.Popen[str]:
        """Begin a command of scripts/lib.sh."""
        return subprocess.Popen(
            ["bash", "-c", f"set -euo pipefail; . scripts/lib.sh; {command}", "lib", *arguments],
            cwd=ROOT,
            env={**os.environ, "GPUSPAWNER_ROOTS": str(self._folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def shell(self, command: str, folder: str) -> subprocess.Popen[str]:
        """Begin a line of shell in one of its folders."""
        path = "export PATH=/opt/jupyterhub/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root; unset VIRTUAL_ENV"
        return self.begin(f'in_root {SUITE} sh -c "$1"', f"{path}; cd {folder} && {command}")

    def run(self, command: str, folder: str = CLONE) -> tuple[int, str]:
        """Run a line of shell to its end: its status and its output."""
        process = self.shell(command, folder)
        output, _ = process.communicate(timeout=1800)
        return process.returncode, output


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """One on which nothing has been done yet."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a root file system")
    folder = tmp_path_factory.mktemp("machine")
    machine = Machine(folder)
    clone = subprocess.run(
        ["git", "clone", "--quiet", "--bare", str(ROOT), str(machine.root / "srv/repository")], check=False
    )
    assert clone.returncode == 0, "this is no git repository"
    yield machine
    shutil.rmtree(folder, ignore_errors=True)


def runs(machine: Machine, command: str) -> None:
    """It ends with 0."""
    status, output = machine.run(command)
    assert status == 0, output


def clones(machine: Machine, command: str) -> None:
    """The repository is this one."""
    status, output = machine.run(command.replace("<this repository>", f"/srv/repository {CLONE}"), HOME)
    assert status == 0, output


def serves(machine: Machine, command: str) -> None:
    """It prints a link; Ctrl-C ends it, and nothing is left."""
    with machine.shell(command, CLONE) as process:
        watch(machine, process)


def watch(machine: Machine, process: subprocess.Popen[str]) -> None:
    """Read what it prints, then end it."""
    assert process.stdout is not None
    printed = ""
    while "Ctrl-C shuts everything down" not in printed:
        line = process.stdout.readline()
        assert line, printed
        printed += line
    assert re.search(r"^ +http://127\.0\.0\.1:800[01]/hub/demo#\S{20,}$", printed, re.MULTILINE), printed
    assert "Starting a private Slurm" in printed
    assert "Servers run as nobody" in printed
    demos = [one for one in psutil.Process(process.pid).children(recursive=True) if one.cmdline()[2:3] == ["demo"]]
    demos[0].send_signal(2)
    rest, _ = process.communicate(timeout=120)
    assert (process.returncode, rest.strip()) == (0, "Shutting everything down ..."), rest
    assert list((machine.root / "tmp").glob("gpuspawner*")) == []


def installs(machine: Machine, command: str) -> None:
    """JupyterHub's own environment has pip."""
    assert machine.run("python3 -m venv /opt/jupyterhub && pip install -q jupyterhub")[0] == 0
    runs(machine, command)
    (python,) = [text for kind, text in blocks(README) if kind == "python"]
    site = machine.root / "root/site"
    site.mkdir()
    (site / "jupyterhub_config.py").write_text(textwrap.dedent(python))
    assert machine.run("useradd --create-home ada")[0] == 0


def checks(machine: Machine, command: str) -> None:
    """There is no cluster, which it says."""
    status, output = machine.run(command, f"{HOME}/site")
    assert "profile one-gpu-8-cores" in output, output
    assert (status in (1, 3), "Traceback" in output) == (True, False), output


def shows(machine: Machine, command: str) -> None:
    """The batch script, as sbatch would get it."""
    status, output = machine.run(command, f"{HOME}/site")
    assert (status, "#SBATCH --gres=gpu:1" in output) == (0, True), output


def builds(machine: Machine, command: str) -> None:
    """The site, and the reference to which README's links lead."""
    runs(machine, command)
    clone = machine.root / CLONE.lstrip("/")
    missing = [link for link in re.findall(r"\]\((docs/[^)#]+)", README) if not (clone / link).exists()]
    assert (missing, (clone / "docs/_build/index.html").exists()) == ([], True)


STEPS: dict[str, Callable[[Machine, str], None]] = {
    "git clone <this repository> && cd jupyterhub-gpuspawner": clones,
    "make demo": serves,
    "pip install .": installs,
    "scripts/demo": serves,
    'make demo ARGS="--port 8001"': serves,
    "gpuspawner check": checks,
    "gpuspawner show one-gpu-8-cores --user ada": shows,
    "make docs": builds,
}


def test_every_command_of_readme_is_tried() -> None:
    """Or it is said why not."""
    assert sorted(named()) == sorted([*STEPS, *OF_OTHERS])


@pytest.mark.nightly
@pytest.mark.users
@pytest.mark.slurm
@pytest.mark.hub
@pytest.mark.timeout(3600)
def test_each_command_of_readme_works_for_a_stranger(machine: Machine) -> None:
    """In README's order, each after those before it."""
    for command, works in STEPS.items():
        works(machine, command)
