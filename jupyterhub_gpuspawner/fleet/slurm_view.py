"""What Slurm's configuration says of a node's GPUs, compared with what was seen. Pure.

``scontrol show node -d`` prints the sockets that gres.conf's ``Cores=`` name, as ``gpu:a100:8(S:0-1)``, and nothing
where there are none. It does not print ``Links=``.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.cpulist import format_cpulist
from jupyterhub_gpuspawner.fleet.gres_conf import gres_conf, socket_of, sockets
from jupyterhub_gpuspawner.fleet.node_record import gpu_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jupyterhub_gpuspawner.fleet.node_record import NodeRecord
    from jupyterhub_gpuspawner.units import Gres


_MIG = re.compile(r"\d+g\.\d+gb")
"""Part of Slurm's type of a MIG device, as NVML names its profile."""


class Fault(str, Enum):
    """What is wrong with a node's GPUs in Slurm's configuration."""

    COUNT = "count"
    """Slurm has another number of GPUs than were seen."""
    NO_CORES = "no-cores"
    """The GPUs are on several sockets, and gres.conf names no ``Cores=``."""
    SOCKETS = "sockets"
    """gres.conf names other sockets than those of the GPUs."""


@dataclass(frozen=True)
class Contradiction:
    """A fault, with Slurm's value and what was seen."""

    fault: Fault
    slurm: str
    seen: str


def contradictions(record: NodeRecord, gres: Sequence[Gres]) -> tuple[Contradiction, ...]:
    """The faults of a node's GPUs in Slurm; none where too little is known. ``gres``: of the node, as parsed."""
    return tuple(_contradictions(record, [each for each in gres if each.name == "gpu"]))


def _contradictions(record: NodeRecord, gpus: Sequence[Gres]) -> Iterator[Contradiction]:
    present = record.present
    if not gpus or not present:
        return
    whole = not any(record.topology.gpus[position].mig for position in present)
    listed = record.topology.devices
    count = len(listed) if listed else len(present) if record.whole_at is not None else None
    sliced = any(_MIG.search(each.type or "") for each in gpus)  # Slurm counts MIG devices, the PCI bus GPUs
    in_slurm = gpu_count(gpus)
    if whole and not sliced and count is not None and (count < in_slurm or _is_too_few(record, count, in_slurm)):
        yield Contradiction(Fault.COUNT, str(in_slurm), str(count))
    if not record.complete:
        return
    seen = [_sockets_of_gpus(record, numa_node_as_socket=numa) for numa in (False, True)]
    named = {socket for each in gpus for socket in each.sockets}
    if None not in seen and named not in seen:
        fault = Fault.SOCKETS if named else Fault.NO_CORES
        if named or len(seen[0] or ()) > 1:
            yield Contradiction(fault, format_cpulist(named), format_cpulist(seen[0] or ()))


def _is_too_few(record: NodeRecord, count: int, in_slurm: int) -> bool:
    """Whether Slurm lacks some of a node's GPUs; not if those may be all of a model, such as one for a display."""
    models = Counter(record.topology.gpus[position].name for position in record.present)
    if in_slurm == count or len(record.present) < count:
        return False
    totals = {0}
    for number in models.values():
        totals |= {total + number for total in totals}
    return in_slurm not in totals


def _sockets_of_gpus(record: NodeRecord, *, numa_node_as_socket: bool) -> set[int] | None:
    """The sockets of a node's GPUs; None if they are not all known."""
    found = sockets(record.topology, numa_node_as_socket=numa_node_as_socket)
    homes = {socket_of(record.topology, position, found) for position in record.present}
    return None if None in homes else {home for home in homes if home is not None}


def has_links(record: NodeRecord) -> bool:
    """Whether ``Links=`` would tell Slurm something about this node."""
    return record.complete and any(line.links for line in gres_conf(record.topology).lines)
