"""Starts that failed, by cluster, cause and profile, and nodes on which several people's failed in a row. Pure."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from types import MappingProxyType
from typing import Any

from jupyterhub_gpuspawner.extensions.records.explanation import Explanation, explanation
from jupyterhub_gpuspawner.extensions.records.record import SessionRecord
from jupyterhub_gpuspawner.slurm.commands import COMMAND, fixed_prefix
from jupyterhub_gpuspawner.slurm.login_node import destination, is_remote

IN_A_ROW = 3
"""Starts that must have failed in a row on a node, until one of them succeeds, for the node to be at fault."""
AT_LEAST_PEOPLE = 2
"""People whose starts these must have been: one person's may all fail for the same mistake."""
OF_PEOPLE = frozenset(("home_full", "user_options", "job_cancelled", "job_time_limit", "job_preempted"))
"""Faults that say nothing about a node."""


@dataclass(frozen=True)
class Failures:
    """Starts of one profile on one cluster that failed for one cause."""

    cluster: str
    """The cluster's name; empty in a hub that names none."""
    fault: str
    """That of :class:`~jupyterhub_gpuspawner.hub.job.cause.Cause`."""
    subject: str
    """The module or conda environment that the fault is about; empty where records do not have it."""
    profile: str
    """The profile's slug; empty where the start had none yet."""
    records: tuple[SessionRecord, ...]
    """Oldest first."""
    slurm: str = COMMAND
    """How a command of Slurm's is typed for this cluster."""

    @property
    def nodes(self) -> dict[str, int]:
        """How many failed on each node, most first; a start that had none is not counted."""
        return dict(Counter(record.node for record in self.records if record.node).most_common())

    @property
    def people(self) -> tuple[str, ...]:
        """Whose they were, by name."""
        return people_of(self.records)

    @property
    def latest_at(self) -> float:
        """When the last of them failed, in seconds since the epoch."""
        return max(map(outcome_at, self.records))

    @property
    def explanation(self) -> Explanation:
        """The cause in words, and what to do; it names the last of their jobs, and the node if there was one alone."""
        nodes = list(self.nodes)
        node = nodes[0] if len(nodes) == 1 else "the nodes" if nodes else ""
        job = self.records[-1].job_id
        return explanation(self.fault, subject=self.subject, node=node, profile=self.profile, job=job, slurm=self.slurm)


@dataclass(frozen=True)
class FailingNode:
    """A node on which the last starts failed, and those of several people."""

    cluster: str
    """The name of its cluster; empty in a hub that names none."""
    node: str
    records: tuple[SessionRecord, ...]
    """Those starts, oldest first."""
    slurm: str = COMMAND
    """How a command of Slurm's is typed for this cluster."""
    worked_at: float | None = None
    """When one of their profiles last started a server, in seconds since the epoch; None if that is not known."""

    @property
    def people(self) -> tuple[str, ...]:
        """Whose they were, by name."""
        return people_of(self.records)

    @property
    def latest_at(self) -> float:
        """When the last of them failed, in seconds since the epoch."""
        return outcome_at(self.records[-1])

    @property
    def doubt(self) -> str:
        """What to look at before the node is drained; empty where its profiles have started servers meanwhile."""
        if self.worked_at is None or self.worked_at >= outcome_at(self.records[0]):
            return ""
        return "No server of these profiles has started since: if they were changed, it may be the profiles."

    def to_json(self) -> dict[str, Any]:
        """As in the documents of `gpuspawner failures` and of the map."""
        return {
            **({"cluster": self.cluster} if self.cluster else {}),
            "node": self.node,
            "starts": len(self.records),
            "people": list(self.people),
            "drain": self.drain,
            "exclude": self.exclude,
        }

    @property
    def drain(self) -> str:
        """The command by which no more jobs start on the node; those that run go on (scontrol(1))."""
        reason = f'"gpuspawner: the last {len(self.records)} starts failed"'
        if self.slurm != COMMAND:  # for the shell of another machine; without one scontrol removes double quotes
            reason = f"'{reason}'"
        return f"{self._scontrol} update NodeName={self.node} State=DRAIN Reason={reason}"

    @property
    def resume(self) -> str:
        """The command that takes the node back into use."""
        return f"{self._scontrol} update NodeName={self.node} State=RESUME"

    @property
    def _scontrol(self) -> str:
        return self.slurm.replace(COMMAND, "scontrol")

    @property
    def exclude(self) -> str:
        """The line of a profile by which its jobs avoid the node."""
        return f'slurm: {{extra: ["--exclude={self.node}"]}}'


def failures_of(records: Iterable[SessionRecord], commands: Mapping[str, str] = MappingProxyType({})) -> list[Failures]:
    """The starts that failed, by cluster, cause and profile: those of most people first.

    ``commands`` is how a command of Slurm's is typed for each cluster that is not this machine's own.
    """
    groups: dict[tuple[str, str, str, str], list[SessionRecord]] = defaultdict(list)
    for record in records:
        if record.cause is not None and record.start_failed:
            groups[record.cluster, record.cause.fault, record.subject, record.profile].append(record)
    failures = [Failures(*key, tuple(group), commands.get(key[0], COMMAND)) for key, group in groups.items()]
    return sorted(failures, key=lambda group: (-len(group.people), -len(group.records), -group.latest_at))


def failing_nodes(
    records: Iterable[SessionRecord], commands: Mapping[str, str] = MappingProxyType({})
) -> list[FailingNode]:
    """The nodes on which the last starts failed, at least :data:`IN_A_ROW` of :data:`AT_LEAST_PEOPLE` people, by name.

    A start counts against its node only if its profile has started a server on the cluster, and that since the first of
    these starts where it fails on other nodes, too: else it may be the profile. ``commands`` as for
    :func:`failures_of`.
    """
    by_cluster: dict[str, list[SessionRecord]] = defaultdict(list)
    for record in records:
        if record.node and (record.ready_at is not None or record.start_failed):
            by_cluster[record.cluster].append(record)
    return [
        FailingNode(cluster, node, failed, commands.get(cluster, COMMAND), worked_at)
        for cluster, of_cluster in sorted(by_cluster.items())
        for node, failed, worked_at in _failed_in_a_row(of_cluster)
    ]


def never_started(records: Iterable[SessionRecord]) -> set[tuple[str, str]]:
    """The profiles, as cluster and slug, of which starts failed and no server has ever started."""
    failed, started = set[tuple[str, str]](), set[tuple[str, str]]()
    for record in records:
        if record.ready_at is not None:
            started.add((record.cluster, record.profile))
        elif record.start_failed and record.cause is not None and record.cause.fault not in OF_PEOPLE:
            failed.add((record.cluster, record.profile))
    return {(cluster, profile) for cluster, profile in failed - started if profile}


def _failed_in_a_row(records: Sequence[SessionRecord]) -> Iterator[tuple[str, tuple[SessionRecord, ...], float]]:
    """The nodes at fault on one cluster, each with the starts that say so, and when one of their profiles last worked.

    ``records`` are those of starts whose outcome is known.
    """
    worked_at: dict[str, float] = {}
    latest: dict[tuple[str, str], SessionRecord] = {}
    by_node: dict[str, list[SessionRecord]] = defaultdict(list)
    for record in sorted(records, key=outcome_at):
        by_node[record.node].append(record)
        latest[record.profile, record.node] = record
        if not record.start_failed:
            worked_at[record.profile] = outcome_at(record)
    fails_on = Counter(profile for (profile, _), record in latest.items() if record.start_failed)
    for node, of_node in sorted(by_node.items()):
        in_a_row = [*takewhile(lambda record: record.start_failed, reversed(of_node))][::-1]
        failed = [record for record in in_a_row if record.cause and record.cause.fault not in OF_PEOPLE]
        first: dict[str, float] = {}
        for record in failed:
            first.setdefault(record.profile, outcome_at(record))
        blamed = {
            profile
            for profile, at in first.items()
            if profile in worked_at and (fails_on[profile] == 1 or worked_at[profile] >= at)
        }
        failed = [record for record in failed if record.profile in blamed]
        if len(failed) >= IN_A_ROW and len(people_of(failed)) >= AT_LEAST_PEOPLE:
            yield node, tuple(failed), max(worked_at[profile] for profile in blamed)


def outcome_at(record: SessionRecord) -> float:
    """When it was known what became of a start, in seconds since the epoch."""
    return next(at for at in (record.ready_at, record.ended_at, record.seen_at) if at is not None)


def people_of(records: Iterable[SessionRecord]) -> tuple[str, ...]:
    """Whose sessions these are, by name."""
    return tuple(sorted({record.username for record in records}))


def slurm_commands(site: Any) -> dict[str, str]:
    """How an administrator types a command of Slurm's for each cluster on the hub's machine, as :data:`COMMAND`.

    ``site`` is any spawner of the hub. Empty in a hub that names no clusters; raises ConfigError.
    """
    return {name: _as_typed(site.effective(name)) for name in site.clusters}


def _as_typed(settings: Any) -> str:
    prefix = fixed_prefix(settings.query_prefix, where="query_prefix")
    command = f"{COMMAND} -M {settings.req_cluster}" if settings.req_cluster else COMMAND
    if is_remote(prefix):
        return f"{shlex.join(destination(prefix))} {command}"
    folder = f"{shlex.quote(settings.slurm_bin_dir.rstrip('/'))}/" if settings.slurm_bin_dir else ""
    conf = f"SLURM_CONF={shlex.quote(settings.slurm_conf)} " if settings.slurm_conf else ""
    return f"{conf}{folder}{command}"
