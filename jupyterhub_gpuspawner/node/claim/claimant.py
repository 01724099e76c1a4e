"""Placing a server that must claim its GPUs: the best of the unused ones, among those that Slurm leaves to it.

For sites whose Slurm does not manage GPUs, and for nodes that several servers share. GPUs are indices into
``topology.gpus``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.cpulist import format_cpulist
from jupyterhub_gpuspawner.node import child
from jupyterhub_gpuspawner.node.allocation import UNMANAGED, GpuGrant
from jupyterhub_gpuspawner.node.claim.locks import ClaimError, claim
from jupyterhub_gpuspawner.node.placing import Gpus, Placing
from jupyterhub_gpuspawner.placement import choice

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from jupyterhub_gpuspawner.placement.topology import NodeTopology
    from jupyterhub_gpuspawner.wire.documents import LaunchPlan, PlacementDocument


class Claimant(Placing):
    """The launch of a server that may use only the GPUs it has claimed."""

    without_choice = Gpus(visible="", why="No GPU could be claimed; the node's GPUs are hidden from this server.")

    _visible = ""

    def place(self) -> tuple[PlacementDocument, NodeTopology]:
        """As :meth:`Placing.place`; whichever step fails, the server sees no GPUs other than those it has claimed."""
        try:
            return super().place()
        finally:
            self.environ["CUDA_VISIBLE_DEVICES"] = self._visible

    def _gpus(self, topology: NodeTopology, cpus: tuple[int, ...]) -> Gpus:
        gpus = super()._gpus(topology, cpus)
        self._visible = gpus.visible or ""
        return gpus

    def _grant(self, topology: NodeTopology, cpus: tuple[int, ...]) -> GpuGrant:
        return claimed(super()._grant(topology, cpus), topology, self.plan, node=self.node, cpus=cpus)

    def _no_gpus(self, topology: NodeTopology, granted: GpuGrant) -> Gpus:  # noqa: ARG002 - the same in every case
        return self.without_choice


class NoClaim(Claimant):
    """The launch of a server whose plan could not be read: any GPU might be claimed by another server."""

    def _gpus(self, topology: NodeTopology, cpus: tuple[int, ...]) -> Gpus:  # noqa: ARG002 - the same in every case
        self.problems.append(
            "No GPU is used: without the launch plan, it is unknown whether GPUs must be claimed on this node."
        )
        return self.without_choice


def claimed(
    granted: GpuGrant, topology: NodeTopology, plan: LaunchPlan, *, node: str, cpus: Iterable[int] = ()
) -> GpuGrant:
    """Claim as many of the granted GPUs as the plan promises (or all, if it promises none); returns the claimed part.

    If nothing can be claimed, the server gets no GPU, never one that another server may be using.
    """
    if plan.claim is None or not granted.names:
        return granted
    problems = [problem for problem in granted.problems if problem != UNMANAGED]
    if granted.positions is None:
        problems.append("No GPU was claimed: it is not known which GPUs this node has.")
        return GpuGrant(problems=tuple(problems))
    used, why_unknown = ({}, "") if topology.simulated else in_use(plan.deadline)
    if why_unknown:
        problems.append(f"GPUs in use were recognised only by their claims: {why_unknown}")
    busy = {gpu: used[topology.gpus[gpu].uuid] for gpu in granted.positions if topology.gpus[gpu].uuid in used}
    problems += [f"GPU {topology.gpus[gpu].index} is skipped: it is in use by {by}." for gpu, by in busy.items()]
    names = {gpu: name_of(topology, gpu, node) for gpu in granted.positions if gpu not in busy}
    wanted = plan.gpus or len(granted.positions)

    def choose(free: Sequence[int]) -> Sequence[int]:
        count = min(wanted, len(free))
        return choice.choose(topology, granted=free, count=count, cpus=cpus, policy=plan.policy).gpus

    try:
        got = claim(plan.claim, names, choose)
    except ClaimError as error:
        problems.append(f"No GPU was claimed: {error}.")
        return GpuGrant(problems=tuple(problems))
    problems += got.problems
    if got.claimed_elsewhere and len(got.gpus) < wanted:
        others = format_cpulist(topology.gpus[gpu].index for gpu in got.claimed_elsewhere)
        problems.append(f"GPU {others} is claimed by other servers.")
    return _part(granted, got.gpus, problems)


def _part(granted: GpuGrant, gpus: Sequence[int], problems: Sequence[str]) -> GpuGrant:
    indices = [n for n, position in enumerate(granted.positions or ()) if position in gpus]
    return replace(
        granted,
        names=tuple(granted.names[n] for n in indices),
        positions=tuple((granted.positions or ())[n] for n in indices),
        slurm=tuple(granted.slurm[n] for n in indices) if granted.slurm else (),
        problems=tuple(problems),
    )


def name_of(topology: NodeTopology, gpu: int, node: str) -> str:
    """A GPU's name that is the same in every job: node and PCI bus id, and the UUID of a MIG device."""
    device = topology.gpus[gpu]
    name = f"{node}-{device.pci or device.uuid or device.index}"
    return name if device.mig is None else f"{name}+{device.uuid or gpu}"


def in_use(seconds: float) -> tuple[Mapping[str, str], str]:
    """What uses each busy GPU or MIG device, by UUID; and the reason, if that cannot be found out."""
    try:
        documents, finished = child.ask_documents(ask_driver, seconds)
    except OSError as error:
        return {}, f"no process could be started to ask the driver: {error.strerror}."
    for document in documents:
        return document["used"], document["failed"]
    return {}, "the driver did not respond in time." if not finished else "asking the driver failed."


def ask_driver(say: child.Say) -> None:
    """The child's part of :func:`in_use`."""
    from jupyterhub_gpuspawner.node.observe import nvml

    try:
        say(used=nvml.in_use(), failed="")
    except nvml.UnavailableError as error:
        say(used={}, failed=f"NVML is not available: {error}.")
