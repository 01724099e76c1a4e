"""What a check gets, and what it finds: the context of a check, a finding, and the codes of findings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, time
from enum import Enum
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from jupyterhub_gpuspawner.batch.job import SETTINGS
from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError, RequestError, SlurmOutputError, SlurmUnavailable
from jupyterhub_gpuspawner.extension import Fault
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.profiles.document import Document, read_document
from jupyterhub_gpuspawner.profiles.folder import shown_name
from jupyterhub_gpuspawner.profiles.option import ProfileOption
from jupyterhub_gpuspawner.profiles.profile import Allow, Profile
from jupyterhub_gpuspawner.profiles.resolve import Defaults, JobRequest, moment_of, resolve
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.profiles.tuples import slug_of
from jupyterhub_gpuspawner.site.configuration import SOMEBODY, Site
from jupyterhub_gpuspawner.site.jobs import cluster_named
from jupyterhub_gpuspawner.site.people import People
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot


class Severity(str, Enum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    """It works, but look at it."""
    ERROR = "error"
    """Starts will fail."""


@dataclass(frozen=True)
class Finding:
    """One answer of ``gpuspawner check``."""

    severity: Severity
    code: str
    """The name of its :class:`Code`."""
    where: str
    """File and line, the field of a profile, or the setting."""
    text: str
    """One sentence: the fault, or for OK what was found in order."""
    fix: str = ""
    """The remedy: one sentence, or what to write; empty where ``text`` implies it, and for OK."""
    cluster: str = ""
    """The cluster that it is of; empty for the hub, for what is the same on all, and in a hub that names none."""


CODES: dict[str, Code] = {}
"""Every code by its name, for the reference. A code is declared once, in the module of the check that reports it."""


@dataclass(frozen=True)
class Code:
    """A kind of finding. The name is stable: scripts may depend on it."""

    name: str
    """Lower case with hyphens, such as ``partition-missing``."""
    meaning: str
    """When it is reported, for the reference; sentences."""
    only_with: str = ""
    """The option or command without which nothing of the kind is looked for; then the meaning begins in lower case."""

    of_hub: bool = False
    """It is found once for a hub of several clusters, and its sentence names one where it is of one."""

    as_user: bool = False
    """Of a job: at the place of ``exec_prefix`` it says only that nothing can be run as a user."""

    def __post_init__(self) -> None:
        """Enter the code in :data:`CODES`; raises ValueError for a name that another code has."""
        if CODES.setdefault(self.name, self) != self:
            raise ValueError(f"two codes are called {self.name}.")

    def ok(self, where: str, text: str) -> Finding:
        """A finding that says what is in order."""
        return Finding(Severity.OK, self.name, where, text)

    def warning(self, where: str, text: str, fix: str = "") -> Finding:
        """A finding about something that works, and should be looked at."""
        return Finding(Severity.WARNING, self.name, where, text, fix)

    def error(self, where: str, text: str, fix: str = "") -> Finding:
        """A finding because of which starts will fail."""
        return Finding(Severity.ERROR, self.name, where, text, fix)

    def of(self, error: GPUSpawnerError) -> Finding:
        """The finding for an error, at the place that it names."""
        return self.error(error.where, error.fault, error.hint)


@dataclass(frozen=True)
class Verdict:
    """Why a request can never run on a cluster."""

    field: str
    """The field of a profile's ``slurm`` block."""
    clause: str
    """For a participant; without leading capital and final full stop."""
    code: Code
    fix: str


Judge = Callable[[Resources, ClusterSnapshot, float], Verdict | None]
"""Why a request can never run on the cluster of this snapshot, from this moment on; None where it may."""


# What every check is given: the configuration, the profiles with all requests that they allow, and Slurm's answer.

Values = Mapping[str, str | int | float]


@dataclass(frozen=True)
class Options:
    """What the command line asks for beyond the usual checks."""

    user: str = ""
    """A user whose jobs are tried, without submitting them."""
    groups: tuple[str, ...] = ()
    """JupyterHub groups of that user."""
    profile: str = ""
    """The only profile to try; empty: each."""
    submit: bool = False
    """Submit one small job of the user in each partition, and look at its node."""
    cluster: str = ""
    """The only cluster to look at; empty: each."""
    added: Mapping[str, Any] = field(default_factory=dict)
    """The values of options that extensions have added, by their names, as far as they were given."""


DEFAULTS = Options()
"""Nothing beyond the usual checks."""


@dataclass(frozen=True)
class Case:
    """One request that a user can make with a profile: the options that differ from their defaults."""

    profile: Profile
    options: Values = field(default_factory=dict)
    option: str = ""
    """The option that is tried; empty for the unchanged profile."""
    path: tuple[str, ...] = ()
    """Its field in the profile, such as ``profile_options.gpus.range.max``."""


def cases_of(profile: Profile) -> Iterator[Case]:
    """The unchanged profile first; then the values of each option that are not its default."""
    yield Case(profile)
    for name, option in profile.profile_options.items():
        for part, value in values_of(option):
            if value != option.initial(profile.slurm):
                yield Case(profile, {name: value}, name, ("profile_options", name, *part))


def values_of(option: ProfileOption) -> list[tuple[tuple[str, ...], str | int | float]]:
    """Each choice of an option, or both ends of its range, with its field.

    The largest value of a range need not be its maximum: it goes in steps.
    """
    if option.range is not None:
        ends = {option.range.min: "min", option.range.nearest(option.range.max): "max"}
        return [(("range", end), value) for value, end in ends.items()]
    return [(("choices", key), key) for key in option.choices]


@dataclass(frozen=True)
class Context:
    """A site at one moment, and one of its clusters."""

    site: Site
    spawner: Any
    """The spawner of a user ``nobody``, with the settings of all Slurm servers on the cluster."""
    client: SlurmClient
    profiles: tuple[Profile, ...]
    """None in a hub without profiles."""
    defaults: Defaults
    """The site's defaults for Slurm jobs, by cluster."""
    people: People
    """JupyterHub's users and groups, as far as they are known."""
    now: datetime
    """With a time zone."""
    version: str = ""
    """Slurm's."""
    snapshot: ClusterSnapshot | None = None
    """None if Slurm did not answer, or not so that it can be read; then :attr:`slurm_error` says why."""
    slurm_error: SlurmUnavailable | SlurmOutputError | None = None
    options: Options = DEFAULTS
    judges: tuple[Judge, ...] = ()
    """Those of the hub's extensions; one that raises knows nothing."""
    judge_faults: Sequence[Fault] = ()
    """What these have raised until now."""
    others: Mapping[str, ClusterSnapshot | None] = field(default_factory=dict)
    """The snapshots of the hub's other clusters, as far as they were asked."""

    @property
    def cluster(self) -> str:
        """The cluster's name; empty in a hub that names none."""
        return str(self.spawner.cluster)

    def cluster_of(self, case: Case) -> str:
        """The cluster that a request names, or else the first; it need not exist."""
        return cluster_named(case.profile, case.options) or str(self.spawner.first_cluster)

    def cases(self, profile: Profile) -> Iterator[Case]:
        """The requests that users can make with a profile on this cluster: see :func:`cases_of`."""
        return (case for case in cases_of(profile) if self.cluster_of(case) == self.cluster)

    def snapshot_of(self, case: Case) -> ClusterSnapshot | None:
        """The cluster where a request would run, which may be another one than this; None where it is not known."""
        name = self.cluster_of(case)
        return self.snapshot if name == self.cluster else self.others.get(name)

    def verdict(self, resources: Resources, snapshot: ClusterSnapshot, now: float) -> Verdict | None:
        """Why a request can never run on the cluster of the snapshot, as the first judge that knows says."""
        return next((reason for judge in self.judges if (reason := judge(resources, snapshot, now)) is not None), None)

    @cached_property
    def requests(self) -> tuple[tuple[Case, Resources], ...]:
        """All that users can request with the Slurm profiles on this cluster, each profile unchanged first.

        What is no request at all is left out: a finding of the check of requests.
        """
        requests = []
        for profile in self.of_slurm():
            for case in self.cases(profile):
                with suppress(RequestError):
                    requests.append((case, self.request(case).resources))
        return tuple(requests)

    def of_slurm(self) -> Iterator[Profile]:
        """The profiles whose servers are jobs, or may be, on this cluster."""
        return (profile for profile in self.profiles if profile.kind == "slurm" and any(self.cases(profile)))

    def chosen(self) -> Iterator[Profile]:
        """The same; the one alone that the command line names, if it names one."""
        return (profile for profile in self.of_slurm() if self.options.profile in ("", profile.slug))

    def unchanged(self, profile: Profile) -> Resources | None:
        """What a profile requests where the user chooses nothing; None where that is no job on this cluster."""
        pairs = (resources for case, resources in self.requests if case.profile is profile and not case.option)
        return next(pairs, None)

    def request(
        self, case: Case, *, user: str = SOMEBODY.name, groups: tuple[str, ...] = (), now: datetime | None = None
    ) -> JobRequest:
        """The request of a user who may use the profile; raises RequestError."""
        return resolve(
            (case.profile.model_copy(update={"allow": Allow()}),),
            {"profile": case.profile.slug, **case.options},
            username=user,
            groups=groups,
            server_name="",
            now=now or self.first_moment(case.profile),
            defaults=self.defaults,
        )

    def first_moment(self, profile: Profile) -> datetime:
        """The first moment from now on at which the profile can be used, as far as its own dates say."""
        opens, now = profile.allow.from_, self.now
        if opens is not None:
            now = max(now, moment_of(opens))
        rule = profile.slurm.reservation
        if rule is not None and rule.pattern is None and rule.default is None and now.date() not in rule.dates:
            later = [day for day in rule.dates if day > now.date()]
            now = moment_of(min(later), time(12)) if later else now
        return now

    # Where a field of a profile is written: the file and line, or the hub's configuration.

    @property
    def has_profiles(self) -> bool:
        """False in a hub of ``gpu-slurm``, which offers none."""
        return isinstance(self.spawner, GPUProfilesSpawner)

    def location(self, profile: Profile, *path: str) -> str:
        """``profile gpu: slurm.gpus``, or ``profile gpu (site.yaml:7): slurm.gpus`` of one in a file."""
        head = f"profile {profile.slug}"
        if self.has_profiles and (folder := self.spawner.source.folder) is not None:
            name, configured = folder.file_of(profile.slug), self.spawner.source.configured_profiles()
            if name and profile.slug not in [other.slug for other in configured]:
                head = f"{head} ({shown_name(name)}:{self._line(Path(folder.path, name), profile.slug, path)})"
        return f"{head}: {'.'.join(path)}" if path else head

    def location_of(self, case: Case, field: str) -> str:
        """The place of the value that ``field`` of ``slurm`` has in a case: an option, the profile, or a setting."""
        profile = case.profile
        path: tuple[str, ...] = ("slurm", field) if field in profile.slurm.model_fields_set else ()
        for name, option in profile.profile_options.items():
            value = case.options.get(name, option.initial(profile.slurm))
            if value is None:
                continue
            if field in option.choose(value)[1].slurm.model_fields_set:
                part = ("choices", str(value), "slurm", field) if option.choices else ("range",)
                path = ("profile_options", name, *part)
        if case.path and (path[:2] != case.path[:2] or case.path[-2:-1] == ("range",)):
            path = case.path  # also where the value of another option made the difference
        if path:
            return self.location(profile, *path)
        if getattr(self.defaults[self.spawner.cluster], field, None) is not None:
            return self.setting(f"req_{SETTINGS.get(field, field)}")
        return self.location(profile, "slurm", field)

    def setting(self, name: str) -> str:
        """A setting of Slurm servers as the admin wrote it, such as ``c.SlurmSpawner.req_partition``."""
        own = name in self.spawner.clusters.get(self.cluster, {})
        return f"{self.spawner.configured_as('clusters')}: {name}" if own else str(self.spawner.configured_as(name))

    @cached_property
    def _documents(self) -> dict[Path, Document | None]:
        return {}

    def _line(self, file: Path, slug: str, path: tuple[str, ...]) -> int:
        if file not in self._documents:
            try:
                self._documents[file] = read_document(file.read_text("utf-8"))
            except (OSError, ValueError, ConfigError):  # its last good version is offered
                self._documents[file] = None
        document = self._documents[file]
        return document.line([*_base(document.value, slug), *path]) if document is not None else 1


def _base(value: Any, slug: str) -> tuple[str | int, ...]:
    """The path of a profile in its file."""
    inside: tuple[str | int, ...] = ()
    if isinstance(value, dict) and "profiles" in value:
        value, inside = value["profiles"], ("profiles",)
    for position, item in enumerate(value if isinstance(value, list) else ()):
        if isinstance(item, dict) and slug == (item.get("slug") or slug_of(str(item.get("display_name", "")))):
            return (*inside, position)
    return inside


Check = Callable[[Context], Iterator[Finding] | AsyncIterator[Finding]]
"""One question that ``gpuspawner check`` asks: a generator, asynchronous where it runs a command or asks a database.

Its findings are in an order that does not change between runs. Raises SlurmUnavailable if Slurm does not answer.
"""


def checks_in(module: ModuleType) -> tuple[Check, ...]:
    """Each function of the module whose name begins with ``check_``, in the order in which they stand there."""
    own = (value for name, value in vars(module).items() if name.startswith("check_"))
    return tuple(check for check in own if check.__module__ == module.__name__)


NAME_NO_CLUSTER: set[Check] = set()
"""Checks that are declared by :func:`names_no_cluster`."""


def names_no_cluster(check: Check) -> Check:
    """Declare that findings are of the hub, not of one cluster: the check asks no Slurm, or its sentences name it."""
    NAME_NO_CLUSTER.add(check)
    return check
