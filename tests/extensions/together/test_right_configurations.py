"""The configurations that the project shows cause no alarm on a cluster that has what they name."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.check.finding import Options, Severity
from jupyterhub_gpuspawner.profiles.files import read_document
from jupyterhub_gpuspawner.profiles.tuples import slug_of
from jupyterhub_gpuspawner.slurm.client import AccountingNames
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot, Partition, Reservation
from jupyterhub_gpuspawner.slurm.squeue import WillRun
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


def of_demo(_folder: Path) -> str:
    """The profiles of the demo."""
    return f"{HEAD}{ALLOWS}c.GPUProfilesSpawner.profiles_dir = '{ROOT}/jupyterhub_gpuspawner/demo/profiles'\n"


def of_docs(folder: Path) -> str:
    """The profiles of the guides; those that are shown twice have the same name."""
    profiles: dict[str, str] = {}
    for page in sorted((ROOT / "docs" / "howto").glob("*.md")):
        for text in YAML.findall(page.read_text()):
            document = read_document(text).value
            if isinstance(document, dict) and "display_name" in document:
                profiles[document.get("slug") or slug_of(document["display_name"])] = text
    for slug, text in profiles.items():
        (folder / f"{slug}.yaml").write_text(text)
    assert len(profiles) > 10
    return f"{HEAD}{ALLOWS}{GROUPS}c.GPUProfilesSpawner.profiles_dir = {str(folder)!r}\n"


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
    # on purpose: somebody can watch a server end, and another one become idle
    "demo": (of_demo, ["time-doubtful", "idle-too-fine"]),
    "docs": (of_docs, []),
    "tutorial": (of_tutorial, []),
    "workshop": (of_workshop, ["template-mended"] * 3),
}


@pytest.mark.parametrize(("lines", "warnings"), RIGHT.values(), ids=RIGHT.keys())
def test_a_right_configuration_causes_no_alarm(
    tmp_path: Path, lines: Callable[[Path], str], warnings: list[str]
) -> None:
    """No error, and no warning but those that are true: of options that Slurm no longer accepts."""
    config = tmp_path / "jupyterhub_config.py"
    config.write_text(lines(tmp_path))
    findings = findings_in(context_in(config, snapshot=cluster(), client=RecordedClient(accounting=ACCOUNTING)))

    assert [finding.code for finding in findings if finding.severity is not Severity.OK] == warnings
    assert "profile" in [finding.code for finding in findings]


def test_slurm_is_asked_as_each_profiles_own_people(tmp_path: Path) -> None:
    """Two profiles for two groups: Slurm is asked about each profile as those who may use it."""
    profiles = [
        {
            "display_name": name,
            "slug": name,
            "allow": {"users": users},
            "slurm": {"partition": "batch", "time": "1:00:00"},
        }
        for name, users in (("first", PARTICIPANTS[:2]), ("second", PARTICIPANTS[2:4]))
    ]
    config = tmp_path / "jupyterhub_config.py"
    config.write_text(
        f"{HEAD}c.JupyterHub.db_url = 'sqlite:///{tmp_path}/hub.sqlite'\n"
        f"c.GPUProfilesSpawner.profiles = {profiles!r}\nc.Spawner.start_timeout = 300\n"
    )
    client = RecordedClient(accounting=ACCOUNTING, trial=WillRun(MORNING.timestamp(), ("c1",), 1, "batch"))
    site = context_in(config, snapshot=cluster(), client=client, options=Options(people=2))

    assert [(finding.where, finding.text) for finding in findings_in(site) if finding.code.startswith("seats")] == [
        ("profile first", "2 people could start now, by estimate"),
        ("profile second", "2 people could start now, by estimate"),
    ]
    assert len(client.tried) == 4
