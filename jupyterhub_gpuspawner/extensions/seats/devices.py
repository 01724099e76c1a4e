"""What the twin's gres.conf has of each node: the lines of the site's, or those that Slurm's report implies. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from jupyterhub_gpuspawner.extensions.seats import controller
from jupyterhub_gpuspawner.extensions.seats.held import host_list
from jupyterhub_gpuspawner.slurm.snapshot import NodeState
from jupyterhub_gpuspawner.slurm.text import fields
from jupyterhub_gpuspawner.units import expand_nodelist, parse_cpulist, parse_gres

_NUMBERS = {
    **dict.fromkeys(("CPUTot", "CoresPerSocket", "RealMemory", "MemSpecLimit", "CoreSpecCount", "TmpDisk"), 0),
    **dict.fromkeys(("Boards", "Sockets", "ThreadsPerCore", "Weight"), 1),
}
"""Parameters of a node's hardware, and what each is where Slurm reports none, or 0."""


def numbers_of(node: NodeState) -> Mapping[str, int]:
    """The numbers of a node's hardware, by Slurm's names."""
    return _numbers(node.hardware)


@lru_cache(maxsize=1024)
def _numbers(hardware: tuple[tuple[str, str], ...]) -> Mapping[str, int]:
    reported = {key: int(text) for key, text in hardware if text.isdecimal()}
    return {key: reported.get(key) or default for key, default in _NUMBERS.items()}


_COUNT = re.compile(r"[0-9]+[kKmMgGtTpP]?")
_GRES_KEYS = ("Name", "Type", "Count", "File", "MultipleFiles", "Cores", "Links", "Flags")


def gres_lines(
    nodes: Mapping[str, NodeState],
    written: Mapping[str, Sequence[Mapping[str, str]]],
    notes: list[str],
    *,
    version: str,
) -> list[dict[str, str]]:
    """Lines of gres.conf, each for all nodes that have it; ``version`` is Slurm's."""
    by_line: dict[tuple[tuple[tuple[str, str], ...], ...], list[str]] = {}
    for name, node in nodes.items():
        if not node.gres:
            continue
        lines = written.get(name, ())
        if fault := refused_line(node, lines, version):
            notes.append(f"Slurm refuses gres.conf for node {name}: {fault}; its lines are not used.")
            lines = ()
        if lines and counts_of(lines) != {(gres.name, gres.type or ""): gres.count for gres in node.gres}:
            notes.append(f"gres.conf has other devices for node {name} than Slurm reports; its lines are not used.")
            lines = ()
        lines = lines or [*_reported_lines(node)]
        by_line.setdefault(tuple(tuple(line.items()) for line in lines), []).append(name)
    return [{"NodeName": host_list(names), **dict(line)} for lines, names in by_line.items() for line in lines]


def numbers_per_cpu(node: NodeState) -> int:
    """How many numbers in ``CPU_IDs`` are one CPU: two where a core of two threads counts as one (``CPUs=``)."""
    numbers = numbers_of(node)
    threads = numbers["Sockets"] * (numbers["CoresPerSocket"] or 1) * numbers["ThreadsPerCore"]
    return max(1, threads // max(1, numbers["CPUTot"])) if numbers["ThreadsPerCore"] > 1 else 1


def gres_conf(text: str, nodes: Collection[str]) -> dict[str, list[dict[str, str]]]:
    """The lines of a gres.conf that describe devices, by node; those without ``NodeName=`` are of all these nodes.

    A line goes on behind a backslash, and ``CPUs=`` is the older name of ``Cores=``. Raises ValueError for a name that
    is no host list.
    """
    by_node: dict[str, list[dict[str, str]]] = {}
    whole = re.sub(r"\\[ \t]*\r?\n", " ", text)
    for line in whole.splitlines():
        record = {key.lower(): value for key, value in fields(line.partition("#")[0]).items()}
        if "cpus" in record:
            record.setdefault("cores", record["cpus"])
        if "name" not in record:
            continue
        given = {key: record[key.lower()].strip("\"'") for key in _GRES_KEYS if key.lower() in record}
        given = {key: value for key, value in given.items() if controller.is_value(key, value)}
        for name in expand_nodelist(record["nodename"]) if "nodename" in record else nodes:
            by_node.setdefault(name, []).append(given)
    return by_node


def refused_line(node: NodeState, lines: Iterable[Mapping[str, str]], version: str) -> str:
    """Why Slurm of this version refuses these lines of gres.conf for a node: a clause; empty where it does not.

    It counts cores without their threads, so the number of a thread, as nvidia-smi and lscpu have it, is often beyond.
    Since 24.11 it takes whole sockets alone, and drains a node that registers with others (INVALID_REG).
    """
    numbers = numbers_of(node)
    per_socket = numbers["CoresPerSocket"]
    count = numbers["Sockets"] * per_socket
    for line in lines:
        of = f"Cores={line.get('Cores', '')} of {line.get('File', line['Name'])}"
        try:
            cores = parse_cpulist(line.get("Cores", ""))
        except ValueError:
            cores = (count,)
        if max(cores, default=0) >= count > 0:
            return f"{of}, and the node has cores 0-{count - 1}"
        if version >= "24.11" and any(
            size < per_socket for size in Counter(core // per_socket for core in cores).values()
        ):
            return f"{of} is a part of a socket of {per_socket} cores, and it takes whole ones alone"
    return ""


def counts_of(lines: Iterable[Mapping[str, str]]) -> dict[tuple[str, str], int]:
    counts: dict[tuple[str, str], int] = {}
    for line in lines:
        files = len(expand_nodelist(line["File"].replace("/", "-"))) if "File" in line else 1
        count = line["Count"] if _COUNT.fullmatch(line.get("Count", "")) else files
        (gres,) = parse_gres(f"{line['Name']}:{count}")
        key = line["Name"], line.get("Type", "")
        counts[key] = counts.get(key, 0) + gres.count
    return counts


def _reported_lines(node: NodeState) -> Iterator[dict[str, str]]:
    """Lines for what slurmctld reports of a node: a socket where it names one, and none where it names several."""
    per_socket = node.socket_cores
    first = 0
    for gres in node.gres:
        line = {"Name": gres.name} | ({"Type": gres.type} if gres.type else {})
        if gres.name == "gpu":
            line["File"] = f"/dev/nvidia[{first}-{first + gres.count - 1}]"
            first += gres.count
            if len(gres.sockets) == 1 and per_socket:
                begin = gres.sockets[0] * per_socket
                line["Cores"] = f"{begin}-{begin + per_socket - 1}"
        elif gres.name in ("shard", "mps"):
            line["Count"] = str(gres.count)
        else:
            line |= {"Count": str(gres.count), "Flags": "CountOnly"}
        if gres.count:
            yield line
