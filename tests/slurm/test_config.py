"""Settings that the hub reads from slurm.conf, as slurmctld reports it."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.slurm.scontrol import SlurmConfig, parse_config, parse_licenses


def told(**values: str) -> str:
    """Shortened output of scontrol show config."""
    lines = {
        "AccountingStorageType": "accounting_storage/none",
        "MCSPlugin": "mcs/none",
        "MCSParameters": "(null)",
        "PrivateData": "none",
        "SlurmUser": "slurm(64030)",
        **values,
    }
    text = "".join(f"{key:<23} = {value}\n" for key, value in lines.items())
    return f"Configuration data as of 2026-11-22T02:10:51\n{text}\nSlurmctld(primary) at head is UP\n"


@pytest.mark.parametrize(
    ("values", "config", "hides"),
    [
        ({}, SlurmConfig(slurm_uid=64030), False),
        ({"PrivateData": "accounts,jobs"}, SlurmConfig(frozenset({"accounts", "jobs"}), 64030), True),
        ({"PrivateData": "accounts,usage"}, SlurmConfig(frozenset({"accounts", "usage"}), 64030), False),
        ({"PrivateData": "ALL"}, SlurmConfig(frozenset({"all"}), 64030), True),
        (
            {"AccountingStorageType": "accounting_storage/slurmdbd", "SlurmUser": "root(0)"},
            SlurmConfig(slurm_uid=0, accounting=True),
            False,
        ),
        ({"MCSPlugin": "mcs/group", "MCSParameters": "privatedata"}, SlurmConfig(frozenset({"jobs"}), 64030), True),
    ],
)
def test_who_sees_whose_jobs(values: dict[str, str], config: SlurmConfig, hides: bool) -> None:
    """PrivateData, SlurmUser and the existence of operators determine whose jobs are shown."""
    found = parse_config(told(**values))
    assert (found, found.hides_jobs) == (config, hides)


@pytest.mark.parametrize(
    ("plugin", "preemption"),
    [
        ("preempt/none", ""),
        ("(null)", ""),
        ("preempt/partition_prio", "partition"),
        ("preempt/qos", "qos"),
    ],
)
def test_by_what_jobs_preempt_others(plugin: str, preemption: str) -> None:
    """PreemptType is a plugin's name."""
    assert parse_config(told(PreemptType=plugin)).preemption == preemption


@pytest.mark.parametrize(
    ("values", "unit"),
    [
        ({}, "core"),
        ({"SelectTypeParameters": "CR_CPU_MEMORY"}, "cpu"),
        ({"SelectTypeParameters": "CR_SOCKET"}, "socket"),
        ({"SelectType": "select/linear"}, "node"),
    ],
)
def test_what_a_job_gets_whole(values: dict[str, str], unit: str) -> None:
    """SelectType and SelectTypeParameters determine it."""
    assert (
        parse_config(
            told(SelectType="select/cons_tres", **values) if "SelectType" not in values else told(**values)
        ).cpu_unit
        == unit
    )


def test_what_accounting_keeps_of_each_job() -> None:
    """AccountingStoreFlags, in any case; nothing where it is not set."""
    kept = [
        parse_config(told(AccountingStoreFlags=flags)).accounting_stores for flags in ("(null)", "Job_Env,job_comment")
    ]
    assert [parse_config(told()).accounting_stores, *kept] == [frozenset(), frozenset(), {"job_env", "job_comment"}]


def test_the_defaults_of_jobs_with_gpus() -> None:
    """JobDefaults gives memory in MiB and CPUs for each GPU."""
    found = parse_config(told(JobDefaults="DefCpuPerGPU=4,DefMemPerGPU=16000"))

    assert (found.default_cpus_per_gpu, found.default_memory_per_gpu_mib) == (4, 16000)


@pytest.mark.parametrize("text", ["", "Configuration data as of now\n", "SlurmUser = root(0)\n"])
def test_an_answer_that_is_no_configuration_is_refused(text: str) -> None:
    """Without a configuration it is unknown whose jobs are shown."""
    with pytest.raises(SlurmOutputError):
        parse_config(text)


def test_licences_are_counted_whether_in_use_or_not() -> None:
    """A cluster without licences has none."""
    text = "LicenseName=matlab Total=3 Used=1 Free=2 Reserved=0 Remote=no\nLicenseName=idl Total=1 Used=0 Free=1\n"

    assert (parse_licenses(text), parse_licenses("No licenses configured in Slurm.\n")) == ({"matlab": 3, "idl": 1}, {})


@pytest.mark.parametrize(
    ("text", "answered_at", "resume_timeout"),
    [
        (told(), None, None),
        (told().replace("2026-11-22T02:10:51", "1795313451"), 1795313451.0, None),
        (told(ResumeProgram="/sbin/resume", ResumeTimeout="600 sec"), None, 600),
        (told(ResumeProgram="(null)", ResumeTimeout="60 sec"), None, None),
    ],
    ids=["a date", "seconds since the epoch", "power saving", "none"],
)
def test_its_time_and_how_long_nodes_take_to_boot(
    text: str, answered_at: float | None, resume_timeout: int | None
) -> None:
    """slurmctld's time is in the first line; nodes are booted only where there is a program that does it."""
    found = parse_config(text)

    assert (found.answered_at, found.resume_timeout) == (answered_at, resume_timeout)
