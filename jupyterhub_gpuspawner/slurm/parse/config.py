"""``scontrol show config``: the parts of slurm.conf(5) that a hub needs. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.slurm.parse.records import default_per_gpu, fields, memory, present, read, words

if TYPE_CHECKING:
    from collections.abc import Mapping

_LINE = re.compile(r"^(?P<key>[A-Za-z][\w/]*) *= ?(?P<value>.*)$", re.ASCII | re.MULTILINE)
_AS_OF = re.compile(r"Configuration data as of ([0-9]+)\s*$", re.MULTILINE)
_ACCOUNT = re.compile(r"(?P<name>.*)\((?P<uid>[0-9]+)\)")


@dataclass(frozen=True)
class SlurmConfig:
    """Parts of slurm.conf, as slurmctld uses them."""

    private_data: frozenset[str] = frozenset()
    """PrivateData: what users cannot see of each other, such as ``jobs``."""
    slurm_uid: int | None = None
    """The uid of SlurmUser, who has all rights; None where it is not reported."""
    accounting: bool = False
    """slurmdbd is in use (AccountingStorageType), so there may be operators and administrators."""
    accounting_enforced: frozenset[str] = frozenset()
    """AccountingStorageEnforce: ``associations``, ``limits``, ``qos``, ...; empty without accounting."""
    accounting_stores: frozenset[str] = frozenset()
    """AccountingStoreFlags: what slurmdbd keeps of each job, such as ``job_env`` (its environment)."""
    tracks_process_groups: bool = False
    """A step's processes are those of its process group (ProctrackType=proctrack/pgid)."""
    cluster_name: str = ""
    answered_at: float | None = None
    """slurmctld's own time when it answered, in seconds since the epoch; None where it is not in seconds."""
    resume_timeout: int | None = None
    """ResumeTimeout: seconds that a node which is powered off may take until it is ready; None without power saving."""

    default_memory_per_cpu_mib: int | None = None
    """DefMemPerCPU, for jobs that request no memory; None where it is not set."""
    default_memory_per_node_mib: int | None = None
    """DefMemPerNode, the same per node."""
    default_memory_per_gpu_mib: int | None = None
    """DefMemPerGPU (JobDefaults), for jobs that request GPUs."""
    default_cpus_per_gpu: int | None = None
    """DefCpuPerGPU (JobDefaults), for jobs that request GPUs and no CPUs."""
    cpu_unit: Literal["cpu", "core", "socket", "node"] = "core"
    """What a job gets whole (SelectType, SelectTypeParameters)."""
    preemption: Literal["", "partition", "qos"] = ""
    """By what jobs preempt others (PreemptType): their partition's PriorityTier, or their QOS; empty: they do not."""
    memory_is_allocated: bool = True
    """Slurm allocates memory (SelectTypeParameters); without a default, a job that requests none gets all."""

    @property
    def hides_jobs(self) -> bool:
        """Whether users cannot see the jobs of others."""
        return "jobs" in self.private_data or "all" in self.private_data

    @property
    def hides_associations(self) -> bool:
        """Whether users cannot see the associations of others."""
        return bool(self.private_data & {"accounts", "users", "all"})


def parse_config(text: str) -> SlurmConfig:
    """Parse ``scontrol show config``; raises SlurmOutputError if PrivateData is missing."""
    told = {match["key"]: match["value"].strip() for match in _LINE.finditer(text)}
    if "PrivateData" not in told:
        raise SlurmOutputError("scontrol show config did not report PrivateData.", raw=text, field="PrivateData")
    private = {word.strip().lower() for word in words(told["PrivateData"])} - {"none"}
    # mcs(5): jobs of another security label are hidden likewise
    if "privatedata" in words(told.get("MCSParameters")) and present(told.get("MCSPlugin")) not in ("", "mcs/none"):
        private.add("jobs")
    account = _ACCOUNT.fullmatch(told.get("SlurmUser", ""))
    storage = present(told.get("AccountingStorageType"))
    selected = told.get("SelectTypeParameters", "CR_CORE_MEMORY").upper()
    return SlurmConfig(
        private_data=frozenset(private),
        slurm_uid=int(account["uid"]) if account is not None else None,
        accounting=storage not in ("", "accounting_storage/none"),
        accounting_enforced=frozenset(words(told.get("AccountingStorageEnforce"))) - {"none"},
        accounting_stores=frozenset(words(told.get("AccountingStoreFlags", "").lower())),
        tracks_process_groups=told.get("ProctrackType") == "proctrack/pgid",
        cluster_name=present(told.get("ClusterName")),
        answered_at=_answered_at(text),
        resume_timeout=_resume_timeout(told),
        default_memory_per_cpu_mib=memory("DefMemPerCPU", told.get("DefMemPerCPU")),
        default_memory_per_node_mib=memory("DefMemPerNode", told.get("DefMemPerNode")),
        default_memory_per_gpu_mib=default_per_gpu(told.get("JobDefaults"), "DefMemPerGPU"),
        default_cpus_per_gpu=default_per_gpu(told.get("JobDefaults"), "DefCpuPerGPU"),
        cpu_unit=_cpu_unit(told.get("SelectType", ""), selected),
        preemption=_PREEMPTION.get(told.get("PreemptType", ""), ""),
        memory_is_allocated="MEMORY" in selected,
    )


_PREEMPTION: Mapping[str, Literal["partition", "qos"]] = {
    "preempt/partition_prio": "partition",
    "preempt/qos": "qos",
}


def _answered_at(text: str) -> float | None:
    """The time in the first line, which is in seconds since the epoch with SLURM_TIME_FORMAT=%s."""
    match = _AS_OF.match(text)
    return float(match[1]) if match is not None else None


def _resume_timeout(told: Mapping[str, str]) -> int | None:
    seconds = re.match(r"[0-9]+", told.get("ResumeTimeout", ""))
    if seconds is None or present(told.get("ResumeProgram")) == "":
        return None
    return int(seconds[0])


def parse_licenses(text: str) -> dict[str, int]:
    """How many there are of each licence in ``scontrol show licenses -o``; raises SlurmOutputError."""
    records = [fields(line) for line in text.splitlines() if line.startswith("LicenseName=")]
    return {each["LicenseName"]: read(int, "Total", each.get("Total", "")) for each in records}


def _cpu_unit(select: str, parameters: str) -> Literal["cpu", "core", "socket", "node"]:
    if select == "select/linear":
        return "node"
    if "CR_SOCKET" in parameters:
        return "socket"
    return "cpu" if "CR_CPU" in parameters else "core"
