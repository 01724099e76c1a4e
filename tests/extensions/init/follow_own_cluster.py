"""Follows the tutorial about one's own cluster: ``python -m tests.extensions.init.follow_own_cluster FOLDER ENV``.

It runs as root, in namespaces of its own, on the machine of :mod:`tests.docs.follow`, whose GPUs are simulated. The
output is a JSON document with the commands, what the page shows and what they said, the seconds of each step, and what
the notebook's cell wrote.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from tests.docs.follow import PASSWORD, ROOT, Reader, blocks, cluster, end_of, prepare
from tests.hub.notebook import Notebook
from tests.hub.visitor import Visitor
from tests.waiting import wait_until

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.demo.hub import HubProcess

PAGE = "tutorial/your-own-cluster.md"
PROFILE, FILE = "p100", "hub/profiles/1-p100.yaml"


class Newcomer(Reader):
    """An admin who has never seen the project, in an empty folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(PAGE, folder, folder / "hub" / "jupyterhub_config.py")
        self.seconds: dict[str, float] = {}
        self.stand_ins["cd hub && jupyterhub"] = lambda _: self.hub.by_command("jupyterhub", folder / "hub")

        self.simulated = ""
        """A line of the configuration, for GPUs that do not exist."""

    def step(self, command: str, shown: str) -> None:
        """Run a command, and note how long it takes."""
        began = time.monotonic()
        super().step(command, shown)
        if command.startswith("gpuspawner init "):
            with self.config.open("a") as file:
                file.write(self.simulated)
        self.seconds[command] = time.monotonic() - began

    def cell(self) -> str:
        """What the page's cell writes in a notebook of ada's, with the profile that the page chooses."""
        began = time.monotonic()
        self.visitor = Visitor(cast("HubProcess", SimpleNamespace(url=self.hub.url, password=PASSWORD)), "ada")
        self.visitor.start({"profile": PROFILE})
        wait_until(
            self.serves,
            lambda: f"the notebook's server does not answer; the log ends:\n{end_of(self.hub.log)}",
            seconds=150,
        )
        hub = cast("HubProcess", SimpleNamespace(url=self.hub.url, token=self.visitor.token()))
        lines = [line.removeprefix(">>> ") for line in session(PAGE) if line.startswith(">>> ")]
        output = Notebook(hub, "ada").cell("\n".join([*lines[:-1], f"print(repr({lines[-1]}))"]))
        self.seconds["notebook"] = time.monotonic() - began
        return output


def session(page: str) -> list[str]:
    """The lines of the page's notebook, and what they write."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    return [line for kind, block in blocks(text) if kind == "pycon" for line in block.splitlines()]


def main(folder: Path, environment: Path) -> None:
    """Follow the page, run its cell, and print what was seen."""
    subprocess.run(["mount", "-t", "proc", "proc", "/proc"], check=True)
    prepare(folder, environment)
    with cluster(folder) as slurm:
        root = folder / "root"
        root.mkdir()
        newcomer = Newcomer(root)
        newcomer.simulated = f"c.GPUSlurmSpawner.topology_file = {slurm.topology_pattern!r}\n"
        newcomer.follow()
        output = newcomer.cell()
        owner = slurm.run("squeue", "-h", "-o", "%u")
        newcomer.stop_it()
        newcomer.hub.stop()
        report = {"steps": [asdict(step) for step in newcomer.steps], "seconds": newcomer.seconds}
        written = (root / FILE).read_text("utf-8")
        print(json.dumps({**report, "file": written, "cell": output, "owner": owner}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
