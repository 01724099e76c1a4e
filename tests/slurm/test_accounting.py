"""Associations, QOS and usage as sacctmgr and sshare print them."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.slurm.accounting import (
    Association,
    Limits,
    Qos,
    parse_associations,
    parse_default_accounts,
    parse_qos,
    parse_usage,
)
from tests.slurm.recorded import VERSIONS, recorded


@pytest.mark.parametrize("version", VERSIONS)
def test_associations_of_each_version(version: str) -> None:
    """Accounts with the one above them, and users with what they inherit."""
    accounts = parse_associations(recorded(version, "accounting", "accounts").stdout)
    users = parse_associations(recorded(version, "accounting", "users").stdout)
    inherited = {"qos": ("lesson", "normal"), "default_qos": "lesson", "user_submitted": 5}

    assert {each.account: each for each in accounts if each.account in ("root", "dept", "training")} == {
        "root": Association("root", qos=("normal",)),
        "dept": Association("dept", parent="root", qos=("normal",), limits=Limits(group_jobs=10), user_jobs=2),
        "training": Association(
            "training",
            parent="dept",
            qos=("normal",),
            limits=Limits(group_tres={"cpu": 40, "gres/gpu": 3, "mem": 100_000}, group_minutes={"gres/gpu": 6000}),
            user_jobs=2,
            user_submitted=5,
        ),
    }
    assert sorted(users, key=lambda each: (each.user, each.account)) == [
        Association("training", "games", user_jobs=2, **inherited),  # type: ignore[arg-type]
        Association("training", "mail", user_jobs=2, **inherited),  # type: ignore[arg-type]
        Association("training", "news", user_jobs=0, **inherited),  # type: ignore[arg-type]
        Association("dept", "uucp", partition="gpu", qos=("normal",), user_jobs=2),
        Association("training", "uucp", user_jobs=2, **inherited),  # type: ignore[arg-type]
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_qos_of_each_version(version: str) -> None:
    """With their flags and limits."""
    found = {each.name: each for each in parse_qos(recorded(version, "accounting", "qos").stdout)}

    assert (found["normal"], found["lesson"]) == (
        Qos("normal"),
        Qos(
            "lesson",
            flags=frozenset({"DenyOnLimit", "OverPartQOS"}),
            limits=Limits(group_tres={"gres/gpu": 5}, job_tres={"cpu": 8}, longest=7200),
            user_tres={"gres/gpu": 1},
            user_jobs=1,
            account_jobs=7,
        ),
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_default_accounts_and_usage_of_each_version(version: str) -> None:
    """Users that Slurm does not know are absent."""
    usage = parse_usage(recorded(version, "accounting", "usage").stdout)

    assert parse_default_accounts(recorded(version, "accounting", "default_accounts").stdout) == {
        "games": "training",
        "mail": "training",
    }
    assert (list(usage), usage["training"]["gres/gpu"]) == (["training"], 0)


@pytest.mark.parametrize("text", ["training|dept\n", "a|b|c|d|e|f|cpu=x||||||\n" + "|" * 13, "|" * 12 + "many|"])
def test_other_answers_are_refused(text: str) -> None:
    """A missing field or a limit that is no number is never taken for no limit."""
    with pytest.raises(SlurmOutputError):
        parse_associations(text)
