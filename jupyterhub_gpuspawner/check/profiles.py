"""Whether what profiles name exists, is for those who may use it, and does not contradict itself."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from math import inf

from jupyterhub_gpuspawner.check.finding import Case, Code, Context, Finding, names_no_cluster
from jupyterhub_gpuspawner.check.questions import accounting_names, licenses
from jupyterhub_gpuspawner.check.requests import dated_reservation, is_over
from jupyterhub_gpuspawner.errors import GPUSpawnerError, SlurmUnavailable
from jupyterhub_gpuspawner.profiles.profile import Profile, slurm_values
from jupyterhub_gpuspawner.profiles.resolve import moment_of, permitted
from jupyterhub_gpuspawner.profiles.resources import SBATCH_OPTIONS, ReservationRule, Resources, options_in_line
from jupyterhub_gpuspawner.site.people import has_account, is_unix_group
from jupyterhub_gpuspawner.slurm.accounting import TRES_OF_A_JOB, WALL, Limits, exceeded
from jupyterhub_gpuspawner.slurm.gpu_model import is_mig
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot
from jupyterhub_gpuspawner.words import counted, day, duration, memory, some

NO_ACCOUNT = Code("account-missing", "A profile charges an account that the cluster does not have.")
NO_QOS = Code("qos-missing", "A profile requests a QOS that the cluster does not have.")
BEYOND_QOS = Code("qos-limit", "A profile asks for more than its QOS allows one job, which then never starts.")
NO_LICENSE = Code("license-missing", "A profile requests a licence that the cluster does not have, or more of it.")
UNREAD = Code("accounting-unread", "Slurm's accounting could not be read, so accounts and QOS are not checked.")

_LICENSE = re.compile(r"[A-Za-z0-9_.-]+")


async def check_accounts(context: Context) -> AsyncIterator[Finding]:
    """Ask slurmdbd for the accounts and QOS that profiles name."""
    names: dict[tuple[str, str, str], Case] = {}
    for case, resources in context.requests:
        for field, name in (("account", resources.account), ("qos", resources.qos)):
            if name:
                names.setdefault((case.profile.slug, field, name), case)
    if not names or context.snapshot is None:
        return
    try:
        cluster = await accounting_names(context.client)
    except GPUSpawnerError as error:
        yield UNREAD.warning("Slurm", f"accounts and QOS are not checked: {error.message}", error.hint)
        return
    if cluster is None:
        return
    for (_, field, name), case in names.items():
        where = context.location_of(case, field)
        names_there = cluster.accounts if field == "account" else cluster.qos
        if names_there is not None and name.lower() not in names_there:
            code, what = (NO_ACCOUNT, "account") if field == "account" else (NO_QOS, "QOS")
            yield code.error(where, f"there is no {what} {name}.", f"Name one of {some(sorted(names_there))}.")
    for finding in _beyond_qos(context, context.snapshot, cluster.qos or {}):
        yield finding


def _beyond_qos(context: Context, snapshot: ClusterSnapshot, qos: Mapping[str, Limits]) -> Iterator[Finding]:
    """Requests that exceed what the QOS that they name allows one job."""
    reported = set[Finding]()
    for case, resources in context.requests:
        limits = qos.get((resources.qos or "").lower())
        if limits is None:
            continue
        nodes, lengths = resources.node_count, lengths_of(resources, snapshot)
        defaults = [snapshot.partition_by_name[name].default_time for name in lengths]
        open_ended = resources.time is None and all(default is None for default in defaults)
        requested = {
            # a job without a time limit gets that of its QOS (MaxWall), so it is within it
            WALL: 0.0 if open_ended else min(lengths.values(), default=0.0) / 60,
            (TRES_OF_A_JOB, "cpu"): (resources.cpus or 1) * nodes,
            (TRES_OF_A_JOB, "mem"): (resources.memory or 0) * nodes,
            (TRES_OF_A_JOB, "gres/gpu"): (resources.gpus or 0) * nodes,
            (TRES_OF_A_JOB, "node"): nodes,
        }
        for key, _, most in exceeded(requested, [("", limits)]):
            field, number = _FIELDS[key], requested[key]
            finding = BEYOND_QOS.error(
                context.location_of(case, field),
                f"QOS {resources.qos} allows a job {_amount(field, most)}, not {_amount(field, number)}, so it never "
                "starts.",
                "Ask for less, name another QOS, or raise MaxTRES or MaxWall of the QOS (sacctmgr).",
            )
            if finding not in reported:
                reported.add(finding)
                yield finding


_FIELDS = {
    WALL: "time",
    (TRES_OF_A_JOB, "cpu"): "cpus",
    (TRES_OF_A_JOB, "mem"): "memory",
    (TRES_OF_A_JOB, "gres/gpu"): "gpus",
    (TRES_OF_A_JOB, "node"): "nodes",
}
_UNITS = {"cpus": "CPU", "gpus": "GPU", "nodes": "node"}


def _amount(field: str, number: float) -> str:
    if field == "time":
        return "no limit" if number == inf else duration(number * 60)
    if field == "memory":
        return memory(round(number))
    return counted(round(number), _UNITS[field])


def licenses_of(options: Iterable[tuple[str, str]]) -> dict[str, int]:
    """How many of each licence options of sbatch ask for: the last one counts."""
    lists = [value for name, value in options if name == "licenses"]
    words = [word for value in lists[-1:] for word in re.split("[,;]", value)]
    return {
        name: int(count or 1) for name, _, count in (word.partition(":") for word in words) if (count or "1").isdigit()
    }


async def check_licenses(context: Context) -> AsyncIterator[Finding]:
    """Ask slurmctld for the licences that profiles name."""
    # not alternatives (a|b) and not those of a server beyond the cluster (a@server)
    wanted = {
        (context.location_of(case, "extra"), name, count): None
        for case, resources in context.requests
        for name, count in licenses_of(resources.extra_options).items()
        if _LICENSE.fullmatch(name)
    }
    if not wanted or context.snapshot is None:
        return
    try:
        counts = await licenses(context.client)
    except SlurmUnavailable:
        raise
    except GPUSpawnerError as error:
        yield UNREAD.warning("Slurm", f"licences are not checked: {error.message}", error.hint)
        return
    for where, name, number in wanted:
        if name not in counts:
            fix = f"Name one of {some(sorted(counts))}." if counts else "`scontrol show licenses` lists none."
            yield NO_LICENSE.error(where, f"there is no licence {name}.", fix)
        elif number > counts[name]:
            text = f"there are {counts[name]} licences {name}, not {number}."
            yield NO_LICENSE.error(where, text, "Request no more than that.")


# Whether the users and groups of ``allow`` exist.

NO_GROUP = Code("group-missing", "`allow` names a group that JupyterHub does not have, so it admits nobody.")
NO_USER = Code("user-missing", "`allow` names a user who is neither an account of this machine nor one of JupyterHub.")


@names_no_cluster
async def check_allowed(context: Context) -> AsyncIterator[Finding]:
    """Look for the users and groups of each profile's `allow`, unless the profile is over."""
    for profile in context.profiles:
        if is_over(profile, context):
            continue
        for finding in _of_groups(profile, context):
            yield finding
        for name in profile.allow.users:
            if name not in context.people.users and not await asyncio.to_thread(has_account, name):
                yield NO_USER.warning(
                    context.location(profile, "allow", "users"),
                    f"{name!r} is neither an account of this machine nor a user of JupyterHub.",
                    "Correct the name, unless this user is still to sign in for the first time.",
                )


def _of_groups(profile: Profile, context: Context) -> Iterator[Finding]:
    people = context.people
    groups = f"Its groups are {some(sorted(people.groups))}." if people.groups else "It has none."
    for name in profile.allow.groups if not people.at_sign_in else ():
        if name in people.groups:
            continue
        if people.unread:
            text = f"group {name!r} is not in c.JupyterHub.load_groups, and {people.unread}."
        elif is_unix_group(name):
            text = f"{name!r} is a Unix group, and JupyterHub has no group of that name. {groups}"
        else:
            text = f"JupyterHub has no group {name!r}. {groups}"
        fix = "Correct the name, or add the group to c.JupyterHub.load_groups."
        yield NO_GROUP.warning(context.location(profile, "allow", "groups"), text, fix)


# Reservations whose name changes with the day: whether they exist on the days to come.

RESERVATION_MISSING = Code(
    "reservation-missing",
    "A reservation does not exist. Of a profile with a table of days, a warning for each day to come.",
)
OTHER_DAY = Code("reservation-other-day", "A reservation is not on the day for which a profile names it.")
AHEAD = 7
"""Days that are examined of a pattern such as ``ml-hpc-%u``."""


def check_reservations(context: Context) -> Iterator[Finding]:
    """Look at the days to come of each profile's reservation."""
    snapshot = context.snapshot
    if snapshot is None or any(record.kind == "reservation" for record in snapshot.unread):
        return  # one may be among those that were not understood
    for profile in context.of_slurm():
        here = context.cluster_of(Case(profile)) == context.cluster
        rule = dated_reservation(profile, context) if here else None
        if rule is not None:
            yield from _of_rule(profile, rule, context, snapshot)


def _of_rule(profile: Profile, rule: ReservationRule, context: Context, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    today = context.now.date()
    coming = [today + timedelta(days=number) for number in range(AHEAD)]
    coming = [date_ for date_ in coming if rule.pattern or rule.default or date_ in rule.dates]
    coming += [date_ for date_ in sorted(rule.dates) if date_ >= today and date_ not in coming]
    names = {date_: name for date_ in coming if (name := rule.on(date_)) and _is_open(profile, date_)}
    any_exists = any(name in snapshot.reservation_by_name for name in names.values())
    for date_, name in names.items():
        listed = date_ in rule.dates
        where = context.location(profile, "slurm", "reservation", *([date_.isoformat()] if listed else []))
        if name in snapshot.reservation_by_name:
            if not _on(date_, name, snapshot):
                text = f"reservation {name} is not on {day(date_)}, for which the profile names it."
                yield OTHER_DAY.warning(where, text, "Move the reservation, or correct the name.")
        elif listed or not any_exists:
            report = RESERVATION_MISSING.error if date_ == today or not any_exists else RESERVATION_MISSING.warning
            text = f"there is no reservation {name}, which is for {day(date_)}."
            yield report(where, text, "Create the reservation, or correct the name.")
            if not listed:
                return  # the other names of a pattern would say the same


def _is_open(profile: Profile, date_: date) -> bool:
    """Whether the profile may be used at noon of a day."""
    somebody = (*profile.allow.users, "")[0]
    return permitted(profile, somebody, profile.allow.groups, moment_of(date_, time(12))) is None


def _on(date_: date, name: str, snapshot: ClusterSnapshot) -> bool:
    own = snapshot.reservation_by_name[name]
    begin, end = moment_of(date_).timestamp(), moment_of(date_ + timedelta(days=1)).timestamp()
    once = (own.start is None or own.start < end) and (own.end is None or own.end > begin)
    return once or own.is_repeated


# Options of ``extra`` for which there is a field or a setting.

FIELD = Code("extra-field", "`extra` has an option of sbatch for which profiles have a field, which it overrides.")
SETTING = Code("extra-setting", "`extra` has an option of sbatch that the hub sets itself for every job.")
NO_TOKEN = Code("extra-export", "`extra` keeps the hub's variables from jobs, so no server can sign in to the hub.")
FIELDS = {
    **SBATCH_OPTIONS,
    "cpus-per-task": "cpus",
    "exclusive": "exclusive",
    "gpus": "gpus",
    "gpus-per-node": "gpus",
    "gres": "gpus",
    "mem": "memory",
    "nodes": "nodes",
    "partition": "partition",
    "time": "time",
}
"""Fields of ``slurm`` by the options of sbatch that they stand for."""
BESIDE = {"cpus-per-gpu": "cpus", "gpus-per-task": "gpus", "mem-per-cpu": "memory", "mem-per-gpu": "memory"}
"""Fields that an option contradicts where they are set; without them it is the only way to say what it says. So is an
option with a value that its field cannot have."""
SETTINGS = {
    "chdir": "req_homedir",
    "job-name": "job_name",
    "output": "log_dir",
}
"""Settings by the options of sbatch that they stand for."""


def check_extra(context: Context) -> Iterator[Finding]:
    """Look at the options of each profile's job, and of each value of its options; those of a site once."""
    lines = dict[tuple[str, str], None]()
    for case, resources in context.requests:
        for line in resources.options:
            if (case.profile.slug, line) in lines:
                continue
            lines[case.profile.slug, line] = None
            where = context.location_of(case, "extra")
            if line in (context.defaults[context.spawner.cluster].extra or ()) and line not in (
                case.profile.slurm.extra or ()
            ):
                where = context.setting("req_options")
            yield from _of_line(where, line, resources, context)


def _of_line(where: str, line: str, resources: Resources, context: Context) -> Iterator[Finding]:
    for name, value in options_in_line(line):
        option = f"--{name}={value}" if value else f"--{name}"
        field, beside = FIELDS.get(name), BESIDE.get(name)
        if (name == "exclusive" and value) or (name == "gres" and not _asks_for_gpus(value)):
            field = None  # of one user or of other devices, for which there is no field
        elif field is not None and not _can_have(field, value):
            field, beside = None, field
        if field is not None:
            yield FIELD.warning(where, f"{option} overrides slurm.{field}, {_SHOWN}", f"Set slurm.{field} instead.")
        elif beside is not None and getattr(resources, beside) is not None:
            yield FIELD.warning(
                where, f"{option} contradicts slurm.{beside}, which is set as well.", f"Remove it, or slurm.{beside}."
            )
        elif name == "export" and value.split(",")[0] != "ALL":
            yield NO_TOKEN.error(
                where, f"{option} keeps the hub's variables from the job, so the server cannot sign in.", "Remove it."
            )
        elif name in SETTINGS:
            setting = context.setting(SETTINGS[name])
            yield SETTING.warning(where, f"{option} overrides {setting}.", f"Remove it, and set {setting} instead.")


def _can_have(field: str, value: str) -> bool:
    """Whether a field can say what its option does: not so for ``--nice=-5`` or ``--qos=a,b``."""
    if field in ("exclusive", "gpus", "nodes"):  # a flag; gpu_type has the rest; a range of nodes is no use to a server
        return True
    try:
        Resources.model_validate({field: value})
    except ValueError:
        return False
    return True


def _asks_for_gpus(gres: str) -> bool:
    return any(part.partition(":")[0] in ("gpu", "shard") for part in gres.split(","))


_SHOWN = "which the form shows and by which it judges whether a job can start."


# MIG devices.

SLICES = Code("mig-several", "A profile requests several MIG devices for a server, of which a CUDA program uses one.")


def check_slices(context: Context) -> Iterator[Finding]:
    """Count the MIG devices of each request; of one that names no type, where its partition has no other GPUs."""
    reported = set[Finding]()
    for case, resources in context.requests:
        types = {resources.gpu_type} if resources.gpu_type else _gpu_types(context.snapshot, resources.partition)
        if (resources.gpus or 0) > 1 and types and all(name is not None and is_mig(name) for name in types):
            text = f"the request is for {resources.gpus} MIG devices; a CUDA program uses one of them at a time."
            finding = SLICES.warning(context.location_of(case, "gpus"), text, "Request one, of a larger MIG profile.")
            if finding not in reported:
                reported.add(finding)
                yield finding


def _gpu_types(snapshot: ClusterSnapshot | None, partition: str | None) -> set[str | None]:
    """The types of the GPUs of a partition; empty where they are not known."""
    nodes = snapshot.nodes if snapshot is not None else ()
    gres = (gres for node in nodes if partition in node.partitions for gres in node.gres)
    return {gpus.type for gpus in gres if gpus.name == "gpu"}


# Times of a profile that contradict each other, or are almost surely meant in other units.

NEVER = Code("profile-never", "The last day of a profile is before its first one, so nobody can ever use it.")
SHORT = Code("time-doubtful", "A time limit is so short that it is almost surely meant in hours.")
LEAST = 600
"""Seconds; in Slurm ``8`` and ``8:00`` are eight minutes."""


@names_no_cluster
def check_lifetimes(context: Context) -> Iterator[Finding]:
    """Look at each profile's `allow` and time limits."""
    for profile in context.profiles:
        yield from _of_times(profile, context)


def _of_times(profile: Profile, context: Context) -> Iterator[Finding]:
    first, last = _day(profile.allow.from_), _day(profile.allow.until)
    if first is not None and last is not None and last < first:
        text = f"the profile is offered from {day(first)} until {day(last)}, which is never."
        yield NEVER.error(context.location(profile, "allow", "until"), text, "Correct one of the dates.")
    for field, seconds in slurm_values(profile, "time"):
        if isinstance(seconds, int) and 60 <= seconds < LEAST:
            hours = seconds // 60
            text = f"the time limit is {duration(seconds)}; did you mean {hours} h?"
            yield SHORT.warning(context.location(profile, *field), text, f"Write {hours}:00:00 for hours.")


NO_ALTERNATIVE = Code("alternative-missing", "`alternatives` names what is no profile, or no Slurm job.")


@names_no_cluster
def check_alternatives(context: Context) -> Iterator[Finding]:
    """Look whether what may be accepted in place of each profile is there."""
    jobs = {profile.slug for profile in context.profiles if profile.kind == "slurm"}
    for profile in context.profiles:
        for slug in sorted({*profile.alternatives} - jobs):
            where, text = context.location(profile, "alternatives"), f"no profile of a Slurm job has the slug {slug}."
            yield NO_ALTERNATIVE.warning(where, text, f"Name some of {some(sorted(jobs))}.")


def _day(moment: date | None) -> date | None:
    return moment.date() if isinstance(moment, datetime) else moment


def lengths_of(resources: Resources, snapshot: ClusterSnapshot) -> dict[str, float]:
    """How long a job would run in each existing partition that it may go to, in seconds."""
    partitions = snapshot.partition_by_name
    return {
        name: partitions[name].length_of(resources.time)
        for name in snapshot.partitions_of(resources.partition)
        if name in partitions
    }
