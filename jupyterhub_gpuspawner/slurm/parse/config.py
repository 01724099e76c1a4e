"""``scontrol show config``: what of slurm.conf(5) a hub has to know. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.slurm.parse.records import memory, present, words

_LINE = re.compile(r"^(?P<key>[A-Za-z][\w/]*) *= ?(?P<value>.*)$", re.ASCII | re.MULTILINE)
_ACCOUNT = re.compile(r"(?P<name>.*)\((?P<uid>[0-9]+)\)")


@dataclass(frozen=True)
class SlurmConfig:
    """Some of slurm.conf, as slurmctld has it."""

    private_data: frozenset[str] = frozenset()
    """PrivateData: what users do not see of each other, such as ``jobs``."""
    slurm_uid: int | None = None
    """The number of SlurmUser, who sees and may do all; None where it is not told."""
    accounting: bool = False
    """slurmdbd is there (AccountingStorageType), and so may be operators and administrators."""

    default_memory_per_cpu_mib: int | None = None
    """DefMemPerCPU: of a job that asks for no memory; None where it is not set."""
    default_memory_per_node_mib: int | None = None
    """DefMemPerNode, the same for each node."""
    memory_is_allocated: bool = True
    """Jobs hold memory (SelectTypeParameters with Memory): a job that asks for none, without a default, gets all."""

    @property
    def hides_jobs(self) -> bool:
        """A user sees no job of another one."""
        return "jobs" in self.private_data or "all" in self.private_data


def parse_config(text: str) -> SlurmConfig:
    """What ``scontrol show config`` tells; raises SlurmOutputError where PrivateData is not among it."""
    told = {match["key"]: match["value"].strip() for match in _LINE.finditer(text)}
    if "PrivateData" not in told:
        raise SlurmOutputError("scontrol show config did not tell PrivateData.", raw=text, field="PrivateData")
    private = {word.strip().lower() for word in words(told["PrivateData"])} - {"none"}
    # mcs(5): jobs of another security label are hidden likewise
    if "privatedata" in words(told.get("MCSParameters")) and present(told.get("MCSPlugin")) not in ("", "mcs/none"):
        private.add("jobs")
    account = _ACCOUNT.fullmatch(told.get("SlurmUser", ""))
    storage = present(told.get("AccountingStorageType"))
    return SlurmConfig(
        private_data=frozenset(private),
        slurm_uid=int(account["uid"]) if account is not None else None,
        accounting=storage not in ("", "accounting_storage/none"),
        default_memory_per_cpu_mib=memory("DefMemPerCPU", told.get("DefMemPerCPU")),
        default_memory_per_node_mib=memory("DefMemPerNode", told.get("DefMemPerNode")),
        memory_is_allocated="MEMORY" in told.get("SelectTypeParameters", "CR_CORE_MEMORY").upper(),
    )
