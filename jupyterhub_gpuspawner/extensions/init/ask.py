"""What Slurm says of its cluster, on this machine or by ssh on a login node, and what is wrong with an answer.

An account that may run sinfo alone is answered, too: sinfo's lines are put into the records of scontrol, which the one
reader of Slurm reads. What only scontrol prints is then not known.
"""

from __future__ import annotations

import asyncio
import grp
import os
import re
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from jupyterhub_gpuspawner.check.questions import siblings
from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError, SlurmUnavailable
from jupyterhub_gpuspawner.slurm.accounts import asking_account
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.commands import OUTPUT_LIMIT, CommandMissing, Installation
from jupyterhub_gpuspawner.slurm.messages import LoginNodeUnreachable, failure
from jupyterhub_gpuspawner.slurm.process import Answer
from jupyterhub_gpuspawner.slurm.scontrol import parse_config, parse_nodes, parse_partitions
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot, SlurmConfig
from jupyterhub_gpuspawner.slurm.text import UnparsedField

_VERSION = re.compile(r"slurm\S* (\d+\.\d+\S*)", re.ASCII)
_HIDDEN = "Access/permission denied"
"""What Slurm's commands print where PrivateData has nodes or partitions."""
_NO_CONF = re.compile("Unable to process configuration file|(?:establish a|failed to fetch) config", re.ASCII)
"""What they print without slurm.conf: a file that is not there, or no answer to where it is (24.11: after 12 s)."""
_ID = "/usr/bin/id"
"""With its path, since it is not in the folder of Slurm's commands."""
_NODE = {
    "NodeName": "N",
    "NodeAddr": "o",
    "State": "T",
    "CPUTot": "c",
    "Sockets": "X",
    "CoresPerSocket": "Y",
    "RealMemory": "m",
    "Gres": "G",
    "AvailableFeatures": "f",
    "ActiveFeatures": "b",
    "PartitionName": "P",
}
"""Fields of scontrol's records by sinfo's letters (sinfo(1), ``--format``)."""
_PARTITION = {
    "PartitionName": "P",
    "AllowGroups": "g",
    "DefaultTime": "L",
    "MaxTime": "l",
    "RootOnly": "r",
    "State": "a",
    "MaxCPUsPerNode": "B",
    "OverSubscribe": "h",
}
_WORDS = {"up": "UP", "down": "DOWN", "drain": "DRAIN", "inact": "INACTIVE", "all": "ALL", "infinite": "UNLIMITED"}
_WORDS |= {"n/a": "NONE", "yes": "YES", "no": "NO"}
"""What scontrol prints for sinfo's words."""


@dataclass(frozen=True)
class Asker:
    """Who asks Slurm, and from where."""

    groups: frozenset[str] = frozenset()
    account: str = ""
    """The default account; empty where slurmdbd tells none."""
    host: str = ""
    """The short name of the machine; empty if that is not known."""


@dataclass(frozen=True)
class Cluster:
    """A cluster, as Slurm describes it to the account that asks."""

    version: str
    """Slurm's, such as ``22.05.8``."""
    snapshot: ClusterSnapshot
    """Without reservations and jobs."""
    asker: Asker = Asker()
    slurmdbd_answers: bool = False
    by_sinfo: bool = False
    """sinfo alone has answered: slurm.conf is not known, and of partitions not their limits of memory and accounts."""
    siblings: tuple[str, ...] = ()
    """The other clusters of its federation."""

    @property
    def config(self) -> SlurmConfig:
        """What is known of slurm.conf."""
        return self.snapshot.config


class OverSsh(Installation):
    """Slurm's commands of a login node, run by ssh as the account that signs in there, without scripts."""

    def __init__(self, prefix: Sequence[str], **settings: Any) -> None:
        super().__init__(**settings)
        self.prefix = tuple(prefix)

    async def run(self, command: str, *arguments: str, **how: Any) -> Answer:
        """As :meth:`Installation.run`, on the login node."""
        return await super().run(command, *arguments, **{"prefix": self.prefix, "where": "--login-node", **how})


async def ask(slurm: Installation) -> Cluster:
    """Ask Slurm; raises SlurmUnavailable where it does not answer, and GPUSpawnerError for an answer that is none."""
    version = await _version(slurm)
    try:
        texts = await asyncio.gather(_show(slurm, "node", "-a"), _show(slurm, "partition", "-a"))
        config_text = await _whole(slurm, "scontrol", "show", "config")
        by_sinfo = False
    except CommandMissing:
        texts, by_sinfo = await _by_sinfo(slurm), True
    unread: list[UnparsedField] = []
    snapshot = ClusterSnapshot(
        nodes=parse_nodes(_records(texts[0], "NodeName", "node"), unread.append),
        partitions=parse_partitions(_records(texts[1], "PartitionName", "partition"), unread.append),
        config=SlurmConfig() if by_sinfo else parse_config(config_text),
        taken_at=time.time(),
        unread=tuple(unread),
    )
    answers, account = await _default_account(slurm) if snapshot.config.accounting or by_sinfo else (False, "")
    host = "" if isinstance(slurm, OverSsh) else socket.gethostname().partition(".")[0]
    federated: tuple[str, ...] = ()
    with suppress(GPUSpawnerError):
        federated = await siblings(SlurmClient(slurm)) if not by_sinfo else ()
    return Cluster(version, snapshot, Asker(await _groups(slurm), account, host), answers, by_sinfo, federated)


async def _version(slurm: Installation) -> str:
    """The version of the commands; the first question, so that what is wrong with all answers is said of it."""
    on = "on the login node" if isinstance(slurm, OverSsh) else "on this machine"
    try:
        text = _with_conf(slurm, await slurm.run("sinfo", "--version")).output()
    except LoginNodeUnreachable:
        raise
    except CommandMissing as error:
        raise SlurmUnavailable(
            f"There is no Slurm {on}: its command sinfo is not in {slurm.bin_dir or 'a folder of PATH'}.",
            hint="Run the command where sinfo works, name the folder of Slurm's commands with --slurm-bin-dir, or a "
            'login node with --login-node "ssh LOGIN-NODE".',
        ) from error
    match = _VERSION.match(text)
    if match is None:
        raise _noise("sinfo --version", text)
    return match[1]


def _with_conf(slurm: Installation, answer: Answer) -> Answer:
    """The same answer; raises SlurmUnavailable for one of a command that has found no slurm.conf on this machine."""
    if answer.code != 0 and not isinstance(slurm, OverSsh) and _NO_CONF.search(answer.stderr):
        raise SlurmUnavailable(
            f"{answer.command} found no slurm.conf on this machine.",
            hint="Name the file with --slurm-conf; if this machine is not part of the cluster, name a login node with "
            '--login-node "ssh LOGIN-NODE".',
        )
    return answer


async def _show(slurm: Installation, what: str, *options: str) -> str:
    # without --local, a federation's other clusters are shown, too
    return await _whole(slurm, "scontrol", "--local", "show", what, *options, "-o")


async def _whole(slurm: Installation, command: str, *arguments: str) -> str:
    """The answer of a command; raises ConfigError if it ends within a line, or Slurm refuses it."""
    answer = _with_conf(slurm, await slurm.run(command, *arguments, limit=OUTPUT_LIMIT))
    if answer.code != 0 and _HIDDEN in answer.stderr:
        raise ConfigError(
            "Slurm does not show its nodes or partitions to this account (PrivateData).",
            hint="Run the command as root or as a Slurm operator.",
        )
    refused = answer.code != 0 and re.search("[Pp]ermission denied|not allowed", answer.stderr) is not None
    if refused and command == "scontrol" and failure(command, answer.stderr) is None:
        raise CommandMissing(f"scontrol may not be run by this account: {answer.stderr.strip()[:200]}.")
    text = answer.output()
    if text and not text.endswith("\n"):
        end = text[-60:].rpartition("\n")[2]
        raise ConfigError(
            f"The answer of `{' '.join((command, *arguments))}` is cut off: it ends with {end!r}.",
            hint="Run the command again, and look at what stands between it and Slurm.",
        )
    return text


def _records(text: str, first: str, what: str) -> str:
    """The text, if it begins as such an answer does; raises SlurmUnavailable, and ConfigError if it is empty."""
    if text.strip() and not text.startswith(f"{first}="):
        raise _noise(f"scontrol show {what}", text)
    if not text.strip():
        raise ConfigError(f"`scontrol show {what}` printed nothing.")
    return text


def _noise(command: str, text: str) -> GPUSpawnerError:
    """The error for an answer that something else than Slurm begins."""
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return SlurmUnavailable(
        f"The answer of `{command}` does not begin with Slurm's words, but with {first[:80]!r}.",
        hint="A start-up file of the shell (~/.bashrc, /etc/profile.d/*.sh) or a wrapper of the command prints it. Let "
        'it print only where a person looks: [ -t 1 ] && echo "...".',
    )


async def _default_account(slurm: Installation) -> tuple[bool, str]:
    """Whether slurmdbd answers, and the default account of who asks; empty without one."""
    with suppress(GPUSpawnerError):
        name = (await slurm.run(_ID, "-un")).stdout.strip() if isinstance(slurm, OverSsh) else ""
        name = name or (await asking_account(slurm)).name
        answer = await slurm.run(
            "sacctmgr", "-n", "-P", "show", "user", "where", f"name={name}", "format=DefaultAccount"
        )
        if answer.code == 0:
            return True, next((line.strip() for line in answer.stdout.splitlines() if line.strip()), "")
    return False, ""


async def _groups(slurm: Installation) -> frozenset[str]:
    """The groups of the account that asks, here or on the login node; empty where they cannot be had."""
    names = set[str]()
    if isinstance(slurm, OverSsh):
        with suppress(GPUSpawnerError):
            names.update((await slurm.run(_ID, "-Gn")).output().split())
        return frozenset(names)
    for number in {os.getegid(), *os.getgroups()}:
        with suppress(KeyError):
            names.add(grp.getgrgid(number).gr_name)
    return frozenset(names)


async def _by_sinfo(slurm: Installation) -> tuple[str, str]:
    """The nodes and the partitions in scontrol's records, as far as sinfo knows them; without what it hides."""
    nodes, partitions = await asyncio.gather(
        _whole(slurm, "sinfo", "-h", "-N", "-o", "|".join(f"%{letter}" for letter in _NODE.values())),
        _whole(slurm, "sinfo", "-h", "-o", "|".join(f"%{letter}" for letter in _PARTITION.values())),
    )
    rows = [*_rows(nodes, [*_NODE])]
    members: dict[str, list[str]] = {}
    for row in rows:
        members.setdefault(row["PartitionName"].rstrip("*"), []).append(row["NodeName"])
    of_nodes = {row["NodeName"]: row | {"PartitionName": ""} for row in rows}
    of_partitions = {
        name: {key: _WORDS.get(value, value) for key, value in row.items()}
        | {
            "PartitionName": name,
            "Default": "YES" if row["PartitionName"].endswith("*") else "NO",
            "Nodes": ",".join(members.get(name, ())),
        }
        for row in _rows(partitions, [*_PARTITION])
        if (name := row["PartitionName"].rstrip("*"))
    }
    return _as_records(of_nodes.values()), _as_records(of_partitions.values())


def _rows(text: str, names: Sequence[str]) -> Iterator[dict[str, str]]:
    """The lines of sinfo's answer; raises SlurmUnavailable for one with another number of fields."""
    for line in text.splitlines():
        values = [value.strip() for value in line.split("|")]
        if len(values) != len(names):
            raise _noise("sinfo", line)
        yield dict(zip(names, values, strict=True))


def _as_records(rows: Any) -> str:
    return "".join(" ".join(f"{key}={value}" for key, value in row.items() if value) + "\n" for row in rows)
