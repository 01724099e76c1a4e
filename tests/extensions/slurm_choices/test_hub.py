"""What is kept of a cluster for all users, and whose it is."""

from __future__ import annotations

import asyncio
import pwd
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyterhub_gpuspawner.extensions.slurm_choices import hub as of_hub
from jupyterhub_gpuspawner.extensions.slurm_choices.accounting import Accounting, Association
from jupyterhub_gpuspawner.extensions.slurm_choices.hub import ClusterChoices, clusters_of, known_for
from jupyterhub_gpuspawner.hub.site.connection import Cluster, Clusters, Location
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles
from tests.extensions.slurm_choices.test_accounting import site_of
from tests.slurm.test_client import StandIns


@pytest.fixture
def slurm(tmp_path: Path) -> StandIns:
    """Stand-ins for Slurm's commands, of which `sacctmgr` writes down what it is asked."""
    stand_ins = StandIns(tmp_path / "bin")
    site_of(stand_ins)
    answers(stand_ins)
    return stand_ins


def answers(slurm: StandIns, more: str = "") -> None:
    """Have sacctmgr write down its questions, and then run ``more``."""
    script = slurm.folder / "sacctmgr"
    site_of(slurm)
    body = script.read_text().removeprefix("#!/bin/sh\n")
    slurm.add("sacctmgr", f'echo "$*" >> {slurm.folder}/asked\n{more}\n{body}')


def asked(slurm: StandIns) -> list[str]:
    """The questions so far, without their formats."""
    return [line.rpartition(" ")[0] for line in (slurm.folder / "asked").read_text().splitlines()]


@pytest.fixture
def cluster(slurm: StandIns) -> Cluster:
    """The cluster of the stand-ins, whose slurmctld tells nothing but its configuration."""
    return Clusters()[Location("", bin_dir=str(slurm.folder))]


async def test_many_users_share_each_question(slurm: StandIns, cluster: Cluster) -> None:
    """A hundred forms at once cost slurmdbd three questions, and none of them names anybody."""
    choices = cluster.of(ClusterChoices)
    await asyncio.gather(*(choices.refresh(f"user{number}", max_age=300) for number in range(100)))

    assert asked(slurm) == ["-n -P show assoc where cluster=rec", "-n -P show user", "-n -P show qos"]


def spawner_on(cluster: Cluster, name: str) -> Any:
    """What is asked of a spawner."""
    return SimpleNamespace(
        user=SimpleNamespace(name=name),
        first_cluster="",
        effective=lambda _cluster: SimpleNamespace(exec_prefix="sudo -u {username}"),
        connections=lambda: {"": cluster},
    )


PROFILE = parse_profiles([{"display_name": "P", "profile_options": {"a": {"choices_from": {"slurm": "accounts"}}}}])[0]


async def test_while_slurmdbd_is_silent_the_last_known_are_kept_for_a_day(
    slurm: StandIns, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With their age; then nothing is known, and nobody has an empty list."""
    choices = cluster.of(ClusterChoices)
    await choices.refresh("ada", max_age=300)
    answers(slurm, "echo 'sacctmgr: error: Sending PersistInit msg: Connection refused' >&2; exit 1")
    choices.accounting.outdate()
    await choices.refresh("ada", max_age=60)  # as at a start, which waits for the answer

    def listed() -> tuple[Any, bool]:
        known = known_for(spawner_on(cluster, "ada"), PROFILE)
        rows = known.rules[""].person.associations
        return rows and [row.account for row in rows], known.age is not None

    assert listed() == (["a"], True)
    monkeypatch.setattr(of_hub, "OLDEST", 0.0)
    assert listed() == (None, True)


async def test_a_hub_that_begins_while_slurmdbd_is_silent_knows_nobody(
    slurm: StandIns, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Which is neither an empty list nor an error; the log says once what is not known."""
    answers(slurm, "exit 1")
    for _ in range(3):
        await cluster.of(ClusterChoices).refresh("ada", max_age=300)

    assert known_for(spawner_on(cluster, "ada"), PROFILE).rules == {}
    assert [record.getMessage() for record in caplog.records if "sacctmgr" in record.getMessage()] == [
        "Which accounts and QOS users have in Slurm is not known as it is now: sacctmgr failed with exit code 1: "
        "no message"
    ]


OF_ADA = (Association("a"),)
ACCOUNTING = Accounting({"ada": OF_ADA, "ada@example.org": (Association("b"),)}, {"ada": "a"})
NAMES: dict[str, tuple[str, dict[str, int], Any]] = {
    "as slurmdbd has it": ("ada", {"ada": 1}, OF_ADA),
    "another case of the same account": ("Ada", {"Ada": 1, "ada": 1}, OF_ADA),
    "another case of another account": ("Ada", {"Ada": 2, "ada": 1}, ()),
    "another case of no account": ("Ada", {"Ada": 2}, ()),
    "with its domain": ("ada@example.org", {"ada@example.org": 3, "ada": 1}, (Association("b"),)),
    "a domain of the same account": ("ada@cluster", {"ada@cluster": 1, "ada": 1}, OF_ADA),
    "nobody whom this machine knows": ("eve", {}, ()),
}


@pytest.mark.parametrize(("owner", "accounts", "expected"), NAMES.values(), ids=NAMES.keys())
async def test_a_user_is_found_by_the_names_of_the_same_account_alone(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, owner: str, accounts: dict[str, int], expected: Any
) -> None:
    """slurmdbd may list an account in another case or without its domain; never is it another's."""

    def by_name(name: str) -> Any:
        return SimpleNamespace(pw_name=name, pw_uid=accounts[name], pw_gid=1)

    def by_uid(uid: int) -> Any:
        return SimpleNamespace(pw_name=min((name for name in accounts if accounts[name] == uid), key=len), pw_uid=uid)

    monkeypatch.setattr(pwd, "getpwnam", by_name)
    monkeypatch.setattr(pwd, "getpwuid", by_uid)
    choices = cluster.of(ClusterChoices)
    await choices.refresh(owner, max_age=300)

    assert choices.person(owner, ACCOUNTING).associations == expected


async def test_what_is_hidden_is_not_known_of_anybody_else(cluster: Cluster) -> None:
    """The hub's own account, whose associations it is shown, has them."""
    choices = cluster.of(ClusterChoices)
    hidden = replace(ACCOUNTING, hidden=True)

    assert choices.person("eve", hidden).associations is None
    assert choices.person("ada", hidden).associations == OF_ADA
    assert choices.person("", ACCOUNTING).associations is None


async def test_memory_is_bounded(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of users who come and go."""
    monkeypatch.setattr(of_hub, "PEOPLE_AT_MOST", 3)
    choices = cluster.of(ClusterChoices)
    for number in range(10):
        await choices.refresh(f"user{number}", max_age=300)

    assert len(choices._people) == 3


def test_the_clusters_of_a_profile() -> None:
    """Its own or the hub's first, and those that its options name."""
    profiles = parse_profiles(
        [
            {"display_name": "A", "profile_options": {"where": {"choices": {"x": {"slurm": {"cluster": "cedar"}}}}}},
            {"display_name": "B", "slurm": {"cluster": "cedar"}},
        ]
    )
    assert [clusters_of(profile, "juniper") for profile in profiles] == [["juniper", "cedar"], ["cedar"]]
