"""Differences, contradictions and grants in words, for admins. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.fleet.differences import MISSING, PRESENT, Fault, Kind
from jupyterhub_gpuspawner.fleet.node_record import SEVERAL
from jupyterhub_gpuspawner.units import parse_gres
from jupyterhub_gpuspawner.words import counted, day

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.fleet.differences import Contradiction, Difference, Shape
    from jupyterhub_gpuspawner.fleet.health import GrantSummary, NodeHealth

NAMED_AT_MOST = 4
"""GPUs or pairs that are named in one sentence."""
_WHAT = {
    Kind.GPUS: "GPUs on the PCI bus",
    Kind.LINKS: "link",
    Kind.WIDTH: "PCIe lanes",
    Kind.GENERATION: "PCIe generation",
    Kind.MODEL: "model",
    Kind.MEMORY: "MiB of GPU memory",
    Kind.NUMA: "NUMA node",
    Kind.NICS: "NICs",
    Kind.NODE_MEMORY: "memory of NUMA node",
    Kind.NUMA_NODES: "NUMA nodes",
    Kind.DRIVER: "driver",
}
PARTIAL = "Jobs have seen only their own GPUs so far; what they have not seen is not judged."
LINKS_SEEN = "which helps servers with Slurm 22.05, and with 24.11 and 26.05 if gpus_option is 'gpus'"
"""What was measured; see docs/explanation/gres-conf-table.md."""
LINKS_HELP = (
    f"Links= in gres.conf tells Slurm which GPUs are linked, {LINKS_SEEN}; scontrol does not show whether it is there."
)


def difference(found: Difference) -> str:
    """``0000:b3:00.0: PCIe lanes 8; 3 siblings have 16``."""
    if found.kind is Kind.GONE:
        since = "" if found.since is None else f", last seen on {day(datetime.fromtimestamp(found.since).astimezone())}"
        return f"{', '.join(found.subjects)}: this GPU is missing ({found.seen or 'model not known'}{since})"
    named = ", ".join(found.subjects[:NAMED_AT_MOST])
    more = len(found.subjects) - NAMED_AT_MOST
    if more > 0:
        named += f" and {more} more"
    start = f"{named}: " if named else ""
    if found.kind is Kind.NICS and {found.seen, found.expected} == {MISSING, PRESENT}:
        return (
            f"{start}NIC {found.seen}, which {found.agreeing:,} siblings {'have' if found.seen == MISSING else 'lack'}"
        )
    return f"{start}{_WHAT[found.kind]} {found.seen}; {found.agreeing:,} siblings have {found.expected}"


def contradiction(found: Contradiction) -> str:
    """``gres.conf names no Cores=, though the GPUs are on sockets 0-1``."""
    if found.fault is Fault.COUNT:
        return f"Slurm has {found.slurm} GPUs, {found.seen} were seen"
    if found.fault is Fault.NO_CORES:
        return f"gres.conf names no Cores=, though the GPUs are on sockets {found.seen}"
    return f"Cores= in gres.conf names sockets {found.slurm}, but the GPUs are on {found.seen}"


def grants(found: GrantSummary) -> str:
    """``12 jobs: 6 of 12 with cores away from their GPUs; 2 of 5 with a slower ring than was free …``."""
    if not found.grants:
        return "no jobs with GPUs yet"
    said = []
    if found.misaligned:
        said.append(f"{found.misaligned:,} of {found.alignment_known:,} with cores away from their GPUs")
    if found.off_ring:
        said.append(
            f"{found.off_ring:,} of {found.compared:,} with a slower ring than was free "
            f"(over all, {found.mean_loss:g} % slower on average, {found.worst_loss:g} % at worst)"
        )
    if found.across:
        said.append(f"{found.across:,} of {found.compared:,} on several sockets though one had room")
    if not said and (found.alignment_known or found.compared):
        said.append("none could have been placed better, as far as is known")
    start = counted(found.grants, "job")
    return f"{start}: {'; '.join(said)}" if said else start


def shape(found: Shape) -> str:
    """The number and type of GPUs; the model's name where Slurm's GPUs are not known."""
    kinds = parse_gres(found.gres)
    return ", ".join(f"{each.count} \N{MULTIPLICATION SIGN} {each.type or 'GPU'}" for each in kinds) or found.model


def gains(node: NodeHealth) -> str:
    """What gres.conf's lines would gain on a node, from its grants so far; empty where there is nothing to gain."""
    made = node.grants
    if not any(each.fault in (Fault.NO_CORES, Fault.SOCKETS) for each in node.contradictions):
        return LINKS_HELP if node.links_help and made.off_ring else ""
    said = f"The lines of gpuspawner fleet --gres-conf {node.node} tell Slurm the sockets of the GPUs"
    said += f" and their links, {LINKS_SEEN}" if node.links_help else ""
    if made.misaligned or made.across or made.off_ring:
        said += f"; so far at least {counted(max(made.misaligned, made.across, made.off_ring), 'job')} lost by it"
    return f"{said}."


def seen(node: NodeHealth) -> str:
    """``8 of 8 GPUs seen, by 5 jobs that agree``."""
    gpus = f"{node.gpus_seen} of {node.gpus} GPUs seen" if node.gpus else counted(node.gpus_seen, "GPU") + " seen"
    return f"{gpus}, by {'1 job' if node.agreeing == 1 else f'{node.agreeing:,} jobs that agree'}"


def doubt(node: NodeHealth) -> str:
    """What is said of reports that contradict several others; empty if there are none."""
    if not node.doubting:
        return ""
    jobs = "1 job has" if node.doubting == 1 else f"{node.doubting:,} jobs have"
    return f"{jobs} reported otherwise since, which counts once {min(node.agreeing, SEVERAL)} in a row do."
