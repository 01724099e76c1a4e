"""What slurmdbd says of all users, from recorded answers and from what Slurm hides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jupyterhub_gpuspawner.errors import SlurmOutputError, SlurmUnavailable
from jupyterhub_gpuspawner.extensions.slurm_choices.accounting import (
    Accounting,
    Association,
    Qos,
    parse_associations,
    parse_default_accounts,
    parse_qos,
    read_accounting,
)
from tests.slurm.recorded import FOLDER, VERSIONS
from tests.slurm.test_client import StandIns


@pytest.fixture
def slurm(tmp_path: Path) -> StandIns:
    """Stand-ins for Slurm's commands, none of which is there yet."""
    return StandIns(tmp_path / "bin")


RECORDED = ("cluster", "account", "user", "partition", "qos", "grptres", "maxjobs")
ALL = ("deny", "gpu1", "grp", "normal", "short", "small", "tiny")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_associations_of_each_user_in_the_versions_of_slurm(version: str) -> None:
    """Those of accounts, which have no user, are none."""
    text = (FOLDER / version / "accounting" / "associations.out").read_text()

    assert parse_associations(text, RECORDED) == (
        {
            "root": (Association("root", qos=("normal",)),),
            "alice": tuple(
                Association(name, qos=ALL) for name in (*(f"lim{number}" for number in range(1, 7)), "proj")
            ),
            "bob": (Association("proj", qos=("normal",)),),
        },
        0,
    )


@pytest.mark.parametrize("version", ["24.11", "26.05"])
def test_the_questions_of_a_hub_are_answered_by_newer_versions_of_slurm(version: str) -> None:
    """Word for word; the limits of an account are those of its users who have none."""
    folder = FOLDER / version / "accounting"
    associations, left_out = parse_associations((folder / "choices_assoc.out").read_text())
    qos = parse_qos((folder / "choices_qos.out").read_text())
    limits = {
        ("MaxWallPJ", ""): 120,
        ("MaxTRESPJ", "cpu"): 4,
        ("MaxTRESPJ", "gres/gpu"): 1,
        ("MaxTRESPJ", "mem"): 8192,
    }

    assert left_out == 0
    assert {row.account: row.limits for row in associations["alice"] if row.limits} == {"lim5": limits}
    assert associations["bob"] == (Association("proj", qos=("normal",)),)
    assert parse_default_accounts((folder / "choices_user.out").read_text()) == {
        "alice": "proj",
        "bob": "proj",
        "root": "root",
    }
    assert {name: of.limits for name, of in qos.items() if of.limits} == {
        "short": {("MaxWallPJ", ""): 5},
        "deny": {("MaxTRESPJ", "cpu"): 2},
    }


ROWS: dict[str, tuple[str, tuple[dict[str, tuple[Association, ...]], int]]] = {
    "nobody": ("", ({}, 0)),
    "an account of a partition": (
        "a|ada|gpu|normal,long|long||\n",
        ({"ada": (Association("a", "gpu", ("normal", "long"), "long"),)}, 0),
    ),
    "users of a domain": (
        "a|ada@example.org||normal|||\n",
        ({"ada@example.org": (Association("a", "", ("normal",)),)}, 0),
    ),
    "an account that no option of sbatch can name": ("a b|ada|||||\na|ada|||||\n", ({"ada": (Association("a"),)}, 1)),
    "a QOS likewise": ("a|ada||-x,y|-x||\n", ({"ada": (Association("a", "", ("y",)),)}, 1)),
    "a partition likewise": ("a|ada|$(x)||||\n", ({}, 1)),
    "limits of one job": (
        "a|ada||||1-12:00:00|cpu=8,gres/gpu=2,gres/gpu:a100=1,mem=64G,billing=1000\n",
        (
            {
                "ada": (
                    Association(
                        "a",
                        limits={
                            ("MaxWallPJ", ""): 36 * 60,
                            ("MaxTRESPJ", "cpu"): 8,
                            ("MaxTRESPJ", "gres/gpu"): 2,
                            ("MaxTRESPJ", "gres/gpu:a100"): 1,
                            ("MaxTRESPJ", "mem"): 65536,
                            ("MaxTRESPJ", "billing"): 1000,
                        },
                    ),
                )
            },
            0,
        ),
    ),
    "limits that are not understood": ("a|ada||||soon|cpu=many,gpu\n", ({"ada": (Association("a"),)}, 0)),
}


@pytest.mark.parametrize(("text", "expected"), ROWS.values(), ids=ROWS.keys())
def test_rows_of_associations(text: str, expected: Any) -> None:
    """What cannot be requested is left out and counted; it never reaches a form."""
    assert parse_associations(text) == expected


def test_equal_associations_of_many_users_are_one_object() -> None:
    """Memory grows with what is different."""
    by_user, _ = parse_associations("".join(f"a|u{number}||normal|||\n" for number in range(100)))
    assert len({id(rows[0]) for rows in by_user.values()}) == 1


def test_an_answer_with_other_fields_is_not_understood() -> None:
    """A user's text cannot move into another column."""
    with pytest.raises(SlurmOutputError, match="sacctmgr printed 3 fields for account, user"):
        parse_associations("a|b|c\n")


def test_default_accounts_and_qos() -> None:
    """A user without a default account has none."""
    assert parse_default_accounts("ada|a\nbob|\n") == {"ada": "a"}
    assert parse_qos("normal|||\nLesson|DenyOnLimit,RequiresReservation|2:00:00|cpu=4\nhigh|OverPartQOS||\n") == {
        "normal": Qos(),
        "lesson": Qos(
            frozenset({"denyonlimit", "requiresreservation"}), {("MaxWallPJ", ""): 120, ("MaxTRESPJ", "cpu"): 4}
        ),
        "high": Qos(frozenset({"overpartqos"})),
    }


def site_of(slurm: StandIns, *, private: str = "none", storage: str = "slurmdbd", answer: str = "") -> None:
    """A cluster whose slurmdbd answers with this shell line, or with two users'."""
    slurm.add(
        "scontrol",
        f"""[ "$*" = "show config" ] || exit 97; echo "PrivateData = {private}"; echo "ClusterName = rec"
        echo "AccountingStorageType = accounting_storage/{storage}"; echo "SlurmUser = nobody(65534)"
        echo "AccountingStorageEnforce = associations,limits,qos" """,
    )
    slurm.add(
        "sacctmgr",
        answer
        or """case "$*" in
        "-n -P show assoc where cluster=rec format=account,user,partition,qos,defaultqos,maxwall,maxtres")
            printf 'root||||normal||\\na|ada||normal|||\\nb|bob|gpu|normal|normal||\\n';;
        "-n -P show user format=user,defaultaccount") printf 'ada|a\\nbob|b\\n';;
        "-n -P show qos format=name,flags,maxwall,maxtres") printf 'normal|||\\nlesson|RequiresReservation||\\n';;
        "-n -P show user where name="*) echo None;;
        *) echo "stand-in: unexpected $*" >&2; exit 97;; esac""",
    )


OF_ALL = Accounting(
    {"ada": (Association("a", qos=("normal",)),), "bob": (Association("b", "gpu", ("normal",), "normal"),)},
    {"ada": "a", "bob": "b"},
    {"normal": Qos(), "lesson": Qos(frozenset({"requiresreservation"}))},
    "normal",
)


def content(accounting: Accounting) -> dict[str, Any]:
    """All but the time, and slurm.conf's."""
    return {name: value for name, value in vars(accounting).items() if name not in ("taken_at", "config")}


async def test_all_users_in_three_questions(slurm: StandIns) -> None:
    """None of them names a user."""
    site_of(slurm)
    accounting = await read_accounting(slurm.client())
    assert content(accounting) == content(OF_ALL)
    assert (accounting.names_accounts, accounting.names_qos, accounting.config.enforces_limits) == (True, True, True)


async def test_without_slurmdbd_nothing_is_asked(slurm: StandIns) -> None:
    """The cluster has no accounts."""
    site_of(slurm, storage="none", answer="exit 97")
    assert not (await read_accounting(slurm.client())).exists


@pytest.mark.parametrize("private", ["users", "accounts,usage"])
async def test_what_slurm_hides_is_unknown_and_not_empty(
    slurm: StandIns, monkeypatch: pytest.MonkeyPatch, private: str
) -> None:
    """An ordinary account is not shown the associations of others, or not all of them; an operator is."""
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    site_of(slurm, private=private)
    accounting = await read_accounting(slurm.client())

    assert (accounting.hidden, accounting.associations, accounting.hides) == (True, {}, frozenset(private.split(",")))


async def test_what_slurmdbd_hides_by_itself_is_unknown_too(slurm: StandIns, monkeypatch: pytest.MonkeyPatch) -> None:
    """PrivateData may stand in slurmdbd.conf alone: then there are no rows of others, and no error."""
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    site_of(slurm, answer='case "$*" in *AdminLevel) echo None;; *assoc*) echo "root|root|||||";; esac')
    assert (await read_accounting(slurm.client())).hidden


async def test_an_answer_that_lists_nobody_is_none(slurm: StandIns) -> None:
    """As of a program in sacctmgr's place: else everybody would be told that they have no account, and turned away."""
    site_of(slurm, answer='case "$*" in *AdminLevel) echo Administrator;; esac')
    with pytest.raises(SlurmUnavailable, match="shows no association at all of the cluster rec, not even root's"):
        await read_accounting(slurm.client())


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_slurmdbd_that_is_down_is_no_answer(slurm: StandIns, version: str) -> None:
    """So that the last known lists are kept."""
    said = FOLDER / version / "dbd_down" / "sacctmgr.err"
    site_of(slurm, answer=f"cat {said} >&2; exit 1")
    with pytest.raises(SlurmUnavailable):
        await read_accounting(slurm.client())
