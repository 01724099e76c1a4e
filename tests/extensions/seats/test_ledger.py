"""Which jobs the limits of accounting let start, by the answers of three versions of Slurm, and of small sites."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.extensions.seats.accounting import (
    Accounting,
    Association,
    Budget,
    parse_accounting,
)
from jupyterhub_gpuspawner.extensions.seats.ledger import Charged, Ledger, UnknownCharge, Usage, billing

RECORDED = Path(__file__).parents[2] / "data" / "assoc_mgr"
VERSIONS = ("22.05", "24.11", "26.05")


def recorded(version: str) -> Accounting:
    """An account in another, three people, and a QOS with limits of which a job is counted."""
    texts = [(RECORDED / f"{version}.{name}.txt").read_text() for name in ("assoc_mgr", "qos", "assoc")]
    return parse_accounting(*texts)


@pytest.mark.parametrize("version", VERSIONS)
def test_limits_and_what_is_used_are_read_of_each_version(version: str) -> None:
    read = recorded(version)
    phys, bin_, deny = (
        read.associations[Association("phys")],
        read.associations[Association("sub", "bin")],
        read.qos["deny"],
    )

    assert phys.limits == {
        ("GrpTRES", "cpu"): 8,
        ("GrpTRES", "gres/gpu"): 2,
        ("GrpTRESMins", "cpu"): 1000,
        ("MaxJobs", ""): 3,
    }
    assert (phys.used["GrpJobs", ""], phys.used["GrpTRES", "gres/gpu"], phys.used["GrpTRESRunMins", "cpu"]) == (
        2,
        2,
        120,
    )
    assert bin_.limits == {("MaxJobs", ""): 3, ("MaxTRESPJ", "cpu"): 6}
    assert [*read.chain(Association("sub", "bin"))] == [
        Association("sub", "bin"),
        *map(Association, ("sub", "phys", "root")),
    ]
    assert (deny.own.limits["MaxTRESPU", "gres/gpu"], deny.own.limits["MaxWallPJ", ""]) == (1, 60)
    assert (deny.users["daemon"].used["MaxTRESPU", "cpu"], deny.accounts["sub"].used["MaxJobsPA", ""]) == (2, 1)
    assert deny.flags == {"DenyOnLimit", "NoReserve"}
    assert read.association("daemon", "", "gpu") == Association("sub", "daemon", "gpu")
    assert read.association("daemon", "sub", "long") == Association("sub", "daemon")
    assert read.qos_name("", Association("sub", "daemon", "gpu")) == "deny"
    assert read.association("nobody", "", "gpu") is None


def test_associations_that_slurm_hides_are_not_known() -> None:
    """With PrivateData an account sees its own alone, without the account's, or none; another answer is a fault."""
    own = "ClusterName=c Account=low UserName=ada(1) Partition= Priority=0 ID=1\n    ParentAccount= Lft=3\n"
    for text in (f"Association Records\n\n{own}", "Association Records\n\n"):
        with pytest.raises(UnknownCharge):
            Ledger(parse_accounting(text, "", ""), {}).held_back(Charged("ada", "low"), ONE)
    with pytest.raises(SlurmOutputError):
        parse_accounting("slurm_load_assoc_mgr_info error\n", "", "")


# --- small sites ----------------------------------------------------------------------------------------------------

ONE = Usage({"cpu": 2, "mem": 1000, "node": 1, "gres/gpu": 1, "billing": 2}, 60, frozenset({"g1"}))
"""A job of each person."""


def site(
    *,
    top: str = "",
    account: str = "",
    user: str = "",
    qos: str = "",
    per: str = "",
    flags: str = "",
    safe: bool = False,
    allowed: str = "normal",
    of_root: str = "",
) -> Ledger:
    """Ada and Bob in an account, with limits as ``scontrol show assoc_mgr`` prints them; ``per`` as sacctmgr does."""
    head = "ClusterName=c Account={} UserName={} Partition= Priority=0 ID=1\n    ParentAccount={} Lft=1\n    {}\n"
    unused = "    Account Limits\n        No Accounts\n    User Limits\n        No Users\n"
    text = "".join(
        [
            "UserName=ada(1) DefAccount=low DefWckey= AdminLevel=None\n",
            "UserName=bob(2) DefAccount=low DefWckey= AdminLevel=None\n",
            head.format("root", "", "", ""),
            head.format("top", "", "root(1)", top),
            head.format("low", "", "top(2)", account),
            head.format("low", "ada(1)", "", user),
            head.format("low", "bob(2)", "", ""),
            f"QOS=normal(1)\n    {qos}\n{unused}",
            f"QOS=part(2)\n    GrpJobs=9(0)\n{unused}",
        ]
    )
    rows = f"normal|{flags}|{per or '|||||'}\npart|||||||\n"
    associations = f"root|||normal,part|{of_root}\nlow|ada||{allowed}|\n"
    return Ledger(parse_accounting(text, rows, associations, safe=safe), {"special": "part"})


def starts(ledger: Ledger, *people: str, usage: Usage = ONE, partition: str = "gpu") -> list[str]:
    """For each of these people's jobs, one after the other, why it does not start."""
    reasons = []
    for name in people:
        charged = Charged(name, partition=partition)
        reasons.append(ledger.refused(charged) or ledger.held_back(charged, usage))
        if not reasons[-1]:
            ledger.add(charged, usage)
    return reasons


BOTH_THEN_NONE = ("ada", "bob", "bob")
CASES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "none": ({}, ["", "", ""]),
    "jobs of those above": ({"top": "GrpJobs=3(1)"}, ["", "", "AssocGrpJobsLimit"]),
    "what others use already": ({"account": "GrpTRES=gres/gpu=4(2)"}, ["", "", "AssocGrpGRES"]),
    "exactly as many": ({"account": "GrpTRES=cpu=6(0)"}, ["", "", ""]),
    "memory": ({"account": "GrpTRES=mem=2500(0)"}, ["", "", "AssocGrpMemLimit"]),
    "nodes are counted once": ({"account": "GrpTRES=node=1(0)"}, ["", "", ""]),
    "minutes are all used": ({"account": "GrpTRESMins=cpu=100(100)"}, ["AssocGrpCPUMinutesLimit"] * 3),
    "minutes are left": ({"account": "GrpTRESMins=cpu=100(99)"}, ["", "", ""]),
    "minutes of running jobs": ({"account": "GrpTRESRunMins=cpu=240(0)"}, ["", "", "AssocGrpCPURunMinutesLimit"]),
    "of a user alone": ({"user": "MaxTRESPJ=cpu=1"}, ["AssocMaxCpuPerJobLimit", "", ""]),
    "minutes of a job": ({"user": "MaxTRESMinsPJ=gres/gpu=59"}, ["AssocMaxGRESMinutesPerJob", "", ""]),
    "of a node": ({"user": "MaxTRESPN=gres/gpu=0"}, ["AssocMaxGRESPerNode", "", ""]),
    "time": ({"user": "MaxWallPJ=59"}, ["AssocMaxWallDurationPerJobLimit", "", ""]),
    "jobs of a user": ({"user": "MaxJobs=0(0)"}, ["AssocMaxJobsLimit", "", ""]),
    "submitted jobs": ({"account": "GrpSubmitJobs=2(0)"}, ["", "", "AssocGrpSubmitJobsLimit"]),
    "least of a QOS": ({"qos": "MinTRESPJ=gres/gpu=2"}, ["QOSMinGRES"] * 3),
    "each user of a QOS": ({"per": "1|||||"}, ["", "", "QOSMaxJobsPerUserLimit"]),
    "what each user of a QOS has": ({"per": "||||gres/gpu=1|"}, ["", "", "QOSMaxGRESPerUser"]),
    "what each account of a QOS has": ({"per": "|||||cpu=4"}, ["", "", "MaxCpuPerAccount"]),
    "root's default QOS, for whoever has several": (
        {"qos": "GrpJobs=0(0)", "allowed": "normal,part", "of_root": "part"},
        ["", "", ""],
    ),
    "a QOS is in the place of the account": ({"qos": "GrpJobs=9(0)", "account": "GrpJobs=1(0)"}, ["", "", ""]),
    "of another TRES it is not": (
        {"qos": "GrpTRES=cpu=99(0)", "account": "GrpTRES=gres/gpu=1(0)"},
        ["", *["AssocGrpGRES"] * 2],
    ),
    "jobs of a QOS's user are in the place of an association's": (
        {"per": "2|||||", "user": "MaxJobs=0(0)"},
        ["", "", ""],
    ),
}


@pytest.mark.parametrize(("limits", "reasons"), CASES.values(), ids=CASES)
def test_each_limit_is_that_of_slurm(limits: dict[str, Any], reasons: list[str]) -> None:
    """One after the other, with what those before use."""
    assert starts(site(**limits), *BOTH_THEN_NONE) == reasons


def test_a_limit_of_what_a_job_does_not_request_does_not_hold_it_back() -> None:
    """Others have used it up; a type of GPU that nobody named is used all the same."""
    limits = {"account": "GrpTRES=gres/gpu:k80=1(0) GrpTRESMins=license/a=9(9)", "per": "||||gres/shard=0|"}
    typed = {**ONE.tres, "gres/gpu:k80": 1.0}
    untyped = Usage(typed, 60, ONE.nodes, frozenset({"gres/gpu:k80"}))
    ledger = site(account=limits["account"], per=limits["per"])

    assert starts(ledger, "ada", "bob", usage=untyped) == ["", ""]
    assert starts(ledger, "ada", usage=Usage(typed, 60)) == ["AssocGrpGRES"]


def test_a_job_that_may_run_for_ever_is_longer_than_any_limit() -> None:
    """``--time=UNLIMITED``."""
    assert starts(site(user="MaxWallPJ=59"), *BOTH_THEN_NONE, usage=replace(ONE, minutes=None)) == [
        "AssocMaxWallDurationPerJobLimit",
        "",
        "",
    ]


def test_a_job_that_requests_no_time_gets_the_limit_that_counts_for_it() -> None:
    """That of the QOS, else of the association, else none."""
    of_both, of_user = site(user="MaxWallPJ=59", qos="MaxWallPJ=30"), site(user="MaxWallPJ=59")
    assert [ledger.longest(Charged("ada")) for ledger in (of_both, of_user, site())] == [30, 59, None]


def test_safe_limits_keep_the_minutes_of_a_whole_job() -> None:
    """AccountingStorageEnforce=safe: 240 of 250 minutes are in use by two jobs."""
    assert starts(site(account="GrpTRESMins=cpu=250(0)", safe=True), *BOTH_THEN_NONE) == [
        "",
        "",
        "AssocGrpCPUMinutesLimit",
    ]


def test_the_partitions_qos_comes_first_unless_the_jobs_says_otherwise() -> None:
    """Its GrpJobs is in the place of the job's; with OverPartQOS it is not."""
    jobs_of_qos = "GrpJobs=1(0)"
    assert starts(site(qos=jobs_of_qos), *BOTH_THEN_NONE, partition="special") == ["", "", ""]
    over = site(qos=jobs_of_qos, flags="OverPartQOS")
    assert starts(over, *BOTH_THEN_NONE, partition="special") == ["", "QOSGrpJobsLimit", "QOSGrpJobsLimit"]


def test_somebody_more_has_the_limits_of_a_user_and_not_what_that_user_has_used() -> None:
    """Who is counted beyond a roster."""
    ledger = site(user="GrpJobs=N(1) MaxJobs=1(1)")
    assert ledger.held_back(Charged("ada"), ONE) == "AssocMaxJobsLimit"
    assert ledger.held_back(Charged("ada", other=1), ONE) == ""


def test_a_user_whose_association_slurm_does_not_show_is_told_apart() -> None:
    """PrivateData hides it, or there is none."""
    with pytest.raises(UnknownCharge, match="eve"):
        site().held_back(Charged("eve"), ONE)
    without_account = Accounting({Association("low", "ada"): Budget()}, default_accounts={"ada": "low"})
    with pytest.raises(UnknownCharge, match="ada"):
        Ledger(without_account, {}).held_back(Charged("ada"), ONE)


def test_a_job_that_is_gone_uses_nothing() -> None:
    """As before it started."""
    ledger = site(account="GrpTRES=cpu=2(0)")
    ledger.add(Charged("ada"), ONE)
    assert ledger.held_back(Charged("bob"), ONE) == "AssocGrpCpuLimit"
    ledger.add(Charged("ada"), ONE, jobs=-1)
    assert ledger.held_back(Charged("bob"), ONE) == ""


BILLED = {
    "": (False, 2),
    "CPU=1.0,Mem=0.25G,GRES/gpu=2.0": (False, 4),
    "CPU=1.5,Mem=4G": (True, 3),
}


@pytest.mark.parametrize(("weights", "case"), BILLED.items())
def test_billing_is_by_the_weights_of_the_partition(weights: str, case: tuple[bool, float]) -> None:
    """Without weights it is the CPUs."""
    assert billing(ONE.tres, weights, most_of_a_node=case[0]) == case[1]
