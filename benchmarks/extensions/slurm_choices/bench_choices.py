"""What the choices taken from Slurm cost at a site with five thousand users: one reading, and one form.

    python -m benchmarks.extensions.slurm_choices.bench_choices [--users 5000] [--write]

A private slurmdbd has the users, each in two of 200 accounts, with QOS; a private Slurm has two partitions. Read is by
the hub's own code. ``--write`` writes the figures into docs/explanation/slurm-choices-table.md.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from jupyterhub_gpuspawner.extensions.slurm_choices.accounting import Accounting, parse_associations, read_accounting
from jupyterhub_gpuspawner.extensions.slurm_choices.personal import Known, naming_of, refused_choices, with_choices
from jupyterhub_gpuspawner.extensions.slurm_choices.rules import Combination, Person, Rules
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.commands import Installation
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot
from tests.fixtures.accounting import SMALL, AccountedSlurm, slurmdbd

TABLE = Path(__file__).parents[3] / "docs" / "explanation" / "slurm-choices-table.md"
ACCOUNTS = 200
AT_A_TIME = 50
READINGS, FORMS = 5, 200
PROFILE = {
    "display_name": "One core",
    "slug": "one",
    "profile_options": {
        "account": {"choices_from": {"slurm": "accounts"}},
        "partition": {"choices_from": {"slurm": "partitions"}},
        "qos": {"choices_from": {"slurm": "qos"}},
        "reservation": {"choices_from": {"slurm": "reservations"}},
    },
}


def fill(slurm: PrivateSlurm, users: int) -> None:
    """Add the accounts and users."""
    accounts = [f"acc{number:04}" for number in range(ACCOUNTS)]
    for name in ("long", "lesson"):
        slurm.run("sacctmgr", "-i", "add", "qos", name)
    slurm.run("sacctmgr", "-i", "add", "account", ",".join(accounts), timeout=300)
    for first in range(0, users, AT_A_TIME):
        names = ",".join(f"user{number:05}" for number in range(first, min(first + AT_A_TIME, users)))
        own = (accounts[first // AT_A_TIME % ACCOUNTS], accounts[(first // AT_A_TIME + 1) % ACCOUNTS])
        slurm.run(
            *("sacctmgr", "-i", "add", "user", names, f"account={','.join(own)}", "qos=normal,long,lesson"), timeout=300
        )


async def read(slurm: PrivateSlurm) -> tuple[list[float], Accounting, ClusterSnapshot]:
    """Several readings in seconds, and what they have given."""
    client = SlurmClient(Installation(bin_dir=slurm.bin_dir, slurm_conf=str(slurm.conf)))
    seconds = []
    for _ in range(READINGS):
        begun = time.perf_counter()
        accounting = await read_accounting(client)
        seconds.append(time.perf_counter() - begun)
    return seconds, accounting, await client.snapshot()


def milliseconds(action: Callable[[], object], times: int) -> float:
    """The median of its durations."""
    durations = []
    for _ in range(times):
        begun = time.perf_counter()
        action()
        durations.append(1000 * (time.perf_counter() - begun))
    return statistics.median(durations)


def measured(slurm: PrivateSlurm, users: int) -> list[tuple[str, str]]:
    """The rows of the table."""
    seconds, accounting, snapshot = asyncio.run(read(slurm))
    rows = slurm.run(
        *("sacctmgr", "-n", "-P", "show", "assoc", "where", f"cluster={snapshot.config.cluster_name}"),
        "format=account,user,partition,qos,defaultqos",
        timeout=60,
    )
    tracemalloc.start()
    parsed, _ = parse_associations(rows)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    user = "user00000"
    person = Person(user, accounting.associations[user], accounting.default_accounts.get(user, ""))
    profile = parse_profiles([PROFILE])[0]

    def form() -> None:
        rules = Rules(person, accounting, snapshot, time.time())
        own = with_choices(profile, Known({"": rules}))
        values = {name: str(option.initial(own.slurm)) for name, option in own.profile_options.items()}
        refused_choices(own, Combination(), values, replace(rules, naming=naming_of(own)))

    associations = sum(map(len, parsed.values()))
    return [
        ("users", f"{len(parsed):,}"),
        ("associations", f"{associations:,}"),
        ("one reading, three questions for all users together", f"{min(seconds):.2f} to {max(seconds):.2f} s"),
        ("of this parsing, in a thread", f"{milliseconds(lambda: parse_associations(rows), READINGS):.0f} ms"),
        ("kept in memory", f"{kept / 2**20:.1f} MiB"),
        ("the choices of one user in one profile with four such options", f"{milliseconds(form, FORMS):.2f} ms"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=5000)
    parser.add_argument("--write", action="store_true", help="write the table of the documentation")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)
        accounting = stack.enter_context(slurmdbd(folder / "dbd"))
        cluster = AccountedSlurm(
            replace(SMALL, name="bench"), folder / "slurm", accounting, "AccountingStorageEnforce=associations,qos"
        )
        slurm = stack.enter_context(cluster)
        fill(slurm, options.users)
        rows = measured(slurm, options.users)
        version = slurm.run("sinfo", "--version")
    lines = [
        "# What choices taken from Slurm cost",
        "",
        "Generated by `python -m benchmarks.extensions.slurm_choices.bench_choices --write`, with a private "
        "slurmdbd and Slurm",
        f"({version}) on a machine of two shared cores; see [Let the user choose what they have in",
        "Slurm](../howto/add-a-profile.md#let-the-user-choose-what-they-have-in-slurm).",
        "",
        "| | |",
        "| --- | ---: |",
        *(f"| {name} | {value} |" for name, value in rows),
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if options.write:
        TABLE.write_text(text)


if __name__ == "__main__":
    main()
