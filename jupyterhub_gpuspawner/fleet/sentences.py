"""Differences, contradictions and grants in words, for admins. Pure."""

from __future__ import annotations

from datetime import datetime

from jupyterhub_gpuspawner.fleet.differences import MISSING, PRESENT, Contradiction, Difference, Fault, Kind, Shape
from jupyterhub_gpuspawner.fleet.health import GrantSummary, NodeHealth
from jupyterhub_gpuspawner.fleet.node_record import SEVERAL
from jupyterhub_gpuspawner.units import parse_gres
from jupyterhub_gpuspawner.words import counted, day

NAMED_AT_MOST = 4
"""GPUs or pairs that are named in one sentence."""
PARTIAL = "Jobs have seen only their own GPUs so far; what they have not seen is not judged."
LINKS_BENEFIT = "which helps servers with Slurm 22.05, and with 24.11 and 26.05 if gpus_option is 'gpus'"
"""What was alignment_known; see docs/explanation/gres-conf-table.md."""
LINKS_HELP = (
    f"Links= in gres.conf tells Slurm which GPUs are linked, {LINKS_BENEFIT}; "
    "scontrol does not show whether it is there."
)


def difference(fact: Difference) -> str:
    """``0000:b3:00.0: PCIe lanes 8; 3 siblings have 16``."""
    if fact.kind is Kind.GONE:
        since = "" if fact.since is None else f", last seen on {day(datetime.fromtimestamp(fact.since).astimezone())}"
        return f"{', '.join(fact.subjects)}: this GPU is missing ({fact.seen or 'model not known'}{since})"
    named = ", ".join(fact.subjects[:NAMED_AT_MOST])
    more = len(fact.subjects) - NAMED_AT_MOST
    if more > 0:
        named += f" and {more} more"
    start = f"{named}: " if named else ""
    if fact.kind is Kind.NICS and {fact.seen, fact.expected} == {MISSING, PRESENT}:
        return f"{start}NIC {fact.seen}, which {fact.agreeing:,} siblings {'have' if fact.seen == MISSING else 'lack'}"
    return f"{start}{fact.kind.words} {fact.seen}; {fact.agreeing:,} siblings have {fact.expected}"


def contradiction(fact: Contradiction) -> str:
    """``gres.conf names no Cores=, though the GPUs are on sockets 0-1``."""
    if fact.fault is Fault.COUNT:
        return f"Slurm has {fact.slurm} GPUs, {fact.seen} were seen"
    if fact.fault is Fault.NO_CORES:
        return f"gres.conf names no Cores=, though the GPUs are on sockets {fact.seen}"
    return f"Cores= in gres.conf names sockets {fact.slurm}, but the GPUs are on {fact.seen}"


def grants(summary: GrantSummary) -> str:
    """``12 jobs: 6 of 12 with cores away from their GPUs; 2 of 5 with a slower ring than was free …``."""
    if not summary.grants:
        return "no jobs with GPUs yet"
    parts = []
    if summary.misaligned:
        parts.append(f"{summary.misaligned:,} of {summary.alignment_known:,} with cores away from their GPUs")
    if summary.off_ring:
        parts.append(
            f"{summary.off_ring:,} of {summary.compared:,} with a slower ring than was free "
            f"(over all, {summary.mean_loss:g} % slower on average, {summary.worst_loss:g} % at worst)"
        )
    if summary.across:
        parts.append(f"{summary.across:,} of {summary.compared:,} on several sockets though one had room")
    if not parts and (summary.alignment_known or summary.compared):
        parts.append("none could have been placed better, as far as is known")
    start = counted(summary.grants, "job")
    return f"{start}: {'; '.join(parts)}" if parts else start


def shape(common: Shape) -> str:
    """The number and type of GPUs; the model's name where Slurm's GPUs are not known."""
    kinds = parse_gres(common.gres)
    return ", ".join(f"{gres.count} \N{MULTIPLICATION SIGN} {gres.type or 'GPU'}" for gres in kinds) or common.model


def gains(node: NodeHealth) -> str:
    """What gres.conf's lines would gain on a node, from its grants so far; empty where there is nothing to gain."""
    jobs = node.grants
    if not any(fault.fault in (Fault.NO_CORES, Fault.SOCKETS) for fault in node.contradictions):
        return LINKS_HELP if node.links_help and jobs.off_ring else ""
    text = f"The lines of gpuspawner fleet --gres-conf {node.node} tell Slurm the sockets of the GPUs"
    text += f" and their links, {LINKS_BENEFIT}" if node.links_help else ""
    if jobs.misaligned or jobs.across or jobs.off_ring:
        text += f"; so far at least {counted(max(jobs.misaligned, jobs.across, jobs.off_ring), 'job')} lost by it"
    return f"{text}."


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
