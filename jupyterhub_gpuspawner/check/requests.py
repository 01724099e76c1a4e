"""Whether each profile results in a job that can be submitted, and would run with each of its options."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from itertools import islice, product
from typing import Any

from jupyterhub_gpuspawner.batch.job import batch_job, plain_request, site_profile
from jupyterhub_gpuspawner.check.finding import (
    Case,
    Code,
    Context,
    Finding,
    Severity,
    Values,
    Verdict,
    cases_of,
    names_no_cluster,
    values_of,
)
from jupyterhub_gpuspawner.errors import ConfigError, RefusalKind, RequestError
from jupyterhub_gpuspawner.hub.choose.offer import WHERE, fields_set
from jupyterhub_gpuspawner.profiles.option import Range
from jupyterhub_gpuspawner.profiles.profile import LEAST_MEMORY, Profile, SlugTaken, doubts_of
from jupyterhub_gpuspawner.profiles.resolve import permitted, with_defaults
from jupyterhub_gpuspawner.profiles.resources import ReservationRule, Resources
from jupyterhub_gpuspawner.site.configuration import SOMEBODY
from jupyterhub_gpuspawner.slurm.sbatch_options import options_in
from jupyterhub_gpuspawner.units import parse_memory, parse_walltime
from jupyterhub_gpuspawner.words import day

VARIANTS = 200
"""Combinations of other options that are tried for one case, at most."""

STAND_IN = "1"
"""What a site's form sends for each variable of its template: to sbatch a name, a number, a size and a time."""

REFUSED = Code("request-refused", "A value of an option makes a request that the hub refuses.")


# Whether each request that a profile allows could ever run, by the judgement that the form shows to users.


def faults_of(profile: Profile, context: Context) -> Iterator[Finding]:
    """Each request that can never run, with its place; nothing while Slurm does not answer.

    A value of an option is at fault only if no combination with those other options would run that decide which nodes
    are considered. What is wrong with the unchanged profile is not repeated for each of its options.
    """
    unchanged: Verdict | RequestError | None = None
    for case in context.cases(profile):
        fault = _fault_of(case, context)
        if fault is None or (case.option and _same(fault, unchanged)):
            continue
        unchanged = fault if not case.option else unchanged
        if isinstance(fault, Verdict):
            where = context.location_of(case, fault.field)
            yield fault.code.error(where, f"{fault.clause}.", _up_to(case, context) or fault.fix)
        elif case.option and fault.field != "slurm.cluster":  # no option: no job at all, a finding of its own
            yield REFUSED.error(context.location(profile, *case.path), fault.message, fault.hint)


def _fault_of(case: Case, context: Context) -> Verdict | RequestError | None:
    """Why a case could never run; None if it, or with other options a variant of it, would run."""
    first: Verdict | RequestError | None = None
    for options in _variants(case):
        fault = _fault_with(replace(case, options=options), context)
        if fault is None:
            return None
        first = first or fault
    return first


def _variants(case: Case) -> Iterator[Values]:
    """A value of an option with each combination of others that decide which nodes are considered; itself first."""
    yield case.options
    others = {
        name: [value for _, value in values_of(option)]
        for name, option in case.profile.profile_options.items()
        if case.option and name != case.option and fields_set(option) & WHERE
    }
    for values in islice(product(*others.values()), VARIANTS if others else 0):
        yield {**dict(zip(others, values, strict=True)), **case.options}


def _fault_with(case: Case, context: Context) -> Verdict | RequestError | None:
    """Why a job with these options could never run; None if it could, and where that is not known."""
    try:
        resources = context.request(case).resources
    except RequestError as error:
        return error
    snapshot = context.snapshot_of(case)
    if snapshot is None:
        return None
    rule = dated_reservation(case.profile, context)
    waived = rule is not None and resources.reservation_name not in snapshot.reservation_by_name
    if waived:  # each of its days is a question of its own
        resources = resources.model_copy(update={"reservation": None})
    fault = context.verdict(resources, snapshot, context.first_moment(case.profile).timestamp())
    return None if waived and fault is not None and fault.field == "reservation" else fault


def dated_reservation(profile: Profile, context: Context) -> ReservationRule | None:
    """The rule for the reservation of a profile, if its name changes with the day."""
    try:
        rule = with_defaults(profile.slurm, context.defaults).reservation
    except RequestError:  # it names a cluster that does not exist, and each choice another one
        return None
    return rule if rule is not None and (rule.dates or "%" in f"{rule.pattern}{rule.default}") else None


def _same(fault: Verdict | RequestError, other: Verdict | RequestError | None) -> bool:
    if isinstance(fault, Verdict) and isinstance(other, Verdict):
        return fault == other
    return str(fault) == str(other)


def _up_to(case: Case, context: Context) -> str:
    """The largest value of a range that would run, for the maximum of one."""
    option = case.profile.profile_options.get(case.option)
    if option is None or option.range is None or case.path[-1] != "max":
        return ""

    def runs(value: float) -> bool:
        return _fault_of(replace(case, options={**case.options, case.option: value}), context) is None

    most = _highest(option.range, runs)
    unit = f" {option.range.unit}" if option.range.unit else ""
    return f"Set max to {most}: {most}{unit} is the most that can run." if most is not None else ""


def _highest(range_: Range, runs: Callable[[int | float], bool]) -> int | float | None:
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


FILE = Code("profile-file", "A file in `profiles_dir` is not valid, may not be read, or sets a field it may not set.")
SLUG_USED_TWICE = Code("slug-taken", "A file has a profile whose slug another profile had before; it is left out.")
PROFILE = Code("profile", "A profile results in a job that can be submitted, and would run with each of its options.")
NO_JOB = Code("profile-no-job", "No job can be made from a profile, or with a value of one of its options.")
DOUBT = Code("value-doubtful", "A value is valid and almost surely a mistake.")
REPAIRED = Code("template-mended", "The hub corrects the admin's own `batch_script` for each job.")


def check_requests(context: Context) -> Iterator[Finding]:
    """Make the job of each profile and option on the cluster, for somebody who may use it, and judge it."""
    if not context.has_profiles:  # the site's defaults are the only request
        yield from _of_plain_job(context)
        plain = site_profile(context.spawner.site_settings()).model_copy(update={"slurm": Resources()})
        yield from faults_of(plain, context)
        return
    for profile in context.of_slurm():
        yield from _findings_of(profile, context)


@names_no_cluster
def check_files(context: Context) -> Iterator[Finding]:
    """Look at the files of profiles, and at the profiles whose servers are no jobs."""
    for error in context.spawner.profile_errors() if context.has_profiles else ():
        if isinstance(error, SlugTaken):
            yield SLUG_USED_TWICE.error(error.where, error.fault, "Give this profile a slug of its own.")
        else:
            yield FILE.of(error)
    for profile in context.profiles:
        if profile.kind != "slurm":
            yield from _findings_of(profile, context)


def _findings_of(profile: Profile, context: Context) -> Iterator[Finding]:
    findings = [*_of_profile(profile, context)]
    if all(finding.severity is not Severity.ERROR for finding in findings):
        yield PROFILE.ok(context.location(profile), _described(profile, context))
    yield from findings


def _of_profile(profile: Profile, context: Context) -> Iterator[Finding]:
    for doubt in doubts_of(profile):
        yield DOUBT.warning(context.location(profile, *doubt.path), doubt.text, f"Give at least {LEAST_MEMORY}M.")
    if is_over(profile, context):
        return
    yield from _of_scripts(profile, context)
    if profile.kind == "slurm":
        yield from faults_of(profile, context)


def is_over(profile: Profile, context: Context) -> bool:
    """Whether nobody can use a profile any more."""
    closed = permitted(profile, *_somebody(profile), context.now)
    return closed is not None and closed.kind is RefusalKind.ENDED


def _somebody(profile: Profile) -> tuple[str, tuple[str, ...]]:
    """A user whom ``allow`` admits, and their groups."""
    return (*profile.allow.users, SOMEBODY.name)[0], profile.allow.groups


def _described(profile: Profile, context: Context) -> str:
    """For whom the profile is, and why it is not offered today."""
    text = f"{profile.display_name} ({profile.kind})"
    closed = permitted(profile, *_somebody(profile), context.now)
    first = context.first_moment(profile).date()
    if closed is not None:
        text += f", not offered now: {closed.text}"
    elif first > context.now.date():
        text += f", not offered today: its next reservation is for {day(first)}"
    return text


def _of_plain_job(context: Context) -> Iterator[Finding]:
    """What is wrong with the script of a hub without profiles, and what is corrected in the admin's own."""
    where, settings = context.setting("batch_script"), context.spawner.plain_settings({})
    settings = replace(settings, options=dict.fromkeys(settings.options, STAND_IN))
    try:
        request = plain_request(settings, username=SOMEBODY.name, server_name="")
        job = batch_job(settings, request, SOMEBODY, start_id="")
    except ConfigError as error:
        yield NO_JOB.error(error.where.replace("batch_script", where, 1), error.fault, error.hint)
        return
    for fault in _unreadable(job.script):
        yield NO_JOB.error(where, fault, "Correct the template.")
    for note in job.notes:
        yield REPAIRED.warning(where, note, "Correct the template.")


_READERS: dict[str, Callable[[str], object]] = {
    **dict.fromkeys(["mem", "mem-per-cpu", "mem-per-gpu"], parse_memory),
    **dict.fromkeys(["time", "time-min"], parse_walltime),
}


def _unreadable(script: str) -> Iterator[str]:
    """Each option of a script whose value sbatch would refuse."""
    try:
        options = [*options_in(script)]
    except ValueError as error:
        yield f"sbatch cannot read the options of the script: {error}."
        return
    for name, value in options:
        try:
            _READERS.get(name, str)(value)
        except ValueError as error:
            yield f"sbatch does not take --{name}={value}: {error}."


def _of_scripts(profile: Profile, context: Context) -> Iterator[Finding]:
    """What keeps a batch script from being written, and what is corrected in the admin's own."""
    user, groups = _somebody(profile)
    spawner: Any = context.site.spawner(user, groups)
    for case in context.cases(profile) if profile.kind == "slurm" else cases_of(profile):
        try:
            request = context.request(case, user=user, groups=groups)
            if request.profile.kind == "slurm":
                job = batch_job(spawner.settings_of(request), request, SOMEBODY, start_id="")
                notes = job.notes
                for fault in _unreadable(job.script):
                    yield NO_JOB.error(context.location(profile, *case.path), fault)
            else:
                notes = ()
                context.site.spawner(user, groups).prepare(request)
        except RequestError as error:
            if case.option:  # the judgement says it
                continue
            yield NO_JOB.error(context.location(profile, *error.field.split(".")), error.message, error.hint)
            return
        except ConfigError as error:
            yield NO_JOB.error(context.location(profile, *case.path), error.message, error.hint)
            return
        for note in notes:
            yield REPAIRED.warning(context.setting("batch_script"), note, "Correct the template.")
