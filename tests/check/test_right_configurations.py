"""The configurations that the project shows cause no alarm on a cluster that has what they name."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.check.finding import Severity
from jupyterhub_gpuspawner.check.questions import AccountingNames
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot, Partition, Reservation
from tests.check.sites import HEAD, RecordedClient, context_in, findings_in
from tests.hub.test_workshop import WORKSHOP
from tests.snapshots import node

ROOT = Path(__file__).parents[2]
MORNING = datetime(2026, 3, 2, 9, tzinfo=timezone.utc)
DAY = 86400
IDLE = frozenset({"IDLE"})
PARTICIPANTS = [f"train{number:03}" for number in range(1, 51)]
ACCOUNTING = AccountingNames(frozenset({"training"}), None)
YAML, PYTHON = (re.compile(rf"^```{kind}\n(.*?)^```$", re.MULTILINE | re.DOTALL) for kind in ("yaml", "python"))
ALLOWS = "c.GPUProfilesSpawner.profiles_dir_allows = ['command', 'software', 'local', 'setup', 'variables']\n"
GROUPS = "c.JupyterHub.load_groups = {'training': ['ada'], 'course': ['ada']}\n"


def cluster() -> ClusterSnapshot:
    """Idle nodes of each kind that the examples name, and the reservations of their courses."""
    kinds = {
        **{f"a{number}": ("gpu:a100:8", 128, 1_000_000) for number in range(1, 9)},
        "d1": ("gpu:p100:8", 80, 512_000),
        "k1": ("gpu:k80:8", 48, 256_000),
        "m1": ("gpu:a100:2,gpu:1g.10gb:4", 64, 512_000),
        "s1": ("gpu:t4:2,shard:t4:8", 32, 128_000),
        "c1": ("", 64, 256_000),
        "c2": ("", 64, 256_000),
    }
    nodes = tuple(
        node(name, gres, cpus=cpus, memory_mib=memory, features=("nvlink",) * name.startswith("a"), states=IDLE)
        for name, (gres, cpus, memory) in kinds.items()
    )
    gpu = tuple(node_state.name for node_state in nodes if node_state.gres)
    partitions = (
        Partition("gpu", nodes=gpu, default=True, max_time=DAY, default_time=3600),
        Partition("mig", nodes=("m1",), max_time=DAY),
        Partition("teaching", nodes=gpu, max_time=DAY),
        Partition("batch", nodes=("c1", "c2"), max_time=DAY),
    )
    start = MORNING.timestamp() - 3600
    reservations = tuple(
        Reservation(f"ml-hpc-{number}", start, start + DAY - 7200, nodes=gpu, flags=frozenset({"DAILY"}))
        for number in (1, 2, 3, 4)
    )
    return ClusterSnapshot(nodes, partitions, reservations, taken_at=MORNING.timestamp())


def of_config(folder: Path) -> str:
    """`config/`, with its folders where they are here, for people whose accounts need not exist here."""
    settings = (ROOT / "config" / "jupyterhub_config.py").read_text().replace("/etc/jupyterhub/", f"{ROOT}/config/")
    settings = settings.replace('"notebookusers"', '"users"')
    database = f"c.JupyterHub.db_url = 'sqlite:///{folder}/hub.sqlite'\n"
    return f"{settings}{database}c.GPUSlurmSpawner.req_homedir = '/home/{{username}}'\n"


def of_tutorial(_folder: Path) -> str:
    """The configuration of the first tutorial."""
    page = (ROOT / "docs" / "tutorial" / "first-hub.md").read_text()
    lines: str = next(text for text in PYTHON.findall(page) if "profiles = " in text)
    return HEAD + lines


def of_workshop(_folder: Path) -> str:
    """A configuration of 2017, whose template the hub corrects."""
    return HEAD + WORKSHOP


RIGHT: dict[str, tuple[Callable[[Path], str], list[str]]] = {
    "config": (of_config, []),
    "tutorial": (of_tutorial, []),
    "workshop": (of_workshop, ["template-mended"] * 3),
}


def assert_no_alarm(folder: Path, lines: Callable[[Path], str], warnings: list[str]) -> None:
    """No error, and no warning but those that are true."""
    config = folder / "jupyterhub_config.py"
    config.write_text(lines(folder))
    findings = findings_in(context_in(config, snapshot=cluster(), client=RecordedClient(accounting=ACCOUNTING)))

    assert [finding.code for finding in findings if finding.severity is not Severity.OK] == warnings
    assert "profile" in [finding.code for finding in findings]


@pytest.mark.parametrize(("lines", "warnings"), RIGHT.values(), ids=RIGHT.keys())
def test_a_right_configuration_causes_no_alarm(
    tmp_path: Path, lines: Callable[[Path], str], warnings: list[str]
) -> None:
    """Warnings are of options that Slurm no longer accepts."""
    assert_no_alarm(tmp_path, lines, warnings)
