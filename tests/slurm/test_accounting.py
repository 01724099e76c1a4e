"""Which limits a job is held to, as slurmctld has them."""

from __future__ import annotations

from math import inf

import pytest

from jupyterhub_gpuspawner.slurm.accounting import (
    WALL,
    exceeded,
    in_order,
    limits_of,
    parse_minutes,
    qos_of_job,
)
from jupyterhub_gpuspawner.slurm.scontrol import parse_config
from jupyterhub_gpuspawner.slurm.text import parse_tres

ENFORCED = {
    "associations": False,
    "associations,qos": False,
    "associations,limits,qos": True,
    "safe": True,
    "associations,limits,qos,safe,wckeys": True,
    "none": False,
}


@pytest.mark.parametrize(("text", "expected"), ENFORCED.items())
def test_limits_are_enforced_by_limits_or_safe(text: str, expected: bool) -> None:
    """AccountingStorageEnforce of slurm.conf(5): ``safe`` sets ``limits``."""
    assert parse_config(f"PrivateData = none\nAccountingStorageEnforce = {text}\n").enforces_limits is expected


USUAL = {
    "the association's default": (("long", ("normal", "long"), "tiny"), "long"),
    "its only one": (("", ("long",), "tiny"), "long"),
    "root's default": (("", ("normal", "tiny"), "tiny"), "tiny"),
    "normal": (("", ("normal", "tiny"), ""), "normal"),
    "an association without any": (("", (), "tiny"), "tiny"),
}


@pytest.mark.parametrize(("known", "expected"), USUAL.values(), ids=USUAL)
def test_a_job_that_names_no_qos_has(known: tuple[str, tuple[str, ...], str], expected: str) -> None:
    """In the order of slurmctld (``_get_qos_info`` of job_mgr.c)."""
    assert qos_of_job(*known) == expected


@pytest.mark.parametrize(
    ("of_partition", "of_job", "flags", "expected"),
    [
        ("part", "own", (), ("part", "own")),
        ("part", "own", ("DenyOnLimit", "OverPartQOS"), ("own", "part")),
        ("", "Own", (), ("own",)),
        ("Own", "own", ("OverPartQOS",), ("own",)),
    ],
)
def test_the_qos_of_the_partition_comes_first(
    of_partition: str, of_job: str, flags: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    """But for a job whose QOS has the flag OverPartQOS; slurm.conf may have a name in other letters."""
    assert in_order(of_partition, of_job, flags) == expected


def test_the_first_that_has_a_limit_counts() -> None:
    """What it does not limit, the next may."""
    limits = [
        ("QOS", limits_of({"maxtres": "cpu=8,gres/gpu=x"})),
        ("account", limits_of({"maxwall": "1:00:00", "maxtres": "cpu=2"})),
    ]
    requested = {WALL: inf, ("MaxTRESPJ", "cpu"): 9.0, ("MaxTRESPJ", "gres/gpu"): 9.0}

    assert [*exceeded(requested, limits)] == [(WALL, "account", 60), (("MaxTRESPJ", "cpu"), "QOS", 8)]


AMOUNTS = {
    "cpu=2,mem=1000M,gres/gpu:k80=1": {"cpu": 2, "mem": 1000, "gres/gpu:k80": 1},
    "mem=1.5G": {"mem": 1536},
    "(null)": {},
    "cpu=x,node=1": {"node": 1},
}


@pytest.mark.parametrize(("text", "amounts"), AMOUNTS.items())
def test_tres_are_numbers_by_name(text: str, amounts: dict[str, float]) -> None:
    """Memory in MiB; what is no number is left out."""
    assert parse_tres(text) == amounts


def test_a_time_is_in_minutes() -> None:
    """And that of a job without one is None."""
    assert [parse_minutes(text) for text in ("1-00:30:00", "UNLIMITED", "Partition_Limit")] == [1470, None, None]
