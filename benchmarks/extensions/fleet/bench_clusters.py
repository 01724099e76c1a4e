"""What a hub with two clusters asks of each, beside a hub with one: RPCs of each slurmctld, counted by sdiag.

    python -m benchmarks.extensions.fleet.bench_clusters [--waiting 20] [--idle 5] [--write]

The Slurms are real and private; the hubs are the demo's, with stand-ins for single-user servers. Counted are one view
of the form while nobody has a server, servers that wait in line, and idle servers, as many on each cluster. Those that
wait or are idle are counted from one question of the hub about its jobs to a later one. ``--write`` writes the figures
into docs/explanation/clusters-table.md.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from benchmarks.side_by_side.cluster import rpcs
from benchmarks.side_by_side.phases import from_outside
from jupyterhub_gpuspawner.demo.hub import HubProcess, server_path
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from jupyterhub_gpuspawner.extensions.fleet.upkeep import POLL_SECONDS
from tests.fixtures.accounting import SMALL
from tests.fixtures.hubs import LIGHT, NO_SPAWN_WAIT, start_hub
from tests.hub.visitor import Visitor
from tests.waiting import wait_until

TABLE = Path(__file__).parents[3] / "docs" / "explanation" / "clusters-table.md"
NAMES = ("juniper", "cedar")
WAITING_SECONDS, IDLE_SECONDS = 20.0, 50.0
QUERY_SECONDS = 2.0
"""After which all commands of one question have been answered."""
COLUMNS = ("RPCs of one view of the form", "RPCs per second, {waiting} waiting", "RPCs per hour, {idle} idle")


def count(slurm: PrivateSlurm) -> int:
    """RPCs of this slurmctld so far that commands have caused."""
    return sum(from_outside(rpcs(slurm)).values())


def next_answer(slurm: PrivateSlurm, before: int) -> int:
    """The RPCs of this slurmctld when the hub has asked more than before, and has its answer."""
    wait_until(lambda: count(slurm) > before, "the hub asks nothing", seconds=120)
    time.sleep(QUERY_SECONDS)
    return count(slurm)


def rate(slurm: PrivateSlurm, seconds: float) -> float:
    """RPCs per second from one question to another at least so many seconds later."""
    before, began = next_answer(slurm, count(slurm)), time.monotonic()
    time.sleep(seconds)
    after, ended = next_answer(slurm, count(slurm)), time.monotonic()
    return (after - before) / (ended - began)


def rates(slurms: Mapping[str, PrivateSlurm], seconds: float) -> list[float]:
    """The same of each cluster, at the same time."""
    with ThreadPoolExecutor(len(slurms)) as pool:
        return list(pool.map(lambda slurm: rate(slurm, seconds), slurms.values()))


def start(hub: HubProcess, name: str, profile: str, servers: int) -> list[str]:
    """Ask for so many servers on a cluster; their users."""
    users = [f"{name}-{profile}-{number}" for number in range(servers)]
    for user in users:
        hub.api("POST", f"/users/{user}")
        assert hub.api("POST", server_path(user), {"profile": f"{name}-{profile}"}).ok
    return users


def view(hub: HubProcess, slurms: Mapping[str, PrivateSlurm]) -> list[float]:
    """RPCs of each cluster for one view of the form."""
    before = {name: count(slurm) for name, slurm in slurms.items()}
    Visitor(hub, "visitor").look("/hub/spawn/visitor")
    return [float(next_answer(slurm, before[name]) - before[name]) for name, slurm in slurms.items()]


def measure(slurms: Mapping[str, PrivateSlurm], folder: Path, *, waiting: int, idle: int) -> list[list[float]]:
    """The three figures of each cluster, in a hub that has these clusters."""
    own = {
        name: {"slurm_conf": str(slurm.conf), "topology_file": slurm.topology_pattern} for name, slurm in slurms.items()
    }
    profiles = "".join(
        LIGHT.replace("slug: ", f"slug: {name}-").replace("slurm: {", f"slurm: {{cluster: {name}, ") for name in slurms
    )
    lines = f"{NO_SPAWN_WAIT}\nc.JupyterHub.concurrent_spawn_limit = 0\nc.GPUSlurmSpawner.clusters = {own!r}"
    with ExitStack() as stack:
        hub = start_hub(stack, next(iter(slurms.values())), folder, lines=lines, profiles=profiles)
        form = view(hub, slurms)
        for slurm in slurms.values():
            slurm.run("sbatch", "-p", "gpu", "--exclusive", "--mem=1G", "-o", "/dev/null", "--wrap=sleep 3600")
        users = [user for name in slurms for user in start(hub, name, "k80-node", waiting)]
        for slurm in slurms.values():
            wait_until(lambda slurm=slurm: len(slurm.run("squeue", "-h", "-t", "PD").splitlines()) == waiting)  # type: ignore[misc]
        waited = rates(slurms, WAITING_SECONDS)
        for user in users:
            hub.end(user)
        for user in [user for name in slurms for user in start(hub, name, "light", idle)]:
            hub.wait(user, ready=True)
        time.sleep(POLL_SECONDS + QUERY_SECONDS)  # what the servers' reports say of nodes has been compared
        idled = [per_second * 3600 for per_second in rates(slurms, IDLE_SECONDS)]
        hub.stop()
    for slurm in slurms.values():
        slurm.run("scancel", "-u", slurm.layout.user)
    return [list(figures) for figures in zip(form, waited, idled, strict=True)]


def report(rows: Mapping[str, Sequence[float]], *, waiting: int, idle: int) -> str:
    """The figures, as docs/explanation/clusters-table.md has them."""
    heads = ["", *(column.format(waiting=waiting, idle=idle) for column in COLUMNS)]
    return "\n".join(
        [
            "# What two clusters are asked",
            "",
            "This page is written by `benchmarks/extensions/fleet/bench_clusters.py --write`, which says how it is "
            "measured.",
            "",
            f"| {' | '.join(heads)} |",
            f"|---{'|---:' * len(COLUMNS)}|",
            *(f"| {name} | {form:.0f} | {waits:.2f} | {rest:.0f} |" for name, (form, waits, rest) in rows.items()),
            "",
        ]
    )


def main() -> None:
    """Run the bench, and print or write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--waiting", type=int, default=20, help="servers that wait, on each cluster")
    parser.add_argument("--idle", type=int, default=5, help="idle servers, on each cluster")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # JupyterHub's proxy is in .venv
    rows: dict[str, list[float]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        slurms = {name: stack.enter_context(PrivateSlurm(SMALL, folder / name)) for name in NAMES}
        for number, names in enumerate((NAMES[:1], NAMES), 1):
            of_hub = {name: slurms[name] for name in names}
            figures = measure(of_hub, folder / f"hub{number}", waiting=options.waiting, idle=options.idle)
            kind = "the only cluster of a hub" if number == 1 else "{}, one of two"
            rows |= {kind.format(name): row for name, row in zip(names, figures, strict=True)}
    text = report(rows, waiting=options.waiting, idle=options.idle)
    print(text)
    if options.write:
        TABLE.write_text(text)


if __name__ == "__main__":
    main()
