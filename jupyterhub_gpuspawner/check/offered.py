"""Whether each profile results in a job that can be submitted, and would run with each of its options."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, time
from decimal import Decimal
from itertools import islice, product
from typing import TYPE_CHECKING, Any

from jupyterhub_gpuspawner.check.finding import Code, Context, Finding, Severity
from jupyterhub_gpuspawner.cluster.availability import availability
from jupyterhub_gpuspawner.cluster.limits import Fault, FaultKind, fault_of
from jupyterhub_gpuspawner.errors import ConfigError, RefusalKind, RequestError
from jupyterhub_gpuspawner.hub.choose.offer import WHERE, fields_set
from jupyterhub_gpuspawner.hub.site.account import job_owner
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.start.build import SETTINGS, site_profile
from jupyterhub_gpuspawner.profiles.files import (
    FOLDER_FLAGS,
    SIZE_LIMIT,
    Document,
    UnfitFile,
    YamlFault,
    read_document,
    read_regular,
    shown_name,
)
from jupyterhub_gpuspawner.profiles.option import put_over
from jupyterhub_gpuspawner.profiles.profile import LEAST_MEMORY, Allow, Profile, SlugTaken, doubts_of, slug_of
from jupyterhub_gpuspawner.profiles.resolve import JobRequest, moment_of, permitted, queue_limit, resolve
from jupyterhub_gpuspawner.profiles.resources import ReservationRule, Resources, over_defaults
from jupyterhub_gpuspawner.site.configuration import SOMEBODY
from jupyterhub_gpuspawner.units import parse_wait
from jupyterhub_gpuspawner.words import day, duration, rounded

# Where a field of a profile is written: the file and line, or the hub's configuration.


class Locations:
    """Those of a site's profiles; files are read once."""

    def __init__(self, context: Context) -> None:
        self._context = context
        spawner = context.spawner
        self._folder = spawner.source.folder if isinstance(spawner, GPUProfilesSpawner) else None
        self._documents: dict[str, Document | None] = {}

    def of(self, profile: Profile, path: Sequence[str] = ()) -> str:
        """``profile gpu: slurm.gpus``, or ``profile gpu (site.yaml:7): slurm.gpus`` of one in a file."""
        name = self._folder.file_of(profile.slug) if self._folder is not None else ""
        configured = not name or any(offered.slug == profile.slug for offered in self._configured())
        head = f"profile {profile.slug}"
        if not configured:
            head = f"{head} ({shown_name(name)}:{self._line(name, profile.slug, path)})"
        return f"{head}: {'.'.join(path)}" if path else head

    def of_fault(self, profile: Profile, case: Case, field: str) -> str:
        """The place of the value that ``field`` of ``slurm`` has in a case: an option, the profile, or a setting."""
        options, settings = profile.profile_options, profile.as_override()
        untouched = settings
        path: tuple[str, ...] = ("slurm", field) if field in profile.slurm.model_fields_set else ()
        for name, option in options.items():
            value = case.options.get(name, option.initial(untouched))
            if value is None:
                continue
            over = option.choose(value)[1]
            settings = put_over(settings, over)
            if field in over.slurm.model_fields_set:
                part = ("choices", str(value), "slurm", field) if option.choices else ("range",)
                path = ("profile_options", name, *part)
        if case.path and path[:2] != case.path[:2]:
            path = case.path  # the value of another option made the difference
        elif case.path[-2:-1] == ("range",):
            path = case.path
        if path:
            return self.of(profile, path)
        if getattr(self._context.defaults, field, None) is not None:
            site = self._context.slurm_site
            return site.configured_as(f"req_{SETTINGS.get(field, field)}")
        return self.of(profile, ("slurm", field))

    def _configured(self) -> Sequence[Profile]:
        return self._context.spawner.source.configured_profiles()  # type: ignore[no-any-return]

    def _line(self, name: str, slug: str, path: Sequence[str]) -> int:
        if name not in self._documents:
            self._documents[name] = self._read(name)
        document = self._documents[name]
        return document.line([*_base(document.value, slug), *path]) if document is not None else 1

    def _read(self, name: str) -> Document | None:
        assert self._folder is not None  # noqa: S101 - of
        try:
            folder = os.open(self._folder.path, FOLDER_FLAGS)
        except OSError:
            return None
        try:
            return read_document(read_regular(folder, name, limit=SIZE_LIMIT).decode("utf-8"))
        except (OSError, UnfitFile, UnicodeDecodeError, YamlFault):  # its last good version is offered
            return None
        finally:
            os.close(folder)


def _base(value: Any, slug: str) -> tuple[str | int, ...]:
    """The path of a profile in its file."""
    inside: tuple[str | int, ...] = ()
    if isinstance(value, dict) and "profiles" in value:
        value, inside = value["profiles"], ("profiles",)
    for position, item in enumerate(value if isinstance(value, list) else ()):
        if isinstance(item, dict) and slug == (item.get("slug") or slug_of(str(item.get("display_name", "")))):
            return (*inside, position)
    return inside


# The requests that a user can make with a profile: unchanged, each choice, and both ends of each range.

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from jupyterhub_gpuspawner.profiles.option import ProfileOption, Range
    from jupyterhub_gpuspawner.profiles.profile import Profile

    Values = Mapping[str, str | int | float]

VARIANTS = 200
"""Combinations of other options that are tried for one case, at most."""


@dataclass(frozen=True)
class Case:
    """One request: the options that differ from their defaults."""

    options: Values = field(default_factory=dict)
    option: str = ""
    """The option that is tried; empty for the unchanged profile."""
    path: tuple[str, ...] = ()
    """Its field in the profile, such as ``profile_options.gpus.range.max``."""


def cases_of(profile: Profile) -> Iterator[Case]:
    """The unchanged profile first; then the values of each option that are not its default."""
    yield Case()
    settings = profile.as_override()
    for name, option in profile.profile_options.items():
        initial = option.initial(settings)
        for part, value in _values(option):
            if value != initial:
                yield Case({name: value}, name, ("profile_options", name, *part))


def _values(option: ProfileOption) -> list[tuple[tuple[str, ...], str | int | float]]:
    if option.range is not None:
        ends = {option.range.min: "min", _last(option.range): "max"}
        return [(("range", end), value) for value, end in ends.items()]
    return [(("choices", key), key) for key in option.choices]


def _last(range_: Range) -> int | float:
    """The largest value of a range, which its maximum need not be: it goes in steps."""
    return range_.nearest(range_.max)


def variants(profile: Profile, case: Case) -> Iterator[Values]:
    """The case with each combination of other options that decide which nodes are considered; itself first."""
    others = {
        name: [value for _, value in _values(option)]
        for name, option in profile.profile_options.items()
        if name != case.option and fields_set(option) & WHERE
    }
    yield case.options
    for values in islice(product(*others.values()), VARIANTS if others else 0):
        yield {**dict(zip(others, values, strict=True)), **case.options}


def highest(range_: Range, runs: Callable[[int | float], bool]) -> int | float | None:
    """The largest value of a range that runs, if lower ones do; None if not even the lowest runs."""
    low, step = Decimal(str(range_.min)), Decimal(str(range_.step))

    def value(at: int) -> int | float:
        return range_.nearest(float(low + at * step))

    first, last = 0, int((Decimal(str(range_.max)) - low) / step)
    if not runs(value(first)):
        return None
    while first < last:
        middle = (first + last + 1) // 2
        first, last = (middle, last) if runs(value(middle)) else (first, middle - 1)
    return value(first)


# The codes of what the form finds wrong with a request, each with what would be right.

_GONE, _CLOSED, _OTHERS = FaultKind.MISSING, FaultKind.CLOSED, FaultKind.FORBIDDEN
_NEEDED, _AMOUNT, _TOGETHER = FaultKind.NEEDED, FaultKind.AMOUNT, FaultKind.TOGETHER

NO_PARTITION = Code("partition-missing", "A partition does not exist. Slurm refuses every job that names it.")
RESERVATION_MISSING = Code(
    "reservation-missing",
    "A reservation does not exist. Of a profile with a table of days, a warning for each day to come.",
)
NOT_TOGETHER = Code("resources-not-together", "Nodes have each requested resource, but none has all of them together.")
REFUSED = Code("request-refused", "A value of an option makes a request that the hub refuses.")

BY_FAULT: dict[tuple[str, FaultKind], tuple[Code, str]] = {
    ("partition", _GONE): (NO_PARTITION, "Name a partition that exists."),
    ("partition", _NEEDED): (
        Code("partition-needed", "No partition is requested, and the cluster has no default one."),
        "Set slurm.partition, or c.GPUSlurmSpawner.req_partition for all profiles.",
    ),
    ("partition", _CLOSED): (
        Code("partition-closed", "A partition is down, drained or inactive, or has no nodes."),
        "Open it (scontrol update partition=NAME state=UP), or name another one.",
    ),
    ("partition", _OTHERS): (
        Code("partition-forbidden", "A partition admits members of some Unix groups alone (AllowGroups)."),
        "Put the users into one of these groups, or name another partition.",
    ),
    ("reservation", _GONE): (RESERVATION_MISSING, "Create the reservation, or take it out of the profile."),
    ("reservation", _CLOSED): (
        Code("reservation-over", "A reservation has ended."),
        "Name the current reservation, or take it out of the profile.",
    ),
    ("reservation", _OTHERS): (
        Code("reservation-forbidden", "A reservation does not admit users who may use the profile."),
        "Add the users to the reservation, or restrict the profile to those that it admits.",
    ),
    ("reservation", _NEEDED): (
        Code("reservation-needed", "A partition accepts only jobs with a reservation (ReqResv)."),
        "Set slurm.reservation.",
    ),
    ("account", _OTHERS): (
        Code("account-not-allowed", "A partition does not allow the account (AllowAccounts, DenyAccounts)."),
        "Name an account that the partition allows.",
    ),
    ("qos", _OTHERS): (
        Code("qos-not-allowed", "A partition does not allow the QOS (AllowQos, DenyQos)."),
        "Name a QOS that the partition allows.",
    ),
    ("constraint", _GONE): (
        Code("feature-missing", "No node of the partition has the requested features."),
        "Name features that its nodes have; `sinfo -N -o '%N %f'` lists them.",
    ),
    ("gpu_type", _GONE): (
        Code("gpu-type-missing", "No node of the partition has GPUs of the requested type."),
        "Name a type that its nodes have; `sinfo -N -o '%N %G'` lists them.",
    ),
    ("gpus", _GONE): (
        Code("gpus-missing", "GPUs are requested, and no node of the partition has any."),
        "Name a partition with GPUs, or request none.",
    ),
    ("shards", _GONE): (
        Code("shards-missing", "GPU shards are requested, and no node of the partition has any."),
        "Name a partition with shards, or request GPUs.",
    ),
    ("time", _NEEDED): (
        Code("time-needed", "The job has no time limit, and the partition or the reservation needs one."),
        "Set slurm.time.",
    ),
    ("time", _AMOUNT): (
        Code("time-too-long", "More time is requested than the partition allows, or than is left of the reservation."),
        "Request no more than that.",
    ),
    ("memory", _AMOUNT): (
        Code("memory-too-much", "More memory is requested than a node has, or than the partition allows."),
        "Request no more than that.",
    ),
    ("cpus", _AMOUNT): (
        Code("cpus-too-many", "More CPUs are requested than a node has, or than the partition allows."),
        "Request no more than that.",
    ),
    ("gpus", _AMOUNT): (
        Code("gpus-too-many", "More GPUs are requested than a node has."),
        "Request no more than that.",
    ),
    ("shards", _AMOUNT): (
        Code("shards-too-many", "More GPU shards are requested than a node has."),
        "Request no more than that.",
    ),
    ("nodes", _AMOUNT): (
        Code("nodes-out-of-range", "More nodes are requested than can run the job, or fewer than the partition needs."),
        "Request a number of nodes that the partition allows.",
    ),
    **{
        (field, _TOGETHER): (NOT_TOGETHER, "Lower one of the numbers, or name a partition with larger nodes.")
        for field in ("cpus", "memory", "gpus")
    },
}
"""By field of a profile's ``slurm`` block and kind of fault."""
CODES = tuple(dict.fromkeys(code for code, _ in BY_FAULT.values()))


# Whether each request that a profile allows could ever run, by the judgement that the form shows to users.


def first_moment(profile: Profile, now: datetime) -> datetime:
    """The first moment from ``now`` on at which the profile can be used, as far as its own dates say."""
    opens = profile.allow.from_
    if opens is not None:
        now = max(now, moment_of(opens))
    rule = profile.slurm.reservation
    if rule is not None and rule.pattern is None and rule.default is None and now.date() not in rule.dates:
        later = [day for day in rule.dates if day > now.date()]
        now = moment_of(min(later), time(12)) if later else now
    return now


def request_of(
    profile: Profile,
    options: Mapping[str, object],
    context: Context,
    *,
    user: str = SOMEBODY.name,
    groups: tuple[str, ...] = (),
    now: datetime | None = None,
) -> JobRequest:
    """The job of a user who may use the profile; raises RequestError."""
    return resolve(
        (profile.model_copy(update={"allow": Allow()}),),
        {"profile": profile.slug, **options},
        username=user,
        groups=groups,
        server_name="",
        now=now or first_moment(profile, context.now),
        defaults=context.defaults,
    )


def faults_of(profile: Profile, context: Context, locations: Locations) -> Iterator[Finding]:
    """Each request that can never run, with its place; nothing while Slurm does not answer.

    A value of an option is at fault only if no combination with those other options would run that decide which nodes
    are considered. What is wrong with the unchanged profile is not repeated for each of its options.
    """
    unchanged: Fault | RequestError | None = None
    for case in cases_of(profile):
        first_fault = next((fault for fault in _tried(profile, case, context)), None)
        if first_fault is None or (case.option and _same(first_fault, unchanged)):
            continue
        unchanged = first_fault if not case.option else unchanged
        if isinstance(first_fault, RequestError):
            if not case.option:  # there is no job at all, which is a finding of its own
                continue
            yield REFUSED.error(locations.of(profile, case.path), first_fault.message, first_fault.hint)
            continue
        code, fix = BY_FAULT[first_fault.field, first_fault.kind]
        where = locations.of_fault(profile, case, first_fault.field)
        yield code.error(where, f"{first_fault.clause}.", _up_to(profile, case, context) or fix)


def _tried(profile: Profile, case: Case, context: Context) -> list[Fault | RequestError]:
    """The fault of a case; empty if the case, or with other options a variant of it, would run."""
    first: list[Fault | RequestError] = []
    for options in variants(profile, case) if case.option else (case.options,):
        fault = fault_with(profile, options, context)
        if fault is None:
            return []
        first = first or [fault]
    return first


def fault_with(profile: Profile, options: Mapping[str, object], context: Context) -> Fault | RequestError | None:
    """Why a job with these options could never run; None if it could, and where that is not known."""
    try:
        resources = request_of(profile, options, context).resources
    except RequestError as error:
        return error
    if context.snapshot is None:
        return None
    moment, rule = first_moment(profile, context.now), dated_reservation(profile, context)
    waived = rule is not None and resources.reservation_name not in context.snapshot.reservation_by_name
    if waived:  # each of its days is a question of its own
        resources = resources.model_copy(update={"reservation": None})
    fault = fault_of(resources, context.snapshot, now=moment.timestamp())
    return None if waived and fault is not None and fault.field == "reservation" else fault


def dated_reservation(profile: Profile, context: Context) -> ReservationRule | None:
    """The rule for the reservation of a profile, if its name changes with the day."""
    rule = over_defaults(profile.slurm, context.defaults).reservation
    return rule if rule is not None and (rule.dates or "%" in f"{rule.pattern}{rule.default}") else None


def _same(fault: Fault | RequestError, other: Fault | RequestError | None) -> bool:
    if isinstance(fault, RequestError) or isinstance(other, RequestError) or other is None:
        return str(fault) == str(other)
    return (fault.field, fault.kind, fault.clause) == (other.field, other.kind, other.clause)


def _up_to(profile: Profile, case: Case, context: Context) -> str:
    """The largest value of a range that would run, for the maximum of one."""
    option = profile.profile_options.get(case.option)
    if option is None or option.range is None or case.path[-1] != "max":
        return ""

    def runs(value: float) -> bool:
        tried = Case({**case.options, case.option: value}, case.option, case.path)
        return not _tried(profile, tried, context)

    most = highest(option.range, runs)
    unit = f" {option.range.unit}" if option.range.unit else ""
    return f"Set max to {most}: {most}{unit} is the most that can run." if most is not None else ""


FILE = Code("profile-file", "A file in `profiles_dir` is not valid, may not be read, or sets a field it may not set.")
SLUG_USED_TWICE = Code("slug-taken", "A file has a profile whose slug another profile had before; it is left out.")
PROFILE = Code("profile", "A profile results in a job that can be submitted, and would run with each of its options.")
NO_JOB = Code("profile-no-job", "No job can be made from a profile, or with a value of one of its options.")
DOUBT = Code("value-doubtful", "A value is valid and almost surely a mistake.")
REPAIRED = Code("template-mended", "The hub corrects the admin's own `batch_script` for each job.")
SHORT_WAIT = Code("queue-timeout-short", "A server would wait longer now than the hub lets it wait (`queue_timeout`).")


async def check_offered(context: Context) -> list[Finding]:
    """Make the job of each profile and option, for somebody who may use it, and judge it."""
    locations = Locations(context)
    if not isinstance(context.spawner, GPUProfilesSpawner):
        return _of_site(context, locations)
    findings = [*_of_files(context.spawner.profile_errors())]
    for profile in context.profiles:
        own = [*_of_profile(profile, context, locations)]
        if all(finding.severity is not Severity.ERROR for finding in own):
            findings.append(PROFILE.ok(locations.of(profile), _described(profile, context)))
        findings += own
    return findings


def _of_files(errors: Sequence[ConfigError]) -> Iterator[Finding]:
    for error in errors:
        text = error.message.removeprefix(f"{error.where}: ")
        if isinstance(error, SlugTaken):
            yield SLUG_USED_TWICE.error(error.where, text, "Give this profile a slug of its own.")
        else:
            yield FILE.error(error.where, text, error.hint)


def _of_site(context: Context, locations: Locations) -> list[Finding]:
    """In a hub without profiles the site's defaults are the only request."""
    profile = site_profile(context.slurm_site.site_settings()).model_copy(update={"slurm": Resources()})
    return [*faults_of(profile, context, locations)]


def _of_profile(profile: Profile, context: Context, locations: Locations) -> Iterator[Finding]:
    for doubt in doubts_of(profile):
        _, field, text = doubt.split(": ", 2)
        yield DOUBT.warning(locations.of(profile, field.split(".")), text, f"Give at least {LEAST_MEMORY}M.")
    if _ended(profile, context):
        return
    yield from _of_scripts(profile, context, locations)
    if profile.kind == "slurm":
        yield from faults_of(profile, context, locations)
        yield from _of_wait(profile, context, locations)


def _ended(profile: Profile, context: Context) -> bool:
    closed = permitted(profile, *_somebody(profile), context.now)
    return closed is not None and closed.kind is RefusalKind.ENDED


def _somebody(profile: Profile) -> tuple[str, tuple[str, ...]]:
    """A user whom ``allow`` admits, and their groups."""
    return (*profile.allow.users, SOMEBODY.name)[0], profile.allow.groups


def _described(profile: Profile, context: Context) -> str:
    """For whom the profile is, and why it is not offered today."""
    text = f"{profile.display_name} ({profile.kind})"
    closed = permitted(profile, *_somebody(profile), context.now)
    first = first_moment(profile, context.now)
    if closed is not None:
        text += f", not offered now: {closed.text}"
    elif first.date() > context.now.date():
        text += f", not offered today: its next reservation is for {day(first.date())}"
    return text


def _of_scripts(profile: Profile, context: Context, locations: Locations) -> Iterator[Finding]:
    """What keeps a batch script from being written, and what is corrected in the admin's own."""
    user, groups = _somebody(profile)
    for case in cases_of(profile):
        spawner: Any = context.site.spawner(user, groups)
        try:
            request = request_of(profile, case.options, context, user=user, groups=groups)
            spawner.prepare(request)
            notes = spawner.batch_job(SOMEBODY).notes if request.kind == "slurm" else ()
        except RequestError as error:
            if not case.option:  # of an option, the judgement says it
                yield NO_JOB.error(locations.of(profile, error.field.split(".")), error.message, error.hint)
                return
            continue
        except ConfigError as error:
            yield NO_JOB.error(locations.of(profile, case.path), error.message, error.hint)
            return
        for note in notes:
            yield REPAIRED.warning(spawner.configured_as("batch_script"), note, "Correct the template.")


def _of_wait(profile: Profile, context: Context, locations: Locations) -> Iterator[Finding]:
    """Whether the hub would give a start up before Slurm is expected to start its job."""
    if context.snapshot is None:
        return
    site = context.slurm_site
    limit = queue_limit(profile.queue_timeout, parse_wait(site.queue_timeout))
    try:
        resources = request_of(profile, {}, context).resources
    except RequestError:
        return
    now = context.now.timestamp()
    owner = job_owner(site.exec_prefix, SOMEBODY.name)
    waiting = availability(resources, context.snapshot, now=now, shared=owner != SOMEBODY.name)
    expected = waiting.starts_at if waiting.starts_at is not None else waiting.expected_at
    if limit is None or expected is None or expected - now <= limit:
        return
    own = profile.queue_timeout is not None
    yield SHORT_WAIT.warning(
        locations.of(profile, ("queue_timeout",)) if own else site.configured_as("queue_timeout"),
        f"a server of profile {profile.slug} would now wait about {rounded(expected - now)}, and the hub gives up "
        f"after {duration(limit)}.",
        "Allow a longer wait.",
    )
