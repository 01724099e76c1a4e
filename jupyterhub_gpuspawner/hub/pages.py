"""What the pages say of a running server: pure, from the placement to words."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from markupsafe import Markup

from jupyterhub_gpuspawner import picture
from jupyterhub_gpuspawner.hub.other_nodes import in_words
from jupyterhub_gpuspawner.topology import from_document
from jupyterhub_gpuspawner.units import parse_cpulist

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from jupyterhub_gpuspawner.wire import PlacedGpu, PlacementDocument


@dataclass(frozen=True)
class ServerFacts:
    """One running server as the home page shows it: rows of a name and a text of one or more lines, in order."""

    rows: tuple[tuple[str, str], ...]
    problems: tuple[str, ...]
    simulated: bool
    picture: Markup


def server_facts(placement: PlacementDocument, topology: Mapping[str, Any] | None, *, now: datetime) -> ServerFacts:
    """Where a server runs and what it got, in words and as a picture of its node."""
    rows = [
        ("Node", placement.node),
        ("Job", _joined(placement.job_id, placement.partition and f"partition {placement.partition}")),
        ("GPUs", "\n".join(_gpu(gpu) for gpu in placement.gpus) or "none"),
        ("Cores", placement.cpus or "not known"),
        ("NUMA nodes", ", ".join(map(str, placement.numa_nodes)) or "not known"),
        ("Memory policy", placement.memory_policy),
        (
            "Aligned",
            ": ".join(filter(None, ({True: "yes", False: "no", None: "not known"}[placement.aligned], placement.why))),
        ),
        ("Other nodes", "\n".join(map(in_words, placement.other_nodes))),
        ("Ends", _end(placement.ends_at, now)),
    ]
    return ServerFacts(
        rows=tuple((name, text) for name, text in rows if text),
        problems=placement.problems,
        simulated=placement.simulated,
        picture=_picture(placement, topology),
    )


def _joined(*parts: str | None) -> str:
    return ", ".join(part for part in parts if part)


def _gpu(gpu: PlacedGpu) -> str:
    what = f"{gpu.name or 'GPU'} MIG {gpu.mig}" if gpu.mig else gpu.name or "GPU"
    memory = f"{gpu.memory_mib / 1024:.0f} GiB" if gpu.memory_mib else None
    near = f"NUMA node {gpu.numa_node}" if gpu.numa_node is not None else None
    return f"GPU {gpu.index}: {_joined(what, memory, near)}"


def _end(ends_at: str | None, now: datetime) -> str:
    if ends_at is None:
        return ""
    try:
        end = datetime.fromisoformat(ends_at.replace("Z", "+00:00")).astimezone(now.tzinfo)
    except ValueError:
        return ""
    left = max(0, int((end - now).total_seconds()) // 60)
    return f"{end:%Y-%m-%d %H:%M %Z} (in {left // 60} h {left % 60} min)"


def _picture(placement: PlacementDocument, topology: Mapping[str, Any] | None) -> Markup:
    if not topology:
        return Markup("")
    try:
        node = from_document(topology)
        own_cpus = parse_cpulist(placement.cpus)
    except ValueError:
        return Markup("")
    own = {(gpu.index, gpu.uuid) for gpu in placement.gpus}
    positions = [n for n, gpu in enumerate(node.gpus) if (gpu.index, gpu.uuid) in own]
    # the picture escapes every text in it
    return Markup(picture.svg(node, own_gpus=positions, own_cpus=own_cpus, title=f"Node {placement.node}"))  # noqa: S704
