"""What a site's Slurm and its gres.conf say, made into the configuration and the jobs of a twin. Pure.

What a twin must not inherit is left out here: accounts, QOS, groups and users (it has no accounting, and all its jobs
are the caller's), priorities (jobs are tried in their order), prologs and their flags, programs and plugins of the site
(power saving, node features, submission), topology, licences of a server (their number is that of the moment).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from jupyterhub_gpuspawner.cpulist import parse_cpulist
from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.extensions.seats import controller
from jupyterhub_gpuspawner.extensions.seats.held import HeldJob, holders, host_list
from jupyterhub_gpuspawner.slurm.sbatch_options import DECIDES, Decides, options_of
from jupyterhub_gpuspawner.slurm.snapshot import occurrence
from jupyterhub_gpuspawner.slurm.text import epoch, fields, present, words
from jupyterhub_gpuspawner.units import expand_nodelist, parse_gres


@dataclass(frozen=True)
class Site:
    """Answers of a site's Slurm; times in them are seconds since the epoch (``SLURM_TIME_FORMAT=%s``)."""

    config: str
    """``scontrol show config``."""
    nodes: str
    """``scontrol show node -a -d -o``."""
    partitions: str
    """``scontrol show partition -a -o``."""
    reservations: str = ""
    """``scontrol show reservation -a -o``."""
    licenses: str = ""
    """``scontrol show license -o``."""
    jobs: tuple[HeldJob, ...] = ()
    """Those that hold resources."""
    gres_conf: str = ""
    """gres.conf, or lines of it for some nodes: with ``Cores=`` and ``Links=`` the twin chooses cores beside GPUs.

    Nodes without lines, or with lines for another number of devices than Slurm reports, get lines from Slurm's report.
    """


@dataclass(frozen=True)
class Request:
    """A job that somebody wants to run."""

    name: str
    """Whose, or which; it comes back in the answer."""
    options: tuple[str, ...]
    """Lines of sbatch options, as the batch script has them: ``--gres=gpu:2``, ``-c 4 --exclusive``."""


@dataclass(frozen=True)
class Question:
    """What :mod:`.controller` is asked, and how its answers belong to the requests."""

    document: Mapping[str, Any]
    """JSON for the controller's standard input; see ``checked`` there."""
    jobs: tuple[tuple[int, int], ...]
    """For each request: which of the document's requests it is part of, and its number in that job array."""
    notes: tuple[str, ...]
    """Sentences for the admin: what of the site or the requests the twin leaves out."""


# --- which options of a request the twin has ------------------------------------------------------------------------

PLACEMENT_OPTIONS = controller.OPTIONS - {"array"}
"""They decide on which nodes, and on what of them, a job runs; arrays are the twin's own."""
_SAME = {"tasks-per-node": "ntasks-per-node"}


def _arguments(request: Request) -> tuple[dict[str, str], list[str]]:
    """The options that the twin's sbatch gets, and the names of those that it does not know."""
    options: dict[str, str] = {}
    unknown = []
    for written, value in _all_options(request):
        name = _SAME.get(written, written)
        if name in PLACEMENT_OPTIONS and controller.is_option(name, value):
            options[name] = value
        elif DECIDES.get(name, Decides.PLACEMENT) is Decides.PLACEMENT:
            # limits of accounts and QOS are the site's to check (sbatch --test-only), and the moment is the question's
            unknown.append(written if name not in PLACEMENT_OPTIONS else f"{written}={value}")
    if options.get("exclusive") in ("user", "mcs"):  # everybody is another person here
        options["exclusive"] = ""
    if "licenses" in options:
        options["licenses"] = ",".join(map(_license, re.split("[,;]", options["licenses"])))
    if "reservation" in options:
        options["reservation"] = ",".join(map(_reservation_name, words(options["reservation"])))
    return options, unknown


def _all_options(request: Request) -> Iterator[tuple[str, str]]:
    return (option for line in request.options for option in options_of(line))


def _license(name: str) -> str:
    """A licence of a remote server, ``matlab@flex:2``, is one of the twin's own."""
    return re.sub("[@/]", "_", name)


def _reservation_name(name: str) -> str:
    """The twin's name of a reservation: the site's may have blanks."""
    return re.sub(r"[^\w.-]", "_", name, flags=re.ASCII)


# --- from the site's answers ----------------------------------------------------------------------------------------

_PARAMETER = re.compile(r"^(?P<key>[A-Za-z][\w/]*) *= ?(?P<value>.*)$", re.ASCII | re.MULTILINE)
_CONFIG = (
    "SelectType",
    "SelectTypeParameters",
    "GresTypes",
    "DefMemPerCPU",
    "DefMemPerNode",
    "MaxMemPerCPU",
    "MaxMemPerNode",
    "EnforcePartLimits",
    "PreemptMode",
    "PreemptType",
    "MaxTasksPerNode",
)
_PARTITION = (
    "Default",
    "State",
    "DefaultTime",
    "MaxTime",
    "MinNodes",
    "MaxNodes",
    "MaxCPUsPerNode",
    "MaxCPUsPerSocket",
    "DefMemPerCPU",
    "DefMemPerNode",
    "MaxMemPerCPU",
    "MaxMemPerNode",
    "OverSubscribe",
    "ExclusiveUser",
    "LLN",
    "ReqResv",
    "PriorityTier",
    "PreemptMode",
    "SelectTypeParameters",
)
_UNSET = frozenset({"", "NONE", "UNLIMITED", "UNKNOWN"})
_OUT_OF_SERVICE = re.compile(r"\b(DOWN|DRAIN\w*|FAIL\w*|UNKNOWN|NOT_RESPONDING|INVAL\w*|BLOCKED)\b|\*")
"""States of a node on which no job starts (sinfo(1)); a session that begins later is assumed to find it likewise."""
_CHANGES_POWER = re.compile(r"\b(POWERING_UP|POWERING_DOWN|POWER_DOWN)\b")


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
    config = {match["key"]: match["value"].strip() for match in _PARAMETER.finditer(site.config)}
    nodes = {
        record["NodeName"]: record for record in _records(site.nodes, "NodeName") if "FUTURE" not in record["State"]
    }
    partitions = [*_records(site.partitions, "PartitionName")]
    if not nodes or not partitions:
        raise SlurmOutputError("scontrol listed no nodes or no partitions.", raw=site.nodes[:200])
    reservations = [*_reservations(site.reservations, at, nodes)]
    held = [job for job in site.jobs if job.holds_at(at) and job.job_id not in without]
    if config.get("SelectType") == "select/linear":  # which gives whole nodes, however many CPUs each has
        held = [replace(job, cpus=0) for job in held]
    drained = [name for name, record in nodes.items() if _out_of_service(record["State"])]
    licenses = _licenses(site.licenses, held)
    in_service = {name: _numbers_per_cpu(nodes[name]) for name in nodes.keys() - drained}
    arguments: list[dict[str, str]] = []
    for request in requests:
        options, unknown = _arguments(request)
        arguments.append(options)
        notes += [f"Option --{name} is not known here and is left out of the count." for name in unknown]
    named = {name for options in arguments for name in words(options.get("reservation"))}
    accounts = {value for request in requests for name, value in _all_options(request) if name == "account"}
    attracting = {reservation.name for reservation in reservations if reservation.attracts(users, accounts)}
    groups, jobs = _in_arrays(arguments)
    # a plugin changes features by a reboot, which Slurm would do for the job
    features = "AvailableFeatures" if present(config.get("NodeFeaturesPlugins")) else "ActiveFeatures"
    document = {
        "config": _config(config, licenses),
        "nodes": [_node(record, features) for record in nodes.values()],
        "partitions": [_partition(record, nodes) for record in partitions],
        "gres": _gres_lines(nodes, site.gres_conf, notes),
        "drained": host_list(drained),
        "suspended": holders([job for job in held if job.suspended], in_service, at),
        "held": holders([job for job in held if not job.suspended], in_service, at),
        "reservations": [
            reservation.for_twin(at, licenses, attracts=reservation.name in attracting, named=reservation.name in named)
            for reservation in sorted(reservations, key=attrgetter("overlaps"))
        ],
        "requests": groups,
        "seconds": seconds,
    }
    return Question(document, jobs, tuple(dict.fromkeys(notes)))


def _out_of_service(state: str) -> bool:
    """A node that boots does not respond yet, nor does one that is powered down, which may boot again after that."""
    if _CHANGES_POWER.search(state):
        state = state.replace("+NOT_RESPONDING", "").replace("*", "")
    return _OUT_OF_SERVICE.search(state) is not None


def version_of(site: Site) -> str:
    """The version of the site's slurmctld, such as ``22.05.8``; empty where it is not reported."""
    return next(
        (match["value"].strip() for match in _PARAMETER.finditer(site.config) if match["key"] == "SLURM_VERSION"), ""
    )


def _records(text: str, first: str) -> Iterator[dict[str, str]]:
    for line in text.splitlines():
        if line.startswith(f"{first}="):
            yield fields(line)


def _words_of(record: Mapping[str, str], keys: Iterable[str]) -> dict[str, str]:
    """The parameters that are set, and can be written into slurm.conf as they are."""
    chosen = {key: present(record.get(key)) for key in keys}
    # scontrol prints DefCpuPerGPU and DefMemPerGPU together
    chosen |= dict(re.findall(r"\b(DefCpuPerGPU|DefMemPerGPU)=([0-9]+)", present(record.get("JobDefaults"))))
    return {
        key: value for key, value in chosen.items() if value.upper() not in _UNSET and controller.is_value(key, value)
    }


def _config(config: Mapping[str, str], licenses: Mapping[str, int]) -> dict[str, str]:
    chosen = _words_of(config, _CONFIG)
    if chosen.get("SelectType") not in ("select/linear", "select/cons_res"):  # Cray's plugin runs one of the others
        chosen["SelectType"] = "select/cons_tres"
    if chosen.get("PreemptType") == "preempt/qos" or "SUSPEND" in chosen.get("PreemptMode", ""):
        # without accounting there is no QOS, and without a slurmd no job is suspended
        chosen = {key: value for key, value in chosen.items() if not key.startswith("Preempt")}
    if licenses:
        chosen["Licenses"] = ",".join(f"{name}:{count}" for name, count in licenses.items())
    return chosen


def _node(record: Mapping[str, str], features: str) -> dict[str, str]:
    """A node's line in slurm.conf, with this field as its features."""
    boards = int(record.get("Boards") or 1)
    line = {
        "NodeName": record["NodeName"],
        "CPUs": record.get("CPUTot", ""),
        "Boards": str(boards) if boards > 1 else "",
        "SocketsPerBoard": str(int(record.get("Sockets") or 1) // boards),
        "CoresPerSocket": record.get("CoresPerSocket", ""),
        "ThreadsPerCore": record.get("ThreadsPerCore", ""),
        "RealMemory": record.get("RealMemory", ""),
        "MemSpecLimit": record.get("MemSpecLimit", ""),
        "CoreSpecCount": "" if present(record.get("CPUSpecList")) else record.get("CoreSpecCount", ""),
        "CpuSpecList": record.get("CPUSpecList", ""),
        "TmpDisk": record.get("TmpDisk", ""),
        "Weight": record.get("Weight", ""),
        "Feature": record.get(features, ""),
        "Gres": re.sub(r"\([^()]*\)", "", present(record.get("Gres"))),
    }
    return {
        key: value for key in line if (value := present(line[key])) and value != "0" and controller.is_value(key, value)
    }


def _partition(record: Mapping[str, str], nodes: Collection[str]) -> dict[str, str]:
    line = _words_of(record, _PARTITION)
    if line.pop("ExclusiveUser", "") == "YES" or record.get("Exclusive") == "USER":  # as newer versions call it
        # all jobs of the twin are of one account, and those of the site of as many: each has its nodes for itself
        line["OverSubscribe"] = "EXCLUSIVE"
    if line.get("PreemptMode") == "OFF" or "SUSPEND" in line.get("PreemptMode", ""):
        del line["PreemptMode"]
    line = {key: value for key, value in line.items() if (key, value) != ("MinNodes", "0")}
    members = [name for name in expand_nodelist(present(record.get("Nodes"))) if name in nodes]
    on = {"Nodes": host_list(members)} if members else {}  # slurm.conf has no empty value
    return {"PartitionName": record["PartitionName"], **on, **line}


# --- gres.conf ------------------------------------------------------------------------------------------------------

_COUNT = re.compile(r"[0-9]+[kKmMgGtTpP]?")
_GRES_KEYS = ("Name", "Type", "Count", "File", "MultipleFiles", "Cores", "Links", "Flags")


def _gres_lines(nodes: Mapping[str, Mapping[str, str]], text: str, notes: list[str]) -> list[dict[str, str]]:
    """Lines of gres.conf, each for all nodes that have it."""
    written = _written(text, nodes)
    by_line: dict[tuple[tuple[tuple[str, str], ...], ...], list[str]] = {}
    for name, record in nodes.items():
        reported = parse_gres(re.sub(r"\([^()]*\)", "", present(record.get("Gres"))))
        if not reported:
            continue
        lines = written.get(name, [])
        if lines and _counts(lines) != {(gres.name, gres.type or ""): gres.count for gres in reported}:
            notes.append(f"gres.conf has other devices for node {name} than Slurm reports; its lines are not used.")
            lines = []
        lines = lines or [*_reported_lines(record)]
        by_line.setdefault(tuple(tuple(line.items()) for line in lines), []).append(name)
    return [{"NodeName": host_list(names), **dict(line)} for lines, names in by_line.items() for line in lines]


def threads_per_core(site: Site) -> dict[str, int]:
    """How many numbers in ``CPU_IDs`` of jobs a core of each node has, also where Slurm counts cores as CPUs."""
    return {record["NodeName"]: int(record.get("ThreadsPerCore") or 1) for record in _records(site.nodes, "NodeName")}


def gpu_cpus(site: Site) -> dict[str, tuple[frozenset[int], ...]]:
    """The CPUs beside each GPU of a node, in Slurm's order of them; without the nodes of which that is not known.

    CPUs have the numbers of ``CPU_IDs`` of jobs: one for each thread, also where Slurm counts cores as CPUs.
    """
    nodes = {record["NodeName"]: record for record in _records(site.nodes, "NodeName")}
    threads_of = threads_per_core(site)
    by_node: dict[str, list[frozenset[int]]] = {}
    for line in _gres_lines(nodes, site.gres_conf, []):
        if line["Name"] == "gpu":
            cores, (count,) = parse_cpulist(line.get("Cores", "")), _counts([line]).values()
            for name in expand_nodelist(line["NodeName"]):
                threads = threads_of[name]
                near = frozenset(core * threads + thread for core in cores for thread in range(threads))
                by_node.setdefault(name, []).extend([near] * count)
    return {name: tuple(gpus) for name, gpus in by_node.items() if all(gpus)}


def _numbers_per_cpu(record: Mapping[str, str]) -> int:
    """How many numbers in ``CPU_IDs`` are one CPU: two where a core of two threads counts as one (``CPUs=``)."""
    sockets, cores, threads = (int(record.get(key) or 1) for key in ("Sockets", "CoresPerSocket", "ThreadsPerCore"))
    return max(1, sockets * cores * threads // max(1, int(record.get("CPUTot") or 1))) if threads > 1 else 1


def _written(text: str, nodes: Collection[str]) -> dict[str, list[dict[str, str]]]:
    by_node: dict[str, list[dict[str, str]]] = {}
    for line in text.splitlines():
        record = {key.lower(): value for key, value in fields(line.partition("#")[0]).items()}
        values = {key: record[key.lower()] for key in _GRES_KEYS if controller.is_value(key, record.get(key.lower()))}
        if "Name" not in values:
            continue
        for name in expand_nodelist(record["nodename"]) if "nodename" in record else nodes:
            by_node.setdefault(name, []).append(values)
    return by_node


def _counts(lines: Iterable[Mapping[str, str]]) -> dict[tuple[str, str], int]:
    counts: dict[tuple[str, str], int] = {}
    for line in lines:
        files = len(expand_nodelist(line["File"].replace("/", "-"))) if "File" in line else 1
        count = line["Count"] if _COUNT.fullmatch(line.get("Count", "")) else files
        (gres,) = parse_gres(f"{line['Name']}:{count}")
        key = line["Name"], line.get("Type", "")
        counts[key] = counts.get(key, 0) + gres.count
    return counts


def _reported_lines(record: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Lines for what slurmctld reports of a node: a socket where it names one, and none where it names several."""
    per_socket = int(record.get("CoresPerSocket") or 0)
    first = 0
    for gres in parse_gres(present(record.get("Gres"))):
        line = {"Name": gres.name} | ({"Type": gres.type} if gres.type else {})
        if gres.name == "gpu":
            line["File"] = f"/dev/nvidia[{first}-{first + gres.count - 1}]"
            first += gres.count
            if len(gres.sockets) == 1 and per_socket:
                begin = gres.sockets[0] * per_socket
                line["Cores"] = f"{begin}-{begin + per_socket - 1}"
        elif gres.name in ("shard", "mps"):
            line["Count"] = str(gres.count)
        else:
            line |= {"Count": str(gres.count), "Flags": "CountOnly"}
        if gres.count:
            yield line


# --- licences and reservations ---------------------------------------------------------------------------------------


def _licenses(text: str, held: Iterable[HeldJob]) -> dict[str, int]:
    """How many there are of each licence, without those that are held."""
    totals = {
        _license(record["LicenseName"]): int(record["Total"])
        for record in _records(text, "LicenseName")
        if record.get("Total", "").isdigit()
    }
    for job in held:
        for item in job.licenses:
            if (name := _license(item.name)) in totals:
                totals[name] = max(0, totals[name] - item.count)
    return totals


_FLAGS = frozenset(["MAINT", "FLEX", "MAGNETIC", "STATIC_ALLOC", "ANY_NODES", "OVERLAP"])
"""Flags that decide which jobs run on which of its nodes; the others concern its own beginning and end."""


_SLACK = 60.0
"""Seconds that the twin may take from its now to its last request: what lies ahead is moved by as much."""


@dataclass(frozen=True)
class _Reservation:
    """A reservation of the site that is in force at the twin's now, or will be; times in seconds since the epoch."""

    name: str
    flags: Collection[str]
    starts: float
    ends: float
    nodes: tuple[str, ...]
    """Those that the twin has."""
    cores: tuple[int, ...]
    """How many cores of each node are reserved; empty where all are."""
    licenses: str
    users: Sequence[str]
    accounts: Sequence[str]

    @property
    def overlaps(self) -> bool:
        """Whether it may only be made after those that it overlaps.

        Without that flag its jobs keep off the nodes of others that overlap it.
        """
        return not {"OVERLAP", "MAINT"}.isdisjoint(self.flags)

    def attracts(self, users: Collection[str], accounts: Collection[str]) -> bool:
        """Whether jobs of all these users, with these accounts, run in it without naming it."""
        limits = [(names, who) for names, who in [(self.users, users), (self.accounts, accounts)] if names]
        return "MAGNETIC" in self.flags and bool(limits) and all(_admits(*limit) for limit in limits)

    def for_twin(self, at: float, licenses: Mapping[str, int], *, attracts: bool, named: bool) -> dict[str, Any]:
        """The reservation of the twin whose now is ``at``, and which has these licences.

        The requests run in it if it attracts them or one of them names it.
        """
        # Slurm 24.11 and later let SlurmUser, which the twin's account is, into every reservation that is MAGNETIC
        flags = [flag for flag in self.flags if flag in _FLAGS and (attracts or flag != "MAGNETIC")]
        reserved = {
            name: min(gres.count, licenses[name])  # the others are held, and not among the twin's
            for gres in parse_gres(self.licenses)
            if licenses.get(name := _license(gres.name))
        }
        values = {
            "ReservationName": self.name,
            "Nodes": host_list(self.nodes),
            "CoreCnt": ",".join(map(str, self.cores)),
            "Licenses": ",".join(f"{name}:{count}" for name, count in reserved.items()),
            "Flags": ",".join([*flags, "IGNORE_JOBS"]),
        }
        return {
            "starts": max(0.0, self.starts - at + (_SLACK if self.starts > at else 0.0)),
            "ends": self.ends - at + _SLACK,
            "own": attracts or named,
            "values": {key: value for key, value in values.items() if value},
        }


def _reservations(text: str, at: float, nodes: Mapping[str, Mapping[str, str]]) -> Iterator[_Reservation]:
    """Those that have not ended at that moment, and that hold licences or some of these nodes."""
    for line in text.splitlines():
        if not line.startswith("ReservationName="):
            continue
        record = fields(line)
        starts, ends = _times(record, at)
        members = tuple(name for name in expand_nodelist(present(record.get("Nodes"))) if name in nodes)
        licenses = present(record.get("Licenses"))
        if ends > at and (members or licenses):
            reported = [len(parse_cpulist(cores)) for cores in re.findall(r"\bNodeName=\S+ CoreIDs=(\S+)", line)]
            yield _Reservation(
                name=_reservation_name(record["ReservationName"]),
                flags=words(record.get("Flags")),
                starts=starts,
                ends=ends,
                nodes=members,
                cores=tuple(reported or _core_counts(record, nodes)),
                licenses=licenses,
                users=words(record.get("Users")),
                accounts=words(record.get("Accounts")),
            )


def _times(record: Mapping[str, str], at: float) -> tuple[float, float]:
    """The beginning and the end of the occurrence that is current at a moment, or else the next."""
    start = epoch(record.get("StartTime"), "StartTime") or 0.0
    end = epoch(record.get("EndTime"), "EndTime")
    if end is None:
        return start, at + 365 * 86400
    return occurrence(start, end, words(record.get("Flags")), at)


def _admits(names: Sequence[str], who: Collection[str]) -> bool:
    """Whether a reservation's list names all of these, or, where its names begin with ``-``, none of them."""
    denied = {name[1:] for name in names if name.startswith("-")}
    return bool(who) and (denied.isdisjoint(who) if denied else set(names).issuperset(who))


def _core_counts(record: Mapping[str, str], nodes: Mapping[str, Mapping[str, str]]) -> list[int]:
    """How many cores of each node are reserved, where Slurm reports their sum alone; empty where all are.

    It does so in the first seconds of a reservation; this supposes as many on each node.
    """
    names = expand_nodelist(present(record.get("Nodes")))
    cores = [
        int(nodes[name]["Sockets"]) * int(nodes[name]["CoresPerSocket"]) - int(nodes[name].get("CoreSpecCount") or 0)
        for name in names
        if name in nodes
    ]
    total = int(record.get("CoreCnt") or 0)
    if not 0 < total < sum(cores):
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
