"""Who of a site's people start: what seats says, and what a real slurmctld with slurmdbd does, on random sites.

``GPUSPAWNER_SITES=30`` asks about so many of each kind, ``GPUSPAWNER_SEED=2`` about others.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.extensions.seats.accounted import CLUSTER, Compared, Site, compare, real, sites
from tests.fixtures.accounting import Accounting, slurmdbd

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(os.geteuid() != 0, reason="jobs are submitted as other accounts"),
]

COUNT = int(os.environ.get("GPUSPAWNER_SITES", "30"))
SEED = int(os.environ.get("GPUSPAWNER_SEED", "2"))
FIRST = Site(
    "first",
    ("NodeName=g1 Gres=gpu:k80:4 State=CLOUD", "PartitionName=gpu Nodes=g1", "AccountingStorageEnforce=associations"),
    (f"add cluster {CLUSTER}",),
)
"""With it slurmdbd gets to know the TRES of GPUs, of which limits can be set then."""
LIMITED = Site(
    "limited",
    (
        "NodeName=g1 Sockets=2 CoresPerSocket=12 RealMemory=64000 Gres=gpu:k80:4 NodeAddr=127.0.0.1 Port=1 State=CLOUD",
        "PartitionName=gpu Nodes=g1 Default=YES DefaultTime=60",
        "AccountingStorageEnforce=associations,limits,qos",
    ),
    (
        "add account top GrpTRES=gres/gpu=3",
        "add account low parent=top",
        "add user mail account=low",
        "add user news account=low MaxTRESPerNode=cpu=1",
        "add user proxy account=low",
        "add user backup account=low",
        "add user daemon account=low",
    ),
    (("daemon", "--account=low --cpus-per-task=2 --gres=gpu:1 --mem=1000 --time=600"),),
    ("mail", "news", "proxy", "backup"),
    "--account=low --cpus-per-task=2 --mem=2000 --time=60 --gres=gpu:1",
)


@pytest.fixture(scope="module")
def accounting(needs_slurm: None, public_folder: Path) -> Iterator[tuple[Accounting, Path]]:
    """A slurmdbd that knows GPUs, and the socket of its munged."""
    folder = public_folder / "accounted"
    with slurmdbd(folder) as running:
        with real(FIRST, folder / "first", running, folder / "munge.socket"):
            time.sleep(1.5)
        yield running, folder


async def compared(site: Site, accounting: tuple[Accounting, Path]) -> Compared:
    running, folder = accounting
    return await compare(site, folder / f"{site.name}-{len(site.accounts)}", running, folder / "munge.socket")


async def test_limits_of_accounts_and_of_users_decide_together_who_starts(accounting: tuple[Accounting, Path]) -> None:
    """One of three GPUs of the account is in use by a job of somebody else; one of these people may have one CPU."""
    found = await compared(LIMITED, accounting)

    assert found.said == found.seen == ("RUNS", "AssocMaxCpuPerNode", "RUNS", "AssocGrpGRES"), str(found)


TIMES = {
    "none, where the partition has no default": ("--partition=none", ("RUNS",) * 3),
    "none, where the partition's default is too long": (
        "--partition=hour",
        ("RUNS", "AssocMaxWallDurationPerJobLimit", "QOSMaxWallDurationPerJobLimit"),
    ),
    "for ever": (
        "--partition=for_ever --time=UNLIMITED",
        ("RUNS", "AssocMaxWallDurationPerJobLimit", "QOSMaxWallDurationPerJobLimit"),
    ),
}


@pytest.mark.parametrize(("options", "reasons"), TIMES.values(), ids=TIMES)
async def test_a_time_that_is_not_requested_is_what_the_limits_allow(
    options: str, reasons: tuple[str, ...], accounting: tuple[Accounting, Path]
) -> None:
    """One has no limit, one that of the association, one that of the QOS."""
    nodes, _, enforced = LIMITED.conf
    site = Site(
        f"times-{options.split('=')[1].split()[0]}",
        (
            nodes,
            "PartitionName=none Nodes=g1 Default=YES MaxTime=1-0",
            "PartitionName=hour Nodes=g1 DefaultTime=60 MaxTime=1-0",
            "PartitionName=for_ever Nodes=g1 MaxTime=UNLIMITED",
            enforced,
        ),
        (
            "add account times",
            "add qos brief MaxWall=30",
            "add user mail account=times",
            "add user news account=times MaxWall=25",
            "add user proxy account=times qos=brief",
        ),
        people=("mail", "news", "proxy"),
        options=f"--account=times --mem=100 {options}",
    )
    found = await compared(site, accounting)

    assert found.said == found.seen == reasons, str(found)


@pytest.mark.nightly
@pytest.mark.parametrize("accounted", [True, False])
async def test_who_starts_is_who_really_starts(accounted: bool, accounting: tuple[Accounting, Path]) -> None:
    """On sites with limits and without, with jobs of others that run and that wait."""
    found = [await compared(site, accounting) for site in sites(SEED, COUNT, accounted=accounted)]

    assert [str(one) for one in found if not one.agree] == []
