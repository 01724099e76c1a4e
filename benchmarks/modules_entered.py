"""Which modules of this package are entered by a start, by an answer of squeue, and by a launch on the node.

A start is that of a server in a hub that runs and has started one before: from the request until the server is ready.
Of it the modules of ``hub/`` are counted, in a hub without extensions whose profiles stand in its configuration, and in
one with all extensions and a folder of profiles. Of an answer of squeue all modules are counted that take part in
reading it and telling it to whom waits for it, of a launch those that the launcher imports for a plain profile. A
module is entered when one of its functions is called.

    python benchmarks/modules_entered.py
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from jupyterhub_gpuspawner.batch.launcher import launcher_archive
from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import DEMO_CLUSTER, PrivateSlurm
from jupyterhub_gpuspawner.wire.documents import LaunchPlan
from tests.fixtures.hubs import ASKS_OFTEN, LIGHT, NO_SPAWN_WAIT, new_hub
from tests.waiting import wait_until

PACKAGE = "jupyterhub_gpuspawner"
ALONE = f"""
c.GPUProfilesSpawner.extensions = []
c.GPUProfilesSpawner.profiles_dir = ""
c.GPUProfilesSpawner.profiles = {yaml.safe_load(LIGHT)!r}
"""
RECORDER = """
import json, signal, sys
from pathlib import Path

entered = {}


def record(frame, event, _argument):
    if event != "call" or not frame.f_globals.get("__name__", "").startswith("jupyterhub_gpuspawner."):
        return
    caller = frame
    while caller is not None and caller.f_code.co_qualname != "JobWatcher._ask":
        caller = caller.f_back
    entered.setdefault("squeue" if caller is not None else "others", set()).add(frame.f_globals["__name__"])


def begin(*_):
    entered.clear()
    sys.setprofile(record)


def end(*_):
    sys.setprofile(None)
    text = json.dumps({name: sorted(modules) for name, modules in entered.items()})
    Path("entered.new").write_text(text)
    Path("entered.new").rename("entered.json")


signal.signal(signal.SIGRTMIN, begin)
signal.signal(signal.SIGRTMAX, end)
"""
"""Lines of configuration: which modules are entered between two signals, within answers of squeue and elsewhere."""


def entered(hub: HubProcess, act: Callable[[], object]) -> dict[str, list[str]]:
    """The modules that the hub enters meanwhile."""
    assert hub.process is not None
    result = hub.folder / "entered.json"
    result.unlink(missing_ok=True)
    hub.process.send_signal(signal.SIGRTMIN)
    act()
    hub.process.send_signal(signal.SIGRTMAX)
    wait_until(result.exists, "the hub to write what it has entered")
    modules: dict[str, list[str]] = json.loads(result.read_text())
    return {
        name: [module.removeprefix(f"{PACKAGE}.") for module in modules.get(name, [])] for name in ("squeue", "others")
    }


def of_a_hub(slurm: PrivateSlurm, folder: Path, lines: str) -> tuple[list[str], list[str]]:
    """The modules that a start enters, and those of an answer of squeue."""
    with ExitStack() as stack:
        hub = new_hub(slurm, folder, lines=f"{NO_SPAWN_WAIT}\n{ASKS_OFTEN}\n{RECORDER}\n{lines}")
        stack.callback(hub.stop)
        hub.start()
        for name in ("ann", "ben"):
            hub.api("POST", f"/users/{name}")

        def start(name: str) -> None:
            hub.api("POST", f"/users/{name}/server", {"profile": "light"})
            hub.wait(name, ready=True)

        start("ann")
        of_a_start = entered(hub, lambda: start("ben"))
        of_an_answer = entered(hub, lambda: time.sleep(5))
    return sorted({*of_a_start["others"], *of_a_start["squeue"]}), of_an_answer["squeue"]


def of_a_launch(folder: Path) -> list[str]:
    """The modules of the archive that the launcher imports until it becomes the server."""
    archive = folder / "launch.pyz"
    archive.write_bytes(launcher_archive())
    done = subprocess.run(
        [sys.executable, "-X", "importtime", archive, "--plan", LaunchPlan().dumps(), "--", "true"],
        env={"PATH": os.environ["PATH"], "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    names = re.findall(rf"^import time:.*\| +({PACKAGE}\.[\w.]+)$", done.stderr, re.MULTILINE)
    with_code = [name for name in names if not any(other.startswith(f"{name}.") for other in names)]
    return sorted(name.removeprefix(f"{PACKAGE}.") for name in with_code)


def told(what: str, modules: Iterable[str]) -> None:
    """Print how many there are, and their names."""
    names = list(modules)
    print(f"{what}: {len(names)}")
    for name in names:
        print(f"    {name}")


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as temporary, PrivateSlurm(DEMO_CLUSTER, Path(temporary) / "slurm") as slurm:
        folder = Path(temporary)
        alone, answer = of_a_hub(slurm, folder / "alone", ALONE)
        with_all, _ = of_a_hub(slurm, folder / "all", "")
        for what, modules in (("without extensions", alone), ("with all", with_all)):
            told(f"a start, {what}, in hub/", (name for name in modules if name.startswith("hub.")))
            told(f"a start, {what}, elsewhere", (name for name in modules if not name.startswith("hub.")))
        told("an answer of squeue", answer)
        told("a launch on the node", of_a_launch(folder))


if __name__ == "__main__":
    main()
