"""``gpuspawner course rehearse --real``: one short job for each participant, or one on each node, before a course.

The jobs are those of ``check --submit``, with the course's request cut down to one core and one GPU, and look at the
home folder, the GPU and the materials, too. They have the lowest priority, and run a few at a time.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from jupyterhub_gpuspawner.check.finding import CODES, Code, Finding, Options, Severity
from jupyterhub_gpuspawner.check.machine import HubAddress, hub_address
from jupyterhub_gpuspawner.check.probe_job import MINUTES, probe_job
from jupyterhub_gpuspawner.check.run import context_of
from jupyterhub_gpuspawner.check.submit import NO_ACCOUNT, FollowedJob, findings_of, follow, listening_hub
from jupyterhub_gpuspawner.errors import ConfigError, SlurmUnavailable
from jupyterhub_gpuspawner.extensions.availability.model.capacity import capacity_of
from jupyterhub_gpuspawner.extensions.availability.model.limits import need_of
from jupyterhub_gpuspawner.extensions.courses.check import SessionPlan, ranks_of_people
from jupyterhub_gpuspawner.extensions.courses.checks import NO_GPU, NO_MATERIALS, NO_NBGITPULLER, UNWRITABLE
from jupyterhub_gpuspawner.extensions.courses.course import Materials
from jupyterhub_gpuspawner.extensions.courses.site import courses_of, planned_session
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.placement.topology import as_line
from jupyterhub_gpuspawner.profiles.resolve import JobRequest
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.site.configuration import Site
from jupyterhub_gpuspawner.slurm.accounts import refuse_root
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot
from jupyterhub_gpuspawner.words import counted, people

LOWEST_NICE = 2147483645
"""The lowest priority that a user can ask for (sbatch(1), ``--nice``)."""
NBGITPULLER = {
    "nbgitpuller": (
        NO_NBGITPULLER,
        "{node} has no nbgitpuller in the profile's environment, so nobody gets the course's materials.",
        "Install it there, beside JupyterLab.",
    )
}


@dataclass(frozen=True)
class ProbeTarget:
    """Whom a job is for, and where it runs."""

    user: str
    node: str = ""
    """Empty: wherever Slurm puts it."""
    rank: int = 0
    """Which of the session's profiles it has."""
    profile: str = ""
    """The slug of this profile; empty where the session has one profile only."""
    on: str = ""
    """Its cluster, such as `` on cedar``; empty in a hub with a single one."""

    def __str__(self) -> str:
        where = f" on {self.node}" if self.node else ""
        return f"{self.user}{where}{self.on}{f', profile {self.profile}' if self.profile else ''}"


@dataclass(frozen=True)
class RealRehearsal:
    """What is about to be submitted."""

    site: Site
    plan: SessionPlan
    """Without reservations that have not begun."""
    materials: Materials | None
    targets: tuple[ProbeTarget, ...]
    later_reservations: tuple[str, ...] = ()
    """Reservations that have not begun, so that the jobs run outside them."""

    def cost(self, concurrency: int) -> str:
        """Such as ``50 jobs of at most 5 min and 1 GPU each: 250 GPU minutes at most; 4 at a time, ...``."""
        jobs, resources = len(self.targets), [request.resources for request in self.plan.requests]
        gpus = sum(bool(resources[target.rank].gpus or resources[target.rank].shards) for target in self.targets)
        per_job = " and 1 GPU each" if gpus == jobs else f" each, {gpus} with 1 GPU" if gpus else " each"
        most = f"{gpus * MINUTES} GPU minutes" if gpus else f"{jobs * MINUTES} minutes of a core"
        return (
            f"{counted(jobs, 'job')} of at most {MINUTES} min{per_job}: {most} at most; "
            f"{concurrency} at a time, at the lowest priority."
        )


@dataclass(frozen=True)
class Probed:
    """What one job found."""

    target: ProbeTarget
    node: str
    """Where it ran; empty where it did not."""
    faults: tuple[Finding, ...]
    """Errors and warnings."""

    def __str__(self) -> str:
        """Such as ``ada (g1)``, or ``ada on g1`` where the node was chosen."""
        return f"{self.target} ({self.node})" if self.node and not self.target.node else str(self.target)


async def real_rehearsal(
    site: Site, name: str, session: str, *, only: Sequence[str] = (), nodes: bool = False
) -> RealRehearsal:
    """What would be submitted for the next session, or the one that is named; raises ConfigError, SlurmUnavailable.

    For each participant, or those in ``only``, a job with the profile that they would get; with ``nodes`` one on each
    node of each profile, as the first of them.
    """
    courses = await asyncio.to_thread(courses_of, site)
    course, inputs, plan = await planned_session(site, courses, name, session)
    if not plan.requests:
        why = next((remark.text for remark in plan.remarks if not remark.hint), "")
        raise ConfigError(f"course {name} cannot be rehearsed. {why}".strip())
    requests, later = zip(
        *(_without_later_reservation(request, inputs.snapshots) for request in plan.requests), strict=True
    )
    plan = replace(plan, requests=requests)
    targets = tuple(targets_of(plan, tuple(only) or plan.asked_as, inputs.snapshots, nodes=nodes))
    if not targets:
        raise ConfigError(f"course {name} cannot be rehearsed: no node takes its servers now.")
    return RealRehearsal(site, plan, course.materials, targets, tuple(dict.fromkeys(filter(None, later))))


def targets_of(
    plan: SessionPlan, users: Sequence[str], snapshots: Mapping[str, ClusterSnapshot], *, nodes: bool
) -> Iterator[ProbeTarget]:
    """A job for each of these users, with the profile that they would get; with ``nodes`` one on each node of each."""
    slugs = [chosen.slug for chosen in plan.session.profiles] if len(plan.requests) > 1 else [""]
    if nodes:
        for rank, (request, cluster, on) in enumerate(zip(plan.requests, plan.clusters, plan.on, strict=True)):
            for node in nodes_of(request.resources, snapshots[cluster]):
                yield ProbeTarget(users[0], node, rank, slugs[rank], on)
        return
    ranks = ranks_of_people(plan, snapshots)
    for user in users:
        rank = ranks.get(user, 0)
        yield ProbeTarget(user, rank=rank, profile=slugs[rank], on=plan.on[rank])


def _without_later_reservation(request: JobRequest, snapshots: Mapping[str, ClusterSnapshot]) -> tuple[JobRequest, str]:
    name, snapshot = request.resources.reservation_name, snapshots[request.resources.cluster or ""]
    own = snapshot.reservation_by_name.get(name)
    if not name or (own is not None and (own.start is None or own.start <= snapshot.taken_at)):
        return request, ""
    return replace(request, resources=request.resources.model_copy(update={"reservation": None})), name


def nodes_of(resources: Resources, snapshot: ClusterSnapshot) -> list[str]:
    """The nodes on which servers with this request can run."""
    names = dict[str, None]()
    where = {"constraint": resources.constraint or "", "reservation": resources.reservation_name}
    for name in snapshot.partitions_of(resources.partition):
        partition = snapshot.partition_by_name.get(name)
        if partition is not None:
            need = need_of(resources, partition, snapshot)
            usable = capacity_of(snapshot).nodes(name, **where).usable
            names |= dict.fromkeys(node.name for node in usable if node.offers(need))
    return sorted(names)


async def probed(rehearsal: RealRehearsal, *, concurrency: int) -> AsyncIterator[Probed]:
    """Submit the jobs, ``concurrency`` at a time, and yield what each of them found, as they end.

    All that were submitted are cancelled, whatever happens. Raises ConfigError and SlurmUnavailable.
    """
    clusters, hubs = rehearsal.plan.clusters, dict[str, HubAddress]()
    for cluster in dict.fromkeys(clusters):  # each may reach the hub by another address
        context = await context_of(rehearsal.site, Options(), cluster=cluster)
        if context.snapshot is None:
            raise SlurmUnavailable("Slurm does not answer.")
        hubs[cluster] = hub_address(context)
    turns = asyncio.Semaphore(concurrency)

    async def probe(target: ProbeTarget) -> Probed:
        async with turns:
            return await _probe(rehearsal, target, hubs[clusters[target.rank]].url, hub_listens=listens)

    async with listening_hub(hubs[clusters[0]]) as listens:
        jobs = [asyncio.ensure_future(probe(target)) for target in rehearsal.targets]
        try:
            for job in asyncio.as_completed(jobs):
                yield await job
        finally:
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)


async def _probe(rehearsal: RealRehearsal, target: ProbeTarget, hub: str, *, hub_listens: bool) -> Probed:
    user, request = target.user, rehearsal.plan.requests[target.rank]
    spawner: GPUSlurmSpawner = rehearsal.site.spawner(user)
    spawner.use_cluster(request.resources.cluster or "")
    try:
        if spawner.exec_prefix.strip():
            await refuse_root(user)
        account = await spawner.account()
    except ConfigError as error:
        return Probed(target, "", (NO_ACCOUNT.error(f"user {user}", error.message, error.hint),))
    on_node = (f"--nodelist={target.node}",) if target.node else ()
    extra = (*(request.resources.extra or ()), *on_node)
    resources = request.resources.model_copy(update={"nice": LOWEST_NICE, "extra": extra})
    request = replace(request, username=user, resources=resources)
    job = probe_job(spawner, account, resources.partition or "", [request], hub)
    materials = rehearsal.materials
    job = replace(job, extra=node_checks(request, materials), packages=NBGITPULLER if materials is not None else {})
    followed = await follow(spawner, job, account)
    node = followed.last.batch_host if followed.last is not None else ""
    faults = [
        finding for finding in findings_of(followed, hub_listens=hub_listens) if finding.severity is not Severity.OK
    ]
    return Probed(target, node, (*faults, *course_faults(followed, node)))


def node_checks(request: JobRequest, materials: Materials | None) -> str:
    """The command that looks at what only a course needs. A container fetches the materials with a git of its own."""
    materials = None if request.environment.container is not None else materials
    source = Path(__file__).with_name("on_node.py").read_text("utf-8")
    questions = {
        "gpus": bool(request.resources.gpus),
        "git": materials.git if materials is not None else "",
        "branch": materials.branch if materials is not None else "",
    }
    return f'"$GPUSPAWNER_PYTHON" -I -c {shlex.quote(source)} {shlex.quote(json.dumps(questions))}'


_COURSE_FACTS: Mapping[str, tuple[Code, str, str]] = {
    "home": (
        UNWRITABLE,
        "nothing can be written to the home folder",
        "Free space, raise the quota, or mend the mount.",
    ),
    "gpu": (NO_GPU, "the job sees no GPU", "Look at gres.conf and at the driver on the node."),
    "materials": (NO_MATERIALS, "the materials cannot be fetched", "See `materials` in the course's file."),
}


def course_faults(followed: FollowedJob, node: str) -> Iterator[Finding]:
    """What is wrong by the facts of :func:`node_checks`."""
    for fact, (code, text, fix) in _COURSE_FACTS.items():
        why = followed.log.facts.get(fact, {}).get("why")
        if why and not (fact == "home" and "no-home" in followed.log.facts):
            yield code.error(as_line(f"node {node}"), as_line(f"{text}: {why}"), fix)


@dataclass
class Causes:
    """What went wrong, by its cause."""

    faultless: int = 0
    """Jobs that found nothing wrong."""
    faults: dict[str, list[tuple[Probed, Finding]]] = field(default_factory=dict)
    """By the code of the finding."""

    def add(self, done: Probed) -> None:
        """Count one job; it may have several faults."""
        for finding in done.faults:
            self.faults.setdefault(finding.code, []).append((done, finding))
        if not done.faults:
            self.faultless += 1

    def table(self) -> Iterator[str]:
        """The lines that are printed at the end: for each cause how many, what to do, and each of them."""
        for concerned in sorted(self.faults.values(), key=len, reverse=True):
            first = concerned[0][1]
            head = "WRONG" if first.severity is Severity.ERROR else "warn "
            on = {(done.target.node, done.target.on) for done, _ in concerned if done.target.node}
            of = counted(len(on), "node") if on else people(len(concerned))
            yield f"{head} {of}: {CODES[first.code].meaning}"
            if first.fix:
                yield f"      {first.fix}"
            for done, finding in concerned:
                yield f"      {done}: {finding.text}"
        yield f"ok    {counted(self.faultless, 'job')} found nothing wrong"
