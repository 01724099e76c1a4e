"""What is known of one node from the reports of its jobs: views, merged over time. Pure.

A job sees all GPUs of its node, or only its own, where Slurm confines it (``ConstrainDevices``). The second kind of
view is partial: what it does not show is unknown, not missing. A view is whole if it has each GPU that the kernel
lists, or if it has more GPUs than the job, and so was not confined.

A report is made on the node by a process of its user, who may forge it. So a view that contradicts several others
counts only when as many in a row, or :data:`SEVERAL`, say the same, and these are of more people than stand for what
was known, or of :data:`SEVERAL`: one person's jobs never overrule another's, however many there are.

GPUs that idle may lower their PCIe lanes. So the widest of a GPU's last :data:`IDLE_VIEWS` views is its width.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any

from jupyterhub_gpuspawner.extensions.fleet.gres_conf import in_pci_order
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology, from_document, to_document
from jupyterhub_gpuspawner.units import Gres, parse_gres

VERSION = 1
GPUS_AT_MOST = 128
"""GPUs and MIG devices of one record: as many as a topology document may have."""
SEVERAL = 3
"""Views in a row, and people, that overrule any number of others."""
PEOPLE_AT_MOST = 2 * SEVERAL
"""People who are remembered of those who have reported the same, the latest ones."""
IDLE_VIEWS = 10
"""Views in a row in which a GPU that is well is not idle each time."""
SOMEBODY = ""
"""A person whose name is not known: of a report that an earlier version kept."""


@dataclass(frozen=True)
class View:
    """What one job saw of its node."""

    node: str
    """Slurm's name of the node."""
    at: float
    """Seconds since the epoch."""
    topology: NodeTopology
    granted: int = 0
    """GPUs that the job holds on the node."""
    gres: str = ""
    """The node's generic resources, as slurmctld reported them then; empty if it was not asked."""
    user: str = SOMEBODY
    """Whose job it is."""

    @property
    def whole(self) -> bool:
        """Whether it shows all GPUs that the node has."""
        gpus = self.topology.gpus
        shown = {gpu.pci for gpu in gpus}
        if self.topology.is_from_file:
            return bool(gpus)
        if self.topology.devices:
            return shown >= set(self.topology.devices) or self.unconfined
        return self.unconfined or (bool(gpus) and len(gpus) == gpu_count(parse_gres(self.gres)))

    @property
    def unconfined(self) -> bool:
        """Whether it shows GPUs that the job does not hold."""
        return len(self.topology.gpus) > self.granted > 0


def several(people: Collection[str]) -> bool:
    """Whether these are more than one person; :data:`SOMEBODY` may be many."""
    return SOMEBODY in people or len(people) > 1


@dataclass(frozen=True)
class Sightings:
    """Whose views have shown a GPU as the record has it."""

    people: tuple[str, ...] = (SOMEBODY,)
    """The latest ones, each once."""
    lanes: tuple[tuple[str, int], ...] = ()
    """Whose the last :data:`IDLE_VIEWS` views were, and the PCIe lanes that were in use; oldest first."""

    @property
    def never_wider(self) -> bool:
        """Whether so many views of several people have shown the GPU that it was not idle in all of them."""
        return len(self.lanes) == IDLE_VIEWS and several({user for user, _ in self.lanes})


@dataclass(frozen=True)
class NodeRecord:
    """A node as its views show it together; times are seconds since the epoch."""

    node: str
    topology: NodeTopology
    """All GPUs that have been seen, in the order of PCI bus ids; links that were never seen are ``?``."""
    seen: tuple[float, ...] = ()
    """When each of these GPUs was last seen."""
    sightings: tuple[Sightings, ...] = ()
    """Who has seen each of them."""
    seen_at: float = 0.0
    """The time of the last view."""
    whole_at: float | None = None
    """The time of the last whole view; None if there has been none."""
    gres: str = ""
    """The node's generic resources, as slurmctld reported them at the last view that has them."""
    agreeing: int = 1
    """How many views in a row have not contradicted it."""
    people: tuple[str, ...] = (SOMEBODY,)
    """Whose these were, the latest ones, each once."""
    doubt: NodeRecord | None = None
    """The node by the views since, if they contradict it and are too few to overrule it."""

    @cached_property
    def gone(self) -> tuple[int, ...]:
        """Positions of GPUs that were seen once, and are missing in a later whole view or on the PCI bus."""
        listed = self.topology.devices
        return tuple(
            position
            for position, (gpu, view) in enumerate(zip(self.topology.gpus, self.seen, strict=True))
            if (gpu.pci and listed and gpu.pci not in listed) or (self.whole_at is not None and view < self.whole_at)
        )

    @cached_property
    def present(self) -> tuple[int, ...]:
        """Positions of the other GPUs."""
        gone = set(self.gone)
        return tuple(position for position in range(len(self.topology.gpus)) if position not in gone)

    @cached_property
    def complete(self) -> bool:
        """Whether each GPU of the node has been seen, together with all links."""
        pci = {self.topology.gpus[position].pci for position in self.present}
        all_present = self.whole_at is not None or (bool(self.topology.devices) and pci >= set(self.topology.devices))
        return all_present and not any(self.topology.link(a, b) == "?" for a in self.present for b in self.present)

    @cached_property
    def people_for_doubt(self) -> int:
        """How many people's views it takes for the doubt to overrule the record, if the jobs are enough."""
        others = set(self.people) - set(self.doubt.people if self.doubt is not None else ())
        return min(SEVERAL, len(others) + 1)

    @cached_property
    def overruled(self) -> bool:
        """Whether the doubt is that of as many jobs and people as overrule the record."""
        doubt = self.doubt
        if doubt is None or doubt.agreeing < min(self.agreeing, SEVERAL):
            return False
        return SOMEBODY in doubt.people or len(doubt.people) >= self.people_for_doubt

    def to_json(self) -> dict[str, Any]:
        """The record as it is stored; version 1."""
        document = {field.name: getattr(self, field.name) for field in fields(self)}
        doubt = self.doubt.to_json() if self.doubt is not None else None
        sightings = [asdict(gpu) for gpu in self.sightings]
        topology = to_document(self.topology)
        return {"version": VERSION, **document, "topology": topology, "sightings": sightings, "doubt": doubt}


def record_from(document: Mapping[str, Any]) -> NodeRecord:
    """Read a stored record; raises ValueError, KeyError or TypeError for anything else."""
    if document["version"] != VERSION:
        raise ValueError(f"version: must be {VERSION}")
    topology = from_document(document["topology"])
    times = tuple(map(float, document["seen"]))
    if len(times) != len(topology.gpus):
        raise ValueError("seen: must have a time for each GPU")
    sightings = tuple(
        Sightings(tuple(map(str, gpu["people"])), tuple((str(user), int(lanes)) for user, lanes in gpu["lanes"]))
        for gpu in document.get("sightings", ({"people": [SOMEBODY], "lanes": []} for _ in times))
    )
    if len(sightings) != len(times):
        raise ValueError("sightings: must have those of each GPU")
    whole_at, doubt = document["whole_at"], document.get("doubt")
    return NodeRecord(
        node=str(document["node"]),
        topology=topology,
        seen=times,
        sightings=sightings,
        seen_at=float(document["seen_at"]),
        whole_at=None if whole_at is None else float(whole_at),
        gres=str(document["gres"]),
        agreeing=int(document.get("agreeing", 1)),
        people=tuple(map(str, document.get("people", (SOMEBODY,)))),
        doubt=None if doubt is None else record_from(doubt),
    )


def gpu_count(gres: Sequence[Gres]) -> int:
    """The number of GPUs and MIG devices among generic resources."""
    return sum(resource.count for resource in gres if resource.name == "gpu")


def merged(record: NodeRecord | None, view: View) -> NodeRecord:
    """The record with a later view, or with a doubt if the view contradicts what others have shown."""
    if record is None:
        return _with(None, view)
    if not _contradicts(record, view):
        return replace(_with(record, view), agreeing=record.agreeing + 1, doubt=_open_doubt(record, view))
    before = record.doubt if record.doubt is not None and not _contradicts(record.doubt, view) else None
    doubt = replace(_with(before, view), agreeing=1 if before is None else before.agreeing + 1)
    doubted = replace(record, seen_at=doubt.seen_at, gres=doubt.gres or record.gres, doubt=doubt)
    if not doubted.overruled:
        return doubted
    after = _with(record, view)
    by_key = {_key(gpu): seen for gpu, seen in zip(doubt.topology.gpus, doubt.sightings, strict=True)}
    sightings = zip(after.topology.gpus, after.sightings, strict=True)
    return replace(
        after,
        sightings=tuple(by_key.get(_key(gpu), seen) for gpu, seen in sightings),
        agreeing=doubt.agreeing,
        people=doubt.people,
    )


def _open_doubt(record: NodeRecord, view: View) -> NodeRecord | None:
    """The doubt of a record after a view that agrees with the record; None if the view settles it.

    A job that is confined to other GPUs than the doubted one neither settles the doubt nor confirms it.
    """
    doubt = record.doubt
    if doubt is None or _contradicts(doubt, view):
        return None
    doubted = {gpu.pci for gpu in doubt.topology.gpus}
    missing_is_shown = doubt.whole_at is not None and any(gpu.pci not in doubted for gpu in view.topology.gpus)
    return None if missing_is_shown else doubt


def _contradicts(record: NodeRecord, view: View) -> bool:
    """Whether the view denies something that is known of the node; what one of both does not know is not denied."""
    old, new = record.topology, view.topology
    present = [old.gpus[position] for position in record.present]
    positions, shown = _first_by_pci(old), _first_by_pci(new)
    both = sorted(positions.keys() & shown.keys())
    facts = list(zip(_node_facts(old), _node_facts(new), strict=True))
    for pci in both:
        facts += zip(_gpu_facts(old.gpus[positions[pci]]), _gpu_facts(new.gpus[shown[pci]]), strict=True)
    whole = [pci for pci in both if old.gpus[positions[pci]].mig is None and new.gpus[shown[pci]].mig is None]
    facts += [(old.link(positions[a], positions[b]), new.link(shown[a], shown[b])) for a in whole for b in whole]
    unknown: tuple[object, ...] = (None, "", "?", (), frozenset())
    if any(a != b and a not in unknown and b not in unknown for a, b in facts):
        return True
    return view.whole and not {gpu.pci for gpu in present} <= {gpu.pci for gpu in new.gpus}


def _first_by_pci(topology: NodeTopology) -> dict[str, int]:
    """Positions of the GPUs by PCI bus id; of a GPU that is divided that of its first MIG device."""
    return {gpu.pci: position for position, gpu in reversed([*enumerate(topology.gpus)]) if gpu.pci}


def _node_facts(topology: NodeTopology) -> tuple[object, ...]:
    cpus = frozenset((node.id, tuple(node.cpus)) for node in topology.numa_nodes)
    devices, nics, siblings = frozenset(topology.devices), frozenset(topology.nics), frozenset(topology.siblings)
    return devices, nics, cpus, siblings, topology.packages, topology.driver


WELL = "well"


def _gpu_facts(gpu: Gpu) -> tuple[object, ...]:
    """What is compared of two views of a GPU; not the PCIe lanes in use, which are fewer while it is idle.

    The memory is the driver's to say: where it is unknown, the driver has not answered, and the GPU may be well or not.
    """
    memory = gpu.memory_mib if gpu.mig is None else None
    state = gpu.fault or (WELL if gpu.memory_mib is not None else "")
    return gpu.name.partition(" MIG ")[0], memory, gpu.numa_node, gpu.pcie_generation, state


def _with(record: NodeRecord | None, view: View) -> NodeRecord:
    """What the view shows replaces what was known, and what it does not show stays."""
    old = record or NodeRecord(view.node, NodeTopology(), people=())
    before = old.topology
    view = replace(view, topology=_completed(view.topology, before))
    new = view.topology
    at = max(view.at, old.seen_at)  # clocks may be set back
    remaining = _remaining(old, view)
    gpus = (*new.gpus, *(before.gpus[position] for position in remaining))
    times = (*(at for _ in new.gpus), *(old.seen[position] for position in remaining))
    before_by_key = {_key(gpu): seen for gpu, seen in zip(before.gpus, old.sightings, strict=True)}
    sightings = (
        *(_seen_again(before_by_key.get(_key(gpu)), gpu, view.user) for gpu in new.gpus),
        *(old.sightings[position] for position in remaining),
    )
    gpus = tuple(
        replace(gpu, pcie_width=max((lanes for _, lanes in seen.lanes), default=gpu.pcie_width))
        for gpu, seen in zip(gpus, sightings, strict=True)
    )
    positions = [(n if n < len(new.gpus) else None, _position_of(before, gpu)) for n, gpu in enumerate(gpus)]
    nics = new if new.nics else before
    topology = replace(
        new,
        hostname="",
        gpus=gpus,
        links=tuple(tuple(_link(new, before, a, b) for b in positions) for a in positions),
        numa_nodes=new.numa_nodes or before.numa_nodes,
        siblings=new.siblings or before.siblings,
        packages=new.packages or before.packages,
        devices=new.devices or before.devices,
        nics=nics.nics,
        nic_links=tuple(tuple(_nic_link(new, before, nic, gpu) for gpu in positions) for nic in nics.nics),
        nic_numa=nics.nic_numa,
        driver=new.driver or before.driver,
        problems=(),
    )
    order = in_pci_order(topology)
    return NodeRecord(
        node=view.node,
        topology=_ordered(topology, order),
        seen=tuple(times[position] for position in order),
        sightings=tuple(sightings[position] for position in order),
        seen_at=at,
        whole_at=at if view.whole else old.whole_at,
        gres=view.gres or old.gres,
        people=_and(old.people, view.user),
    )


def _and(people: Sequence[str], user: str) -> tuple[str, ...]:
    return (*(other for other in people if other != user), user)[-PEOPLE_AT_MOST:]


def _seen_again(before: Sightings | None, gpu: Gpu, user: str) -> Sightings:
    people, lanes = (before.people, before.lanes) if before is not None else ((), ())
    if gpu.pcie_width is not None:
        lanes = (*lanes, (user, gpu.pcie_width))[-IDLE_VIEWS:]
    return Sightings(_and(people, user), lanes)


def _completed(new: NodeTopology, before: NodeTopology) -> NodeTopology:
    """The view with what was known of GPUs for which the driver did not answer."""
    gpus: list[Gpu] = []
    for gpu in new.gpus:
        same = [other for other in before.gpus if gpu.pci and other.pci == gpu.pci and _is_silent(gpu, other)]
        fault, lanes = gpu.fault, (gpu.pcie_width, gpu.pcie_max_width)
        gpus += [
            replace(
                other, fault=fault or other.fault, pcie_width=lanes[0], pcie_max_width=lanes[1] or other.pcie_max_width
            )
            for other in same
        ] or [gpu]
    if len(gpus) == len(new.gpus):
        return replace(new, gpus=tuple(gpus))
    return replace(new, gpus=tuple(gpus), links=(), nics=(), nic_links=(), nic_numa=())  # with its MIG devices


FORGOTTEN = "(forgotten)"
"""In the place of a person who was forgotten: the reports still are one person's."""


def without_name(record: NodeRecord, user: str) -> NodeRecord:
    """The record without the name of a person; what they have reported stays."""

    def names(people: Iterable[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(FORGOTTEN if name == user else name for name in people))

    def of_lanes(lanes: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
        return tuple((FORGOTTEN if name == user else name, width) for name, width in lanes)

    return replace(
        record,
        people=names(record.people),
        sightings=tuple(Sightings(names(gpu.people), of_lanes(gpu.lanes)) for gpu in record.sightings),
        doubt=None if record.doubt is None else without_name(record.doubt, user),
    )


def _is_silent(gpu: Gpu, before: Gpu) -> bool:
    """Whether the driver did not answer for a GPU that is known; the kernel may know its UUID."""
    known = not gpu.uuid or before.mig is not None or gpu.uuid == before.uuid
    return known and gpu.mig is None and gpu.memory_mib is None


def forgotten(record: NodeRecord, before: float) -> NodeRecord:
    """The record without GPUs that are gone and were last seen before this time."""
    dropped = {position for position in record.gone if record.seen[position] < before}
    left = [position for position in range(len(record.seen)) if position not in dropped]
    return replace(
        record,
        topology=_ordered(record.topology, left),
        seen=tuple(record.seen[position] for position in left),
        sightings=tuple(record.sightings[position] for position in left),
    )


_Positions = tuple["int | None", "int | None"]
"""Where a GPU of the merged record is in the view and in the old record; None where it is not."""


def _key(gpu: Gpu) -> str:
    return gpu.uuid if gpu.mig is not None else gpu.pci or gpu.uuid or str(gpu.index)


def _position_of(topology: NodeTopology, gpu: Gpu) -> int | None:
    return next((n for n, other in enumerate(topology.gpus) if _key(other) == _key(gpu)), None)


def _remaining(old: NodeRecord, view: View) -> list[int]:
    """Positions of the old record's GPUs that the view does not replace, those that were seen last if there are many.

    Views that are partial never show that a MIG device was deleted, and a new one has a new UUID.
    """
    shown = {_key(gpu) for gpu in view.topology.gpus}
    whole = {gpu.pci for gpu in view.topology.gpus if gpu.mig is None}
    sliced = {gpu.pci for gpu in view.topology.gpus if gpu.mig is not None}
    positions = []
    for position, gpu in enumerate(old.topology.gpus):
        replaced = gpu.pci in whole if gpu.mig is not None else gpu.pci in sliced
        deleted = gpu.mig is not None and view.whole  # MIG devices come and go
        if _key(gpu) not in shown and not replaced and not deleted:
            positions.append(position)
    room = max(0, GPUS_AT_MOST - len(view.topology.gpus))
    return sorted(sorted(positions, key=lambda position: -old.seen[position])[:room])


def _link(new: NodeTopology, before: NodeTopology, a: _Positions, b: _Positions) -> str:
    if a == b:
        return "X"
    pairs = zip((new, before), a, b, strict=True)
    return _first_measured(topology.link(x, y) for topology, x, y in pairs if x is not None and y is not None)


def _nic_link(new: NodeTopology, before: NodeTopology, nic: str, gpu: _Positions) -> str:
    return _first_measured(
        topology.nic_links[topology.nics.index(nic)][position]
        for topology, position in zip((new, before), gpu, strict=True)
        if position is not None and nic in topology.nics and topology.nic_links
    )


def _first_measured(links: Iterable[str]) -> str:
    return next((link for link in links if link != "?"), "?")


def _ordered(topology: NodeTopology, order: Sequence[int]) -> NodeTopology:
    """The topology with only these GPUs, in this order."""
    return replace(
        topology,
        gpus=tuple(topology.gpus[position] for position in order),
        links=tuple(tuple(topology.link(a, b) for b in order) for a in order),
        nic_links=tuple(tuple(row[position] for position in order) for row in topology.nic_links),
    )
