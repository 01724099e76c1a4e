"""The launcher on one of a job's other nodes: it reports what the job has there, and ends.

The batch script runs it by ``srun`` on every node but the first (:mod:`jupyterhub_gpuspawner.batch.shell`), in
the background: the server does not wait for it. Nothing stays bound and nothing is started; ``gpuspawner-run`` chooses
in the same way when it starts something there. slurmctld is not asked: with many nodes that would be many questions at
once.
"""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.node import child, folder, grant
from jupyterhub_gpuspawner.node import report as reporting
from jupyterhub_gpuspawner.node.grant import ControllerAnswers, GpuGrant
from jupyterhub_gpuspawner.node.placing import Launch
from jupyterhub_gpuspawner.placement.topology import NodeTopology, to_document
from jupyterhub_gpuspawner.wire.documents import NodeReport, PlacementDocument, recover_plan

if TYPE_CHECKING:
    from collections.abc import MutableMapping, Sequence

    from jupyterhub_gpuspawner.wire.documents import LaunchPlan

PATIENCE = 300
"""Seconds after which a report that the hub does not take is given up."""
PAUSE = 5.0
"""Seconds between two tries, each of which is already repeated (:func:`~.report.attempt`)."""
NOT_CLAIMED = "GPUs are claimed on the server's own node only."


class OtherNode(Launch):
    """Placing without slurmctld: what it would have to be asked is left open, since the hub knows the whole job."""

    def _grant(self, topology: NodeTopology, cpus: tuple[int, ...]) -> GpuGrant:
        if self.plan.choose is not None:
            return GpuGrant(positions=None, problems=(NOT_CLAIMED,))
        return super()._grant(topology, cpus)

    def _granted_cpus(self, topology: NodeTopology, allowed: tuple[int, ...]) -> tuple[int, ...]:
        """The CPUs that this step sees; none if they are more than Slurm granted, since it is not known which."""
        granted, unknown = grant.cpus(self.environ, topology, allowed, self.slurm)
        return () if unknown else granted


def place(plan: LaunchPlan, environ: MutableMapping[str, str], *problems: str) -> NodeReport:
    """What the job has on this node, as a report to the hub."""
    if "SLURM_STEP_GPUS" not in environ:
        environ.pop("SLURM_JOB_GPUS", None)  # from the batch script's environment: those of the first node
    placing = OtherNode(plan, environ, slurm=ControllerAnswers({}, job="", node=""))
    placing.problems.extend(problems)
    nothing = (PlacementDocument(node=placing.node), NodeTopology())
    document, topology = placing.attempt("Placing on this node", placing.place, nothing)
    is_read = bool(topology.gpus or topology.numa_nodes)
    return NodeReport(0, placing.with_problems(document), to_document(topology) if is_read else None, other_node=True)


def deliver(report: NodeReport, environ: MutableMapping[str, str]) -> str | None:
    """Send the report until the hub takes or refuses it; returns None or a sentence that says what failed."""
    signal.alarm(PATIENCE)  # looking up a name may take forever
    ends_at = time.monotonic() + PATIENCE
    while True:
        failure, retry = reporting.attempt(report, environ)
        if failure is None or not retry or time.monotonic() + PAUSE > ends_at:
            return failure
        time.sleep(PAUSE)


def main(arguments: Sequence[str]) -> None:
    """Report this node; the argument is the launch plan as JSON. What fails is a line in the job's log."""
    plan, fault = recover_plan(arguments[0])
    problems = [f"The launch plan could not be read: {fault}"] if fault else []
    environ = dict(os.environ)
    try:
        folder.certificates_in_memory(environ)
    except (OSError, ValueError) as error:
        problems.append(f"The server's certificates could not be read: {error}")
    report = place(plan, environ, *problems)
    failure = deliver(report, environ)
    if failure:
        child.complain(f"{report.placement.node}: {failure}")
        raise SystemExit(1)
