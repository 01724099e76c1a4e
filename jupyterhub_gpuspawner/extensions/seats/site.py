"""What a site's Slurm and its gres.conf say, made into the configuration and the jobs of a twin. Pure.

What a twin must not inherit is left out here: accounts, QOS, groups and users (it has no accounting, and all its jobs
are the caller's), priorities (jobs are tried in their order), prologs and their flags, programs and plugins of the site
(power saving, node features, submission), topology, licences of a server (their number is that of the moment).
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jupyterhub_gpuspawner.errors import GPUSpawnerError, SlurmOutputError
from jupyterhub_gpuspawner.extensions.seats import controller
from jupyterhub_gpuspawner.extensions.seats.accounting import Accounting
from jupyterhub_gpuspawner.extensions.seats.devices import counts_of, gres_lines, numbers_of, numbers_per_cpu
from jupyterhub_gpuspawner.extensions.seats.held import HeldJob, WaitingJob, holders, host_list
from jupyterhub_gpuspawner.slurm.sbatch_options import DECIDES, Decides, options_of
from jupyterhub_gpuspawner.slurm.snapshot import PERIODS, NodeState, Partition, Reservation, SlurmConfig
from jupyterhub_gpuspawner.slurm.text import value_or_empty, words
from jupyterhub_gpuspawner.units import expand_nodelist, parse_cpulist, parse_gres


@dataclass(frozen=True)
class Site:
    """What a site's Slurm reports of itself; times are seconds since the epoch."""

    config: SlurmConfig
    nodes: Sequence[NodeState]
    partitions: Sequence[Partition]
    reservations: Sequence[Reservation] = ()
    licenses: Mapping[str, int] = field(default_factory=dict)
    """How many there are of each."""
    jobs: tuple[HeldJob, ...] = ()
    """Those that hold resources."""
    waiting: tuple[WaitingJob, ...] = ()
    """Those that wait, of everybody."""
    hides_jobs: bool = False
    """Slurm does not show the jobs of others."""
    accounting: Accounting | GPUSpawnerError | None = None
    """What accounting limits: None where Slurm enforces no limits, an error where they are not known."""
    gres: Mapping[str, Sequence[Mapping[str, str]]] = field(default_factory=dict)
    """The lines of gres.conf of each node: with ``Cores=`` and ``Links=`` the twin chooses cores beside GPUs.

    Nodes without lines, or with lines for another number of devices than Slurm reports, get lines from Slurm's report.
    """


@dataclass(frozen=True)
class Request:
    """A job that somebody wants to run."""

    name: str
    """Whose, or which; it comes back in the answer."""
    options: tuple[str, ...]
    """Lines of sbatch options, as the batch script has them: ``--gres=gpu:2``, ``-c 4 --exclusive``."""
    user: str = ""
    """As whom it is submitted: the limits of accounting count. Empty: they do not."""
    other: int = 0
    """Not 0: by somebody else with the limits of that user."""
    of_site: bool = False
    """It waits at the site already."""
    limit: str = ""
    """Slurm's word for the limit of accounting for which it waits there."""

    def option(self, name: str) -> str:
        """The value of an option; empty without it."""
        return next((value for written, value in _all_options(self) if written == name), "")


@dataclass(frozen=True)
class Question:
    """What :mod:`.controller` is asked, and how its answers belong to the requests."""

    document: Mapping[str, Any]
    """JSON for the controller's standard input; see ``checked`` there."""
    jobs: tuple[tuple[int, int], ...]
    """For each request: which of the document's requests it is part of, and its number in that job array."""
    reservations: Mapping[str, str]
    """The site's names of reservations, by the twin's: a name may have characters that no word of a question has."""
    notes: tuple[str, ...]
    """Sentences for the admin: what of the site or the requests the twin leaves out."""


# --- which options of a request the twin has ------------------------------------------------------------------------

PLACEMENT_OPTIONS = controller.OPTIONS - {"array"}
"""They decide on which nodes, and on what of them, a job runs; arrays are the twin's own."""
_SAME = {"tasks-per-node": "ntasks-per-node"}


def _arguments(request: Request, reservations: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The options that the twin's sbatch gets, and the names of those that it does not know.

    ``reservations``: the twin's names by the site's.
    """
    options: dict[str, str] = {}
    unknown = []
    for written, given in _all_options(request):
        name, value = _SAME.get(written, written), given
        if name == "reservation":
            value = ",".join(reservations.get(of_site, _NO_RESERVATION) for of_site in words(given))
        if name in PLACEMENT_OPTIONS and controller.is_option(name, value):
            options[name] = value
        elif DECIDES.get(name, Decides.PLACEMENT) is Decides.PLACEMENT:
            # limits of accounts and QOS are the site's to check (sbatch --test-only), and the moment is the question's
            unknown.append(written if name not in PLACEMENT_OPTIONS else f"{written}={given}")
    if options.get("exclusive") in ("user", "mcs"):  # everybody is another person here
        options["exclusive"] = ""
    if "licenses" in options:
        options["licenses"] = ",".join(map(_license, re.split("[,;]", options["licenses"])))
    return options, unknown


def _all_options(request: Request) -> Iterator[tuple[str, str]]:
    return (option for line in request.options for option in options_of(line))


def _license(name: str) -> str:
    """A licence of a remote server, ``matlab@flex:2``, is one of the twin's own."""
    return re.sub("[@/]", "_", name)


_NO_RESERVATION = "none"
"""A name that no reservation of the twin has."""


# --- from the site's answers ----------------------------------------------------------------------------------------

_UNSET = frozenset({"", "NONE", "UNLIMITED", "UNKNOWN"})
_OUT_OF_SERVICE = frozenset({"BLOCKED", "DOWN", "NOT_RESPONDING", "UNKNOWN"})
"""States of a node on which no job starts (sinfo(1)), beside those that begin with the next ones.

A session that begins later is assumed to find it likewise.
"""
_OUT_OF_SERVICE_BEGIN = ("DRAIN", "FAIL", "INVAL")
_CHANGES_POWER = frozenset({"POWERING_UP", "POWERING_DOWN", "POWER_DOWN"})


def question_of(
    site: Site,
    requests: Sequence[Request],
    *,
    at: float,
    without: Collection[str] = (),
    users: Collection[str] = (),
    seconds: float = 60.0,
) -> Question:
    """What the twin is asked so that its now is ``at``, in seconds since the epoch.

    ``without`` are ids of jobs that hold nothing then, such as the participants' own servers. ``users`` are the
    accounts of the requests, which decide only whether they may use a reservation that they do not name (MAGNETIC).
    The twin ends itself after ``seconds``. Raises SlurmOutputError where the site's answers lack what is needed.
    """
    notes: list[str] = []
    config = site.config.parameters
    nodes = {node.name: node for node in site.nodes if "FUTURE" not in node.states and _is_word(node.name, notes)}
    partitions = [partition for partition in site.partitions if _is_word(partition.name, notes)]
    if not nodes or not partitions:
        raise SlurmOutputError("scontrol listed no nodes or no partitions.", raw="")
    names = {reservation.name: f"r{number}" for number, reservation in enumerate(site.reservations, 1)}
    reservations = [*_reservations(site.reservations, at, nodes)]
    held = [job for job in site.jobs if job.holds_at(at) and job.job.job_id not in without]
    if config.get("SelectType") == "select/linear":  # which gives whole nodes, however many CPUs each has
        held = [replace(held_job, job=held_job.job._replace(cpus=0)) for held_job in held]
    drained = [name for name, node in nodes.items() if _out_of_service(node.states)]
    licenses = _licenses(site.licenses, held)
    in_service = {name: numbers_per_cpu(nodes[name]) for name in nodes.keys() - drained}
    arguments: list[dict[str, str]] = []
    for request in requests:
        options, unknown = _arguments(request, names)
        arguments.append(options)
        if not request.of_site:
            notes += [f"Option --{name} is not known here and is left out of the count." for name in unknown]
    named = {name for options in arguments for name in words(options.get("reservation"))}
    accounts = {value for request in requests for name, value in _all_options(request) if name == "account"}
    groups, jobs = _in_arrays(arguments)
    # a plugin changes features by a reboot, which Slurm would do for the job
    reboots = bool(value_or_empty(config.get("NodeFeaturesPlugins")))
    document = {
        "config": _config(config, licenses),
        "nodes": [_node(node, reboots=reboots) for node in nodes.values()],
        "partitions": [_partition(partition, nodes, config) for partition in partitions],
        "gres": gres_lines(nodes, site.gres, notes, version=site.config.version),
        "drained": host_list(drained),
        "suspended": holders([job for job in held if job.suspended], in_service, at),
        "held": holders([job for job in held if not job.suspended], in_service, at),
        "reservations": [
            _for_twin(
                reservation,
                names[reservation.name],
                at,
                nodes,
                licenses,
                attracts=_attracts(reservation, users, accounts),
                named=names[reservation.name] in named,
            )
            for reservation in sorted(reservations, key=_overlaps)
        ],
        "requests": groups,
        "seconds": seconds,
    }
    document = {**document, **_permitted(document, notes)}
    return Question(document, jobs, {twins: name for name, twins in names.items()}, tuple(dict.fromkeys(notes)))


_NOT_WRITTEN = "Not counted, since it cannot be written into a question to Slurm's scheduler: {}."


def _is_word(name: str, notes: list[str]) -> bool:
    """Whether a node or a partition can have this name in a question; one that cannot would end every twin."""
    valid = controller.is_value("NodeName", name)
    if not valid:
        notes.append(_NOT_WRITTEN.format(name[:80]))
    return valid


_LISTS = {"gres": "lines of gres.conf", "reservations": "reservations", "held": "jobs", "suspended": "suspended jobs"}


def _permitted(document: Mapping[str, Any], notes: list[str]) -> dict[str, list[Any]]:
    """The lists of a question without what no question may have, such as a device whose name has a quote."""
    kept = dict[str, list[Any]]()
    for name, called in _LISTS.items():
        valid = controller.FIELDS[name]
        kept[name] = [one for one in document[name] if valid([one])]
        if left_out := len(document[name]) - len(kept[name]):
            notes.append(_NOT_WRITTEN.format(f"{left_out} of the {called}"))
    return kept


def _out_of_service(states: Collection[str]) -> bool:
    """A node that boots does not respond yet, nor does one that is powered down, which may boot again after that."""
    out = _OUT_OF_SERVICE if _CHANGES_POWER.isdisjoint(states) else _OUT_OF_SERVICE - {"NOT_RESPONDING"}
    return any(state in out or state.startswith(_OUT_OF_SERVICE_BEGIN) for state in states)


def _words_of(record: Mapping[str, str], keys: Iterable[str]) -> dict[str, str]:
    """The parameters that are set, and can be written into slurm.conf as they are."""
    chosen = {key: value_or_empty(record.get(key)) for key in keys}
    # scontrol prints DefCpuPerGPU and DefMemPerGPU together
    chosen |= dict(re.findall(r"\b(DefCpuPerGPU|DefMemPerGPU)=([0-9]+)", value_or_empty(record.get("JobDefaults"))))
    return {
        key: value for key, value in chosen.items() if value.upper() not in _UNSET and controller.is_value(key, value)
    }


_LIMITS_OF_ALL = ("MaxMemPerCPU", "MaxMemPerNode")
"""Limits of slurm.conf for all partitions that have none of these: the twin's have them, since jobs that run already
need not meet the limits of a partition (:data:`.controller.LIMITS`)."""


def _config(config: Mapping[str, str], licenses: Mapping[str, int]) -> dict[str, str]:
    chosen = _words_of(config, controller.CONFIG - {"Licenses", *_LIMITS_OF_ALL})
    if chosen.get("SelectType") not in ("select/linear", "select/cons_res"):  # Cray's plugin runs one of the others
        chosen["SelectType"] = "select/cons_tres"
    if chosen.get("PreemptType") == "preempt/qos" or "SUSPEND" in chosen.get("PreemptMode", ""):
        # without accounting there is no QOS, and without a slurmd no job is suspended
        chosen = {key: value for key, value in chosen.items() if not key.startswith("Preempt")}
    if licenses:
        chosen["Licenses"] = ",".join(f"{name}:{count}" for name, count in licenses.items())
    return chosen


def _node(node: NodeState, *, reboots: bool) -> dict[str, str]:
    """A node's line in slurm.conf; ``reboots``: Slurm would reboot it for a feature that it may have."""
    numbers, listed = numbers_of(node), dict(node.hardware).get("CPUSpecList", "")
    boards = numbers["Boards"]
    line = {
        "NodeName": node.name,
        "CPUs": numbers["CPUTot"],
        "Boards": boards if boards > 1 else "",
        "SocketsPerBoard": numbers["Sockets"] // boards,
        **{name: numbers[name] for name in ("CoresPerSocket", "ThreadsPerCore", "RealMemory", "MemSpecLimit")},
        "CoreSpecCount": "" if listed else numbers["CoreSpecCount"],
        "CpuSpecList": listed,
        **{name: numbers[name] for name in ("TmpDisk", "Weight")},
        "Feature": ",".join([*node.features, *(node.other_features if reboots else ())]),
        "Gres": ",".join(map(str, node.gres)),
    }
    return {key: text for key, value in line.items() if (text := str(value or "")) and controller.is_value(key, text)}


def _partition(partition: Partition, nodes: Collection[str], config: Mapping[str, str]) -> dict[str, str]:
    line = _words_of(partition.parameters, controller.PARTITION - {"PartitionName", "Nodes"})
    if not any(name in line for name in _LIMITS_OF_ALL):
        line |= _words_of(config, _LIMITS_OF_ALL)
    block = partition.parameters.get("Exclusive") == "TOPO" or partition.parameters.get("ExclusiveTopo") == "YES"
    if partition.one_user or partition.exclusive or block:
        # all jobs of the twin are of one account, and those of the site of as many: each has its nodes for itself
        line["OverSubscribe"] = "EXCLUSIVE"
    if line.get("PreemptMode") == "OFF" or "SUSPEND" in line.get("PreemptMode", ""):
        del line["PreemptMode"]
    line = {key: value for key, value in line.items() if (key, value) != ("MinNodes", "0")}
    members = [name for name in partition.nodes if name in nodes]
    on = {"Nodes": host_list(members)} if members else {}  # slurm.conf has no empty value
    return {"PartitionName": partition.name, **on, **line}


def gpu_cpus(site: Site) -> dict[str, tuple[frozenset[int], ...]]:
    """The CPUs beside each GPU of a node, in Slurm's order of them; without the nodes of which that is not known.

    CPUs have the numbers of ``CPU_IDs`` of jobs: one for each thread, also where Slurm counts cores as CPUs.
    """
    nodes = {node.name: node for node in site.nodes}
    by_node: dict[str, list[frozenset[int]]] = {}
    for line in gres_lines(nodes, site.gres, [], version=site.config.version):
        if line["Name"] == "gpu":
            cores, (count,) = parse_cpulist(line.get("Cores", "")), counts_of([line]).values()
            for name in expand_nodelist(line["NodeName"]):
                threads = numbers_of(nodes[name])["ThreadsPerCore"]
                near = frozenset(core * threads + thread for core in cores for thread in range(threads))
                by_node.setdefault(name, []).extend([near] * count)
    return {name: tuple(gpus) for name, gpus in by_node.items() if all(gpus)}


# --- licences and reservations ---------------------------------------------------------------------------------------


def _licenses(reported: Mapping[str, int], held: Iterable[HeldJob]) -> dict[str, int]:
    """How many there are of each licence, without those that are held."""
    totals = {_license(name): total for name, total in reported.items()}
    for job in held:
        for item in job.licenses:
            if (name := _license(item.name)) in totals:
                totals[name] = max(0, totals[name] - item.count)
    return totals


_FLAGS = frozenset(["MAINT", "FLEX", "MAGNETIC", "STATIC_ALLOC", "ANY_NODES", "OVERLAP"])
"""Flags that decide which jobs run on which of its nodes; the others concern its own beginning and end."""


_SLACK = 59.0
"""Seconds that the twin may take from its now to its last request: what lies ahead is moved by as much."""


def _ahead(seconds: float) -> float:
    """So many seconds ahead, in the twin: whole minutes, as Slurm's time limits are, and the time that it may take.

    So a job fits before that moment exactly if its time limit does.
    """
    return seconds // 60 * 60 + _SLACK


_ENDLESS = 365 * 86400.0
"""Seconds that a reservation without an end lasts."""


def _reservations(reservations: Iterable[Reservation], at: float, nodes: Collection[str]) -> Iterator[Reservation]:
    """Those that have not ended at that moment, as they are then, and that hold licences or some of these nodes."""
    for reservation in reservations:
        current = reservation_at(reservation, at)
        if (current.end is None or current.end > at) and (current.licenses or not {*current.nodes}.isdisjoint(nodes)):
            yield current


def reservation_at(reservation: Reservation, at: float) -> Reservation:
    """The reservation at a moment, in seconds since the epoch; one that is repeated as it is now, or is next."""
    start, end = reservation.start, reservation.end
    if start is None or end is None or not reservation.is_repeated or at < end:
        return reservation
    fixed = next((seconds for flag, seconds in PERIODS.items() if flag in reservation.flags - _SOME_DAYS.keys()), 0)
    if fixed:
        times = int((at - end) // fixed)
        while _later(end, times * fixed) <= at:
            times += 1
        return replace(reservation, start=_later(start, times * fixed), end=_later(end, times * fixed))
    weekdays = next(days for flag, days in _SOME_DAYS.items() if flag in reservation.flags)
    days = max(0, int((at - end) // _DAY) - 1)
    while _later(end, days * _DAY) <= at or time.localtime(_later(start, days * _DAY)).tm_wday not in weekdays:
        days += 1
    return replace(reservation, start=_later(start, days * _DAY), end=_later(end, days * _DAY))


_DAY = 86400
_SOME_DAYS = {"WEEKDAY": range(5), "WEEKEND": range(5, 7)}
"""Flags of reservations that are repeated on some days of the week alone, with these days, from Monday on."""


def _later(moment: float, seconds: int) -> float:
    """A moment moved as Slurm moves reservations: by the clock for whole days, so that they begin at the same hour."""
    days, rest = divmod(seconds, 86400)
    local = time.localtime(moment)
    clock = local.tm_hour, local.tm_min, local.tm_sec
    return time.mktime((local.tm_year, local.tm_mon, local.tm_mday + days, *clock, 0, 0, -1)) + rest


def _overlaps(reservation: Reservation) -> bool:
    """Whether it may only be made after those that it overlaps.

    Without that flag its jobs keep off the nodes of others that overlap it.
    """
    return not {"OVERLAP", "MAINT"}.isdisjoint(reservation.flags)


def _attracts(reservation: Reservation, users: Collection[str], accounts: Collection[str]) -> bool:
    """Whether jobs of all these users, with these accounts, run in it without naming it."""
    limits = [(names, who) for names, who in [(reservation.users, users), (reservation.accounts, accounts)] if names]
    return "MAGNETIC" in reservation.flags and bool(limits) and all(_admits(*limit) for limit in limits)


def _admits(names: Sequence[str], who: Collection[str]) -> bool:
    """Whether a reservation's list names all of these, or, where its names begin with ``-``, none of them."""
    denied = {name[1:] for name in names if name.startswith("-")}
    return bool(who) and (denied.isdisjoint(who) if denied else set(names).issuperset(who))


def _for_twin(
    reservation: Reservation,
    name: str,
    at: float,
    nodes: Mapping[str, NodeState],
    licenses: Mapping[str, int],
    *,
    attracts: bool,
    named: bool,
) -> dict[str, Any]:
    """The reservation of the twin whose now is ``at``, and which has these nodes and licences.

    The requests run in it if it attracts them or one of them names it.
    """
    # Slurm 24.11 and later let SlurmUser, which the twin's account is, into every reservation that is MAGNETIC
    flags = [flag for flag in sorted(reservation.flags & _FLAGS) if attracts or flag != "MAGNETIC"]
    reserved = {
        license_: min(gres.count, licenses[license_])  # the others are held, and not among the twin's
        for gres in parse_gres(reservation.licenses)
        if licenses.get(license_ := _license(gres.name))
    }
    values = {
        "ReservationName": name,
        "Nodes": host_list(node for node in reservation.nodes if node in nodes),
        "CoreCnt": ",".join(map(str, reservation.cores or _core_counts(reservation, nodes))),
        "Licenses": ",".join(f"{license_}:{count}" for license_, count in reserved.items()),
        "Flags": ",".join([*flags, "IGNORE_JOBS"]),
    }
    start, end = reservation.start or 0.0, at + _ENDLESS if reservation.end is None else reservation.end
    return {
        "starts": _ahead(start - at) if start > at else 0.0,
        "ends": _ahead(end - at),
        "own": attracts or named,
        "values": {key: value for key, value in values.items() if value},
    }


def _core_counts(reservation: Reservation, nodes: Mapping[str, NodeState]) -> list[int]:
    """How many cores of each node are reserved, where Slurm reports their sum alone; empty where all are.

    It does so in the first seconds of a reservation; this supposes as many on each node.
    """
    names, total = reservation.nodes, reservation.core_count
    there = [numbers_of(nodes[name]) for name in names if name in nodes]
    if not 0 < total < sum(of["Sockets"] * of["CoresPerSocket"] - of["CoreSpecCount"] for of in there):
        return []
    return [total * (number + 1) // len(names) - total * number // len(names) for number in range(len(names))]


# --- requests -------------------------------------------------------------------------------------------------------


def _in_arrays(arguments: Sequence[Mapping[str, str]]) -> tuple[list[list[str]], tuple[tuple[int, int], ...]]:
    """Requests that follow each other and are the same, as one job array: it is submitted at once.

    Tasks of an array that prefer nodes (``--prefer``) never use others, as jobs do (seen with Slurm 22.05).
    """
    groups: list[tuple[Mapping[str, str], int]] = []
    jobs: list[tuple[int, int]] = []
    for options in arguments:
        if groups and groups[-1][0] == options and "prefer" not in options:
            groups[-1] = options, groups[-1][1] + 1
        else:
            groups.append((options, 1))
        jobs.append((len(groups) - 1, groups[-1][1]))
    submitted = [
        [
            *(f"--{name}={value}" if value else f"--{name}" for name, value in options.items()),
            *([] if "prefer" in options else [f"--array=1-{count}"]),
        ]
        for options, count in groups
    ]
    return submitted, tuple(jobs)
