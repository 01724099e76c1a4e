"""What ``gpuspawner init`` shows: the cluster, the profiles, what is left out, and what to run next. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from jupyterhub_gpuspawner.cli.options import printable, table
from jupyterhub_gpuspawner.extensions.init.ask import Cluster
from jupyterhub_gpuspawner.extensions.init.devices import Kind, Share, shares_of
from jupyterhub_gpuspawner.extensions.init.places import UNKNOWN_MIB
from jupyterhub_gpuspawner.extensions.init.plan import Plan
from jupyterhub_gpuspawner.extensions.init.write import CONFIG, Machine
from jupyterhub_gpuspawner.slurm.snapshot import NodeState, Partition, gpus_of
from jupyterhub_gpuspawner.words import counted, duration, memory, some

WIDTH = 100
_LEAST = 8
"""Characters of a column that is shortened, at least."""
_ROWS = 12
"""Kinds of nodes of a partition, beyond which those with the same kinds of GPUs share a row."""


def cluster_text(cluster: Cluster, plan: Plan) -> str:
    """What Slurm said, as a table of partitions and the kinds of their nodes."""
    rows: list[Sequence[str]] = [
        ("PARTITION", "NODES", "CPUS, MEMORY", "GPUS OF A NODE", "FOR EACH", "LONGEST JOB", "OPEN TO")
    ]
    for partition in cluster.snapshot.partitions:
        rows += _rows(cluster, partition, plan)
    return "\n".join([*_wrapped(_facts(cluster)), "", table(fitting(rows))])


def _facts(cluster: Cluster) -> Iterator[str]:
    config, snapshot, account = cluster.config, cluster.snapshot, cluster.asker.account
    name = f", cluster {config.cluster_name}" if config.cluster_name else ""
    nodes, partitions = len(snapshot.nodes), len(snapshot.partitions)
    yield f"Slurm {cluster.version}{name}: {counted(nodes, 'node')}, {counted(partitions, 'partition')}."
    if cluster.slurmdbd_answers:
        yield f"slurmdbd answers; your default account {f'is {account}' if account else 'is not set'}."
    elif config.accounting:
        yield "slurm.conf names slurmdbd, which does not answer this account."
    elif not cluster.by_sinfo:
        yield "There is no slurmdbd: jobs need no account."
    if not cluster.by_sinfo and any(gpus_of(node.gres) for node in snapshot.nodes):
        yield _devices(config.parameters)


def _devices(parameters: Mapping[str, str]) -> str:
    """Whether a job can use GPUs that it was not given."""
    constrained = parameters.get("ConstrainDevices", "").lower() == "yes"
    if constrained and "task/cgroup" in parameters.get("TaskPlugin", ""):
        return "Jobs can use only the GPUs that Slurm gives them (ConstrainDevices=yes)."
    return (
        "Jobs are not kept from GPUs that they were not given: that needs TaskPlugin=task/cgroup in slurm.conf, and "
        "ConstrainDevices=yes in cgroup.conf."
    )


def _rows(cluster: Cluster, partition: Partition, plan: Plan) -> Iterator[Sequence[str]]:
    """A row for each kind of GPU on each kind of the partition's nodes; one for a partition without nodes."""
    alike: dict[object, list[NodeState]] = {}
    coarsely: dict[object, list[NodeState]] = {}
    for node in cluster.snapshot.nodes_of(partition.name):
        kinds = tuple((gres.name, gres.type, gres.count) for gres in node.gres)
        alike.setdefault((kinds, node.cpus, node.memory_mib), []).append(node)
        coarsely.setdefault(tuple((name, kind) for name, kind, _ in kinds), []).append(node)
    longest = "no limit" if partition.max_time is None else duration(partition.max_time)
    of_partition = f"{partition.name}{' *' if partition.default else ''}", longest
    limited = partition.allow_groups or partition.allow_accounts
    open_to = plan.closed.get(partition.name) or ("you" if limited else "everybody")
    if not alike:
        yield of_partition[0], "", "", "", "", of_partition[1], open_to
    for nodes in (alike if len(alike) <= _ROWS else coarsely).values():
        of_nodes = str(len(nodes)), _amounts([(node.cpus, node.memory_mib) for node in nodes])
        of_kinds: dict[Kind, list[Share]] = {}
        for node in nodes:
            for kind, share in shares_of(node, cpus=node.cpus, memory_mib=node.memory_mib).items():
                of_kinds.setdefault(kind, []).append(share)
        for kind, shares in of_kinds.items():
            number = _range([share.number for share in shares], str)
            name = f"{number} x {kind.type or 'GPU'}{' shard' * (kind.gres == 'shard')}" if kind.gres else "-"
            of_one = _amounts([(share.cpus, share.memory_mib) for share in shares]) if kind.gres else ""
            yield of_partition[0], of_nodes[0], of_nodes[1], name, of_one, of_partition[1], open_to
            of_partition, of_nodes, open_to = ("", ""), ("", ""), ""


def _amounts(amounts: Sequence[tuple[int, int]]) -> str:
    """CPUs and MiB of several nodes or GPUs: ``32, 488 GiB``, or ``16-32, 250-488 GiB``."""
    known = [mib for _, mib in amounts if mib > UNKNOWN_MIB]
    return f"{_range([number for number, _ in amounts], str)}, {_range(known, memory) if known else 'unknown'}"


def _range(values: Sequence[int], text: Callable[[int], str]) -> str:
    least, most = text(min(values)), text(max(values))
    if least == most:
        return least
    unit = f" {most.rpartition(' ')[2]}" if " " in most else ""
    return f"{least.removesuffix(unit) if unit else least}-{most}"


def profiles_text(plan: Plan, names: Sequence[str]) -> str:
    """The profiles with their files, and what is left out."""
    rows = [("FILE", "ON THE FORM", "PARTITION", "CPUS", "MEMORY", "TIME")]
    for name, profile in zip(names, plan.profiles, strict=True):
        request = profile.request
        time = f"{request['time']} (1 to {profile.hours} h)" if profile.hours else str(request["time"])
        rows.append(
            (name, profile.display_name, profile.partition, str(request["cpus"]), str(request.get("memory", "-")), time)
        )
    return "\n".join([table(fitting(rows)), *([""] if plan.notes else []), *_items("Note:", plan.notes)])


def next_text(folder: Path, machine: Machine) -> str:
    """What to run next."""
    user = "YOU" if machine.as_root else machine.user
    config = folder / CONFIG
    steps = [f"gpuspawner check -f {config} --user {user} --submit", f"cd {folder} && jupyterhub"]
    last = "open http://127.0.0.1:8000 on this machine, or by ssh -L 8000:127.0.0.1:8000 from yours"
    if machine.login_node:
        steps.insert(
            0, 'follow the guide "Run the hub on a machine without Slurm": a key, and scripts on the login node'
        )
    if not machine.has_proxy:
        steps.insert(0, "npm install -g configurable-http-proxy, which JupyterHub needs and which was not found")
    if not (machine.is_node or machine.hub_ip):
        steps.insert(0, f"set hub_ip in {config}, which could not be found out: the line marked SITE")
    return "\n".join(["Next:", *(f"  {step}" for step in [*steps, last])])


def _items(title: str, sentences: Iterable[str]) -> Iterator[str]:
    sentences = [*sentences]
    if sentences:
        yield title
        for sentence in sentences:
            yield from textwrap.wrap(
                sentence, WIDTH, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False
            )


def _wrapped(sentences: Iterable[str]) -> Iterator[str]:
    for sentence in sentences:
        yield from textwrap.wrap(sentence, WIDTH, break_on_hyphens=False)


def fitting(rows: Sequence[Sequence[str]], width: int = WIDTH) -> list[list[str]]:
    """The rows with their longest cells shortened, so that the table is no wider than ``width`` characters."""
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    while sum(widths) + 2 * (len(widths) - 1) > width and max(widths) > _LEAST:
        widths[widths.index(max(widths))] -= 1
    return [[_shortened(cell, limit) for cell, limit in zip(row, widths, strict=True)] for row in cells]


def _shortened(text: str, limit: int) -> str:
    """Without its middle, since names of GPUs differ at their end."""
    if len(text) <= limit:
        return text
    end = (limit - 1) // 2
    return f"{text[: limit - 1 - end]}…{text[-end:]}"


def closed_text(closed: Mapping[str, str]) -> str:
    """Why there is no partition that people can use."""
    return some([f"{name} ({reason})" for name, reason in closed.items()], at_most=8)
