#!/usr/bin/python3 -I
"""Run a slurmctld of nodes that exist only in its configuration, submit jobs to it, and print what it gave them.

Standard input: one JSON object, see :func:`checked`. Standard output: one JSON object, see :func:`answer`. There are no
arguments. It runs as any account, needs munged and no slurmd, answers only to itself, and leaves nothing behind however
it ends.
Nodes are ``State=CLOUD`` and resuming one never ends, so a job that gets its resources stays CONFIGURING with
them, and nothing runs.

A hub whose machine has no Slurm runs this file on a login node, as the script ``twin`` of its wrappers. So what comes
in can only describe nodes, partitions, reservations and requests: each field of it is checked here.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, NamedTuple, Sequence

PROGRAMS = "/usr/sbin:/usr/local/sbin:/usr/bin:/bin"  # SITE: Slurm's folders, which are searched after PATH
PARENT = "/tmp"
LIMIT = 1 << 26
"""Bytes of standard input."""
ATTEMPTS = 5
"""Ports that are tried; another program may take one between its choice and its use."""
SBATCH_THREADS = 4
"""Commands that run at the same time."""
PATIENCE = 15.0
"""Seconds after which the scheduler that fills gaps is not waited for; it is to run every second."""
CYCLES = 2
"""Runs of each scheduler after which a job that still has no reason is taken to wait."""
NOT_QUEUED = frozenset(["PartitionTimeLimit", "PartitionNodeLimit", "PartitionDown", "PartitionInactive"])
"""Reasons of jobs that no scheduler considers."""
ENDLESS = 3600.0
"""Seconds beyond the end of any twin."""
FOREVER = 2.0**32
"""Seconds beyond the end of any reservation."""
TICK = 0.02
MARK = "GPUSPAWNER_TWIN"
"""The variable of all processes of a twin, with a random value."""
REMOVAL = 10.0
"""Seconds for which a folder that cannot be removed is tried."""

_CONFIG = """
SelectType SelectTypeParameters GresTypes DefMemPerCPU DefMemPerNode MaxMemPerCPU MaxMemPerNode DefCpuPerGPU
DefMemPerGPU EnforcePartLimits PreemptType PreemptMode Licenses MaxTasksPerNode
"""
_NODE = """
NodeName CPUs Boards SocketsPerBoard CoresPerSocket ThreadsPerCore RealMemory MemSpecLimit CoreSpecCount CpuSpecList
TmpDisk Weight Feature Gres
"""
_PARTITION = """
PartitionName Nodes Default State DefaultTime MaxTime MinNodes MaxNodes MaxCPUsPerNode MaxCPUsPerSocket DefMemPerCPU
DefMemPerNode MaxMemPerCPU MaxMemPerNode DefCpuPerGPU DefMemPerGPU OverSubscribe LLN ReqResv PriorityTier
PreemptMode SelectTypeParameters
"""
_OPTIONS = """
array constraint contiguous core-spec cores-per-socket cpus-per-gpu cpus-per-task distribution exclude exclusive
extra-node-info gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint licenses mem mem-per-cpu
mem-per-gpu mincpus nodelist nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket overcommit
oversubscribe partition prefer reservation segment sockets-per-node spread-job switches thread-spec threads-per-core
time time-min tmp tres-per-task use-min-nodes
"""
CONFIG, NODE, PARTITION, OPTIONS = (frozenset(names.split()) for names in (_CONFIG, _NODE, _PARTITION, _OPTIONS))
GRES = frozenset(["NodeName", "Name", "Type", "Count", "File", "MultipleFiles", "Cores", "Links", "Flags"])
RESERVATION = frozenset(["ReservationName", "Nodes", "PartitionName", "Flags", "CoreCnt", "Licenses"])
_LIMITS = "State MinNodes MaxNodes MaxTime MaxCPUsPerNode MaxCPUsPerSocket MaxMemPerCPU MaxMemPerNode ReqResv"
LIMITS = frozenset(_LIMITS.split())
"""Parameters of a partition that jobs which run already need not meet: they may be newer, or the job changed, or have
more than it requested, such as whole sockets."""
SINCE = {"MaxCPUsPerSocket": (23, 2)}
"""Parameters that an older slurmctld would refuse."""
HARMLESS = re.compile(r"MailProg|state file|NOTE|mpi|MPI|MessageTimeout|Zero Bytes|munge_")
"""Errors that a slurmctld reports which has no state, no mail and no nodes."""
WORD = re.compile(r"[^\s\"'\\#/]*")
"""A value that can end neither its word nor its line, and names no file."""
_DEVICE = re.compile(r"(?:/(?!\.\.(?:/|$))[^\s\"'\\#/]+)+")
PATHS = {
    "SelectType": re.compile(r"select/[a-z_]+"),
    "PreemptType": re.compile(r"preempt/[a-z_]+"),
    "File": _DEVICE,
    "MultipleFiles": _DEVICE,
}
"""The values that have a slash: names of plugins, and devices, at which slurmctld does not look."""
TRES = re.compile(r"\b(?:gres|license)/")
"""The slashes in the values of options: in those of others, such as ``--nodelist``, they make a file of hosts."""


class Refused(Exception):
    """Why there is no answer: one sentence, and the kind of fault (``missing``, ``start``, ``ended``)."""

    def __init__(self, kind: str, sentence: str) -> None:
        super().__init__(sentence)
        self.kind = kind


def main() -> None:
    """Answer the question on standard input."""
    if len(sys.argv) != 1:
        sys.exit("twin: takes no argument")
    question = checked(sys.stdin.buffer.read(LIMIT + 1))
    folder = Path(PARENT, f"gpuspawner-twin-{os.urandom(8).hex()}")
    mark = os.urandom(16).hex()
    hold = guarded(folder, mark, question.seconds)
    try:
        folder.mkdir(mode=0o700)
        result = answer(Twin(folder, mark, question), question)
    except Refused as refused:
        result = {"fault": refused.kind, "sentence": str(refused)}
    except OSError as error:  # such as a folder that cannot be made, or is full
        result = {"fault": "start", "sentence": f"{error.filename or folder}: {error.strerror}."}
    json.dump(result, sys.stdout)
    sys.stdout.flush()
    os.close(hold)


# --- what comes in ------------------------------------------------------------------------------------------------


class Question(NamedTuple):
    """What is asked."""

    config: dict[str, str]
    """Parameters of slurm.conf."""
    nodes: list[dict[str, str]]
    """Lines of slurm.conf."""
    partitions: list[dict[str, str]]
    gres: list[dict[str, str]]
    """Lines of gres.conf."""
    drained: str
    """A host list of nodes on which no job starts."""
    suspended: list[list[str]]
    """sbatch options of jobs that hold memory and generic resources already, but no CPUs."""
    held: list[list[str]]
    """sbatch options of jobs that hold resources already."""
    reservations: list[dict[str, Any]]
    """``values`` of scontrol, ``starts`` and ``ends`` in seconds from now, ``own`` if this account may use it."""
    requests: list[list[str]]
    """sbatch options of jobs that are submitted then, in this order."""
    seconds: float
    """It ends itself after them."""


def checked(text: bytes) -> Question:
    """The question; exits if it is anything else than what such a question is made of."""
    try:
        document = json.loads(text) if len(text) <= LIMIT else None
    except (ValueError, RecursionError):
        document = None
    if (
        not isinstance(document, dict)
        or document.keys() != FIELDS.keys()
        or not all(valid(document[name]) for name, valid in FIELDS.items())
    ):
        sys.exit("twin: this is not a question of the hub")
    return Question(**document)


def is_value(key: str, value: Any) -> bool:
    """Whether this can be the value of a parameter of slurm.conf, gres.conf or scontrol."""
    return isinstance(value, str) and value.isprintable() and PATHS.get(key, WORD).fullmatch(value) is not None


def is_option(name: Any, value: Any) -> bool:
    """Whether this is an option of sbatch that reads no file, runs nothing, and concerns the allocation alone."""
    path = TRES.sub("", value) if name in ("gres", "tres-per-task") else value
    return name in OPTIONS and value.isprintable() and "/" not in path


def is_request(options: Any) -> bool:
    """Whether these are such options, each as one word."""
    return isinstance(options, list) and all(
        isinstance(option, str) and option[:2] == "--" and is_option(*option[2:].partition("=")[::2])
        for option in options
    )


def is_record(record: Any, keys: frozenset[str], needed: str = "") -> bool:
    """Whether it has these keys alone, among them the one that is needed, and such values."""
    return (
        isinstance(record, dict)
        and all(key in keys and is_value(key, value) for key, value in record.items())
        and (not needed or bool(record.get(needed)))
    )


def is_reservation(reservation: Any) -> bool:
    """Whether it is one of :attr:`Question.reservations`."""
    return (
        isinstance(reservation, dict)
        and reservation.keys() == {"values", "starts", "ends", "own"}
        and is_record(reservation["values"], RESERVATION, "ReservationName")
        and is_number(reservation["starts"], 0, FOREVER)
        and is_number(reservation["ends"], 0, FOREVER)
        and isinstance(reservation["own"], bool)
    )


def is_number(value: Any, low: float, high: float) -> bool:
    """Whether it is a number between these; NaN is not."""
    return type(value) in (int, float) and low <= value <= high


def is_list(valid: Callable[..., bool], *arguments: Any) -> Callable[[Any], bool]:
    """What says whether something is a list of what is valid."""
    return lambda items: isinstance(items, list) and all(valid(item, *arguments) for item in items)


FIELDS: dict[str, Callable[[Any], bool]] = {
    "config": lambda config: is_record(config, CONFIG),
    "nodes": is_list(is_record, NODE, "NodeName"),
    "partitions": is_list(is_record, PARTITION, "PartitionName"),
    "gres": is_list(is_record, GRES),
    "drained": lambda nodes: is_value("Nodes", nodes),
    "suspended": is_list(is_request),
    "held": is_list(is_request),
    "reservations": is_list(is_reservation),
    "requests": is_list(is_request),
    "seconds": lambda seconds: is_number(seconds, 1, ENDLESS),
}
"""Those of :class:`Question`, each with what says whether its value is one."""


# --- what is left behind: nothing ---------------------------------------------------------------------------------


def guarded(folder: Path, mark: str, seconds: float) -> int:
    """Start a process that removes the folder, and ends what has this mark, once this process has ended.

    It does so, too, when nobody reads the answer any more, and after ``seconds``. It is no child of this process and
    in no group with it, so that what kills this process does not reach it. It keeps standard output open until it is
    done, so that whoever has read the answer to its end finds nothing left. Returns a file that must stay open.
    """
    ended, hold = os.pipe()
    asker = os.getpid()
    child = os.fork()
    if child:
        os.close(ended)
        os.waitpid(child, 0)
        return hold
    try:
        os.close(hold)
        os.setsid()
        if os.fork() == 0:
            guard(folder, mark, asker, ended, seconds)
    finally:
        os._exit(0)


def guard(folder: Path, mark: str, asker: int, ended: int, seconds: float) -> None:
    """Wait for the end of the process ``asker``, or end it; then clean up, whatever went wrong."""
    try:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 2)
        events = select.poll()
        events.register(ended, select.POLLIN)
        events.register(1, 0)  # an error is always reported: nobody reads the answer
        if ended not in [number for number, _ in events.poll(seconds * 1000)]:
            os.kill(asker, signal.SIGKILL)  # it has not ended, so this is still its number
    finally:
        clean_up(folder, mark)


def clean_up(folder: Path, mark: str) -> None:
    """End the twin's processes until none is left, and remove its folder."""
    began = time.monotonic()
    while True:
        pids = processes_of(mark)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)
        if not pids and (not folder.exists() or time.monotonic() - began > REMOVAL):
            return
        time.sleep(TICK)


def processes_of(mark: str) -> list[int]:
    """This account's living processes that have the mark in their environment, where no other account can read it.

    Those of others are left alone: to read their memory may take as long as they like.
    """
    name, own = f"{MARK}={mark}".encode(), b"\nUid:" + b"\t%d" % os.geteuid() * 4 + b"\n"
    pids = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if own in (process / "status").read_bytes() and name in (process / "environ").read_bytes().split(b"\0"):
                pids.append(int(process.name))
    return pids


# --- the controller -----------------------------------------------------------------------------------------------


class Twin:
    """A running slurmctld; raises Refused if it does not start."""

    def __init__(self, folder: Path, mark: str, question: Question) -> None:
        self.folder = folder
        self.private, self.address = loopback()
        self.process: subprocess.Popen[bytes] | None = None
        self.daemons: list[subprocess.Popen[bytes]] = []
        self.path = f"{os.environ.get('PATH', '')}:{PROGRAMS}".strip(":")
        self.environment = {
            "PATH": self.path,
            "LANG": "C.UTF-8",
            MARK: mark,
            "SLURM_CONF": f"{folder}/slurm.conf",
            "SLURM_TIME_FORMAT": "%s",
        }
        self.version = self._version()
        self._release = tuple(map(int, self.version.split(".")[:2]))
        (folder / "state").mkdir()
        (folder / "job").write_text("#!/bin/sh\n")
        (folder / "gres.conf").write_text("AutoDetect=off\n" + lines(question.gres))
        if self._release >= (23, 2):  # without this line it creates cgroups
            (folder / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
        munge = self._start_munged()
        for _ in range(ATTEMPTS):
            port = free_port()
            (folder / "slurm.conf").write_text(self._conf(question, port, munge))
            self.process = self._start("slurmctld", "-D", "-f", f"{folder}/slurm.conf")
            while not self.ended:
                if listens(self.address, port) and self._responds():
                    return
                time.sleep(TICK)
            if "in use" not in self._log():
                break
        raise Refused("start", f"slurmctld {self.version} did not start: {self._fault()}")

    def _responds(self) -> bool:
        with suppress(subprocess.TimeoutExpired):  # another program may have the port, and say nothing
            return "is UP" in self.run("scontrol", "ping", timeout=2.0)[1]
        return False

    def run(self, name: str, *arguments: str, timeout: float) -> tuple[int, str, str]:
        """Exit status, output and errors of a command; raises TimeoutExpired."""
        with subprocess.Popen(
            [self._program(name), *arguments],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
        ) as command:
            deadline = time.monotonic() + timeout
            while True:
                try:
                    output, errors = command.communicate(timeout=0.5)
                except subprocess.TimeoutExpired:  # a command waits for minutes for a slurmctld that has ended
                    if time.monotonic() < deadline and not self.ended:
                        continue
                    command.kill()
                    raise
                return command.returncode, output.decode(errors="replace"), errors.decode(errors="replace")

    @property
    def ended(self) -> bool:
        """Whether slurmctld has ended."""
        return self.process is not None and self.process.poll() is not None

    def query(self, name: str, *arguments: str) -> tuple[int, str, str]:
        """The same of a command that asks slurmctld; raises Refused if that has ended."""
        with suppress(subprocess.TimeoutExpired):
            result = self.run(name, *arguments, timeout=ENDLESS)
            if not self.ended:
                return result
        raise Refused("ended", f"slurmctld {self.version} ended while it was asked: {self._fault()}")

    def _program(self, name: str) -> str:
        path = shutil.which(name, path=self.path)
        if path is None:
            raise Refused("missing", f"{name} is not installed on this machine.")
        return path

    def _version(self) -> str:
        for name in ("slurmctld", "munged", "sbatch", "scontrol", "squeue", "sinfo", "sdiag", "scancel"):
            self._program(name)
        _, output, _ = self.run("slurmctld", "-V", timeout=ENDLESS)
        match = re.search(r"\d+\.\d+(\.\d+)?", output)
        if match is None:
            raise Refused("start", "slurmctld -V printed no version.")
        return match[0]

    def _start_munged(self) -> str:
        """Start a munged with a key of its own, and return its socket, which no other account reaches.

        It is what makes this account alone the one that slurmctld listens to: whoever else was taken for SlurmUser or
        root could have it run programs (strigger(1)).
        """
        key, socket_ = self.folder / "munge.key", self.folder / "munge.socket"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))
        files = {"key-file": key, "socket": socket_}
        files.update({f"{name}-file": self.folder / f"munge.{name}" for name in ("pid", "seed", "log")})
        options = [f"--{name}={file}" for name, file in files.items()]
        munged = self._start("munged", "--foreground", "--force", "--num-threads=2", *options)
        while not socket_.exists():
            if munged.poll() is not None:
                written = (self.folder / "munged.out").read_text(errors="replace").splitlines()
                raise Refused("start", f"munged did not start: {' '.join(written[-1:])[:400] or 'it wrote no message'}")
            time.sleep(TICK)
        return str(socket_)

    def _conf(self, question: Question, port: int, munge: str) -> str:
        account = name_of_account()
        own = [
            "ClusterName=twin",
            f"SlurmctldHost=localhost({self.address})",
            f"SlurmctldPort={port}",
            *(["CommunicationParameters=NoCtldInAddrAny"] if self.private else []),
            "AuthType=auth/munge",
            "CredType=cred/munge",
            f"AuthInfo=socket={munge}",
            f"SlurmUser={account}",
            f"SlurmdUser={account}",
            f"StateSaveLocation={self.folder}/state",
            f"SlurmctldPidFile={self.folder}/slurmctld.pid",
            f"SlurmctldLogFile={self.folder}/slurmctld.log",
            f"SlurmdSpoolDir={self.folder}/spool",
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "JobAcctGatherType=jobacct_gather/none",
            "MpiDefault=none",
            "ResumeProgram=/bin/true",
            "SuspendProgram=/bin/true",
            "ResumeTimeout=7200",
            "SuspendTime=100000",
            "ResumeRate=0",
            "TreeWidth=65533",
            "MessageTimeout=300",
            "MaxJobCount=200000",
            "MaxArraySize=100001",
            "SchedulerParameters=sched_interval=1,default_queue_depth=100000,batch_sched_delay=0,max_sched_time=50,"
            "bf_interval=1,bf_max_time=250,"
            "bf_max_job_test=100000,bf_continue,bf_window=20160,bf_resolution=60,bf_max_job_array_resv=1000",
        ]
        config = {key: value for key, value in question.config.items() if self.knows(key)}
        if config.get("SelectType") == "select/cons_res" and self._release >= (23, 11):  # which no longer has it
            config["SelectType"] = "select/cons_tres"
        partitions = [{k: v for k, v in partition.items() if self.knows(k)} for partition in without_limits(question)]
        own += [f"{key}={value}" for key, value in config.items()]
        # an address at which nothing listens: to look up the names of suspended jobs' nodes would take many seconds
        nodes = [{**node, "NodeAddr": "127.0.0.1", "Port": "1", "State": "CLOUD"} for node in question.nodes]
        return "\n".join(own) + "\n" + lines(nodes) + lines(partitions)

    def knows(self, parameter: str) -> bool:
        """Whether this version has a parameter of slurm.conf."""
        return self._release >= SINCE.get(parameter, (0, 0))

    def _start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.out").open("wb") as output:
            daemon = subprocess.Popen(
                [self._program(name), *arguments],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                start_new_session=True,
            )
        self.daemons.append(daemon)
        return daemon

    def _log(self) -> str:
        return (self.folder / "slurmctld.out").read_text(errors="replace")

    def _fault(self) -> str:
        """What slurmctld says is wrong: its first error that ended it, and how it ended."""
        written = [re.sub(r"^(\[[^]]*\] |slurmctld: )+", "", line) for line in self._log().splitlines()]
        errors = [line for line in written if "error: " in line and not HARMLESS.search(line)]
        fatal = [line for line in written if line.startswith("fatal: ")]
        return "; ".join([*errors[:1], *fatal[-1:]])[:400] or "it wrote no message"


def limited_later(question: Question) -> list[dict[str, str]]:
    """The partitions with jobs that hold resources already."""
    options = {option for job in (*question.suspended, *question.held) for option in job}
    return [partition for partition in question.partitions if f"--partition={partition['PartitionName']}" in options]


def without_limits(question: Question) -> list[dict[str, str]]:
    """The partitions as they are until such jobs are placed."""
    later = limited_later(question)
    return [
        {k: v for k, v in partition.items() if k not in LIMITS} if partition in later else partition
        for partition in question.partitions
    ]


def lines(records: Sequence[dict[str, str]]) -> str:
    """Lines of slurm.conf or gres.conf."""
    return "".join(" ".join(f"{key}={value}" for key, value in record.items()) + "\n" for record in records)


def listens(address: str, port: int) -> bool:
    """Whether a process listens at this port."""
    with socket.socket() as probe:
        return probe.connect_ex((address, port)) == 0


def loopback() -> tuple[bool, str]:
    """Whether slurmctld can listen at the loopback interface alone, and the address at which to ask it.

    It listens at the address of this machine's name, which often is in 127.0.0.0/8, or at all addresses. Whoever has
    no key of its munge can ask it nothing either way.
    """
    try:
        address = socket.gethostbyname(socket.gethostname())
    except OSError:
        address = ""
    return (True, address) if address.startswith("127.") else (False, "127.0.0.1")


def free_port() -> int:
    """A port that nobody listens at, below those of outgoing connections."""
    for _ in range(1000):
        port = 20000 + int.from_bytes(os.urandom(2), "big") % 12000
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("", port))
            return port
    raise Refused("start", "There is no free port from 20000 to 31999.")


def name_of_account() -> str:
    """This account's name, or its number if it has none."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def other_account() -> str:
    """The name of another account of this machine, but not ``nobody``: Slurm 26.05 takes it for no user."""
    for name in ("root", "daemon", "bin", "sys"):
        with suppress(KeyError):
            if pwd.getpwnam(name).pw_uid != os.getuid():
                return name
    raise Refused("start", "This machine has neither an account root nor one named daemon, bin or sys.")


# --- what is asked ------------------------------------------------------------------------------------------------


def answer(twin: Twin, question: Question) -> dict[str, Any]:
    """``version``; ``requests``: for each its ``job`` or sbatch's ``refusal``; ``jobs``: ``scontrol show job -d -o``.

    ``unplaced``: reasons and messages of jobs and reservations of the site that could not be made here.
    """
    if question.drained:
        twin.query("scontrol", "update", f"NodeName={question.drained}", "State=DRAIN", "Reason=twin")
    if order_matters(question):
        power_up(twin)
    unplaced: list[str] = []
    if question.suspended:  # others may have their CPUs
        jobs, unplaced = place(twin, question.suspended)
        for job in jobs:
            twin.query("scontrol", "suspend", job)
    unplaced += place(twin, question.held)[1]
    for partition in limited_later(question):
        limits = [f"{key}={value}" for key, value in partition.items() if key in LIMITS and twin.knows(key)]
        twin.query("scontrol", "update", f"PartitionName={partition['PartitionName']}", *limits)
    unplaced += [sentence for reservation in question.reservations if (sentence := reserve(twin, reservation))]
    requests = [submitted(twin, options) for options in question.requests]
    await_scheduler(twin)
    return {
        "version": twin.version,
        "requests": requests,
        "jobs": twin.query("scontrol", "show", "job", "-a", "-d", "-o")[1],
        "unplaced": unplaced,
    }


def place(twin: Twin, jobs: Sequence[Sequence[str]]) -> tuple[list[str], list[str]]:
    """Let jobs of the site start here; the ids of those that were submitted, and why others do not hold anything."""
    with ThreadPoolExecutor(SBATCH_THREADS) as threads:
        held = [*threads.map(lambda options: submitted(twin, options), jobs)]
    unplaced = [job["refusal"] for job in held if job["refusal"]]
    await_scheduler(twin)
    waiting = twin.query("squeue", "-h", "-r", "-t", "PD", "-o", "%i job of partition %P on %n: %r")[1].splitlines()
    if waiting:
        unplaced += [line.partition(" ")[2] for line in waiting]
        twin.query("scancel", *(line.partition(" ")[0] for line in waiting))
    return [job["job"] for job in held if job["job"]], unplaced


def order_matters(question: Question) -> bool:
    """Whether more may fit on some nodes if others are used first: of another weight, or by jobs of several nodes."""
    several = any(
        option.startswith("--nodes=") and option != "--nodes=1" for job in question.requests for option in job
    )
    return several or len({node.get("Weight") for node in question.nodes}) > 1


def power_up(twin: Twin) -> None:
    """Let all nodes have power, as a site's have: Slurm prefers these to nodes of a smaller weight."""
    twin.query("scontrol", "update", "NodeName=ALL", "State=POWER_UP")
    began = time.monotonic()  # all get it together, after a second; nodes without power are not listed
    while not twin.query("sinfo", "-h", "-N", "-o", "%N")[1] and time.monotonic() < began + PATIENCE:
        time.sleep(TICK)


def submitted(twin: Twin, options: Sequence[str]) -> dict[str, str]:
    """Submit a job; its id, or sbatch's message."""
    fixed = ("--parsable", "--job-name=twin", "--output=/dev/null", "--export=NONE")
    code, output, errors = twin.query("sbatch", *fixed, *options, f"{twin.folder}/job")
    return {"job": output.strip() if code == 0 else "", "refusal": "" if code == 0 else errors.strip() or "failed"}


def reserve(twin: Twin, reservation: dict[str, Any]) -> str:
    """Make a reservation, for another account if it is not for this one; what is wrong, or empty."""
    now, values = int(time.time()), reservation["values"]
    starts = local(now + reservation["starts"]) if reservation["starts"] > 0 else "now"
    errors = ""
    for more in ("", ",OVERLAP"):  # the site's may have been changed since it was made, so that it overlaps now
        code, _, errors = twin.query(
            *("scontrol", "create", "reservation"),
            f"StartTime={starts}",
            f"EndTime={local(now + reservation['ends'])}",
            f"Users={name_of_account() if reservation['own'] else other_account()}",
            *(f"{key}={value}{more if key == 'Flags' else ''}" for key, value in values.items()),
        )
        if code == 0:
            return ""
    return f"reservation {values['ReservationName']}: {errors.strip()}"


def local(moment: float) -> str:
    """A time as scontrol reads it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(moment))


def await_scheduler(twin: Twin) -> None:
    """Wait until both schedulers have considered every job that waits and could start."""
    began, submitted_at, pause = time.monotonic(), int(time.time()), 5 * TICK
    main, backfill, _ = cycles(twin)
    while reasons := set(twin.query("squeue", "-h", "-t", "PD", "-o", "%r")[1].split()) - NOT_QUEUED:
        main_now, backfill_now, last = cycles(twin)
        # Slurm leaves some jobs without a reason, such as those that a reservation with FLEX cannot serve
        considered = "None" not in reasons or min(main_now - main, backfill_now - backfill) > CYCLES
        # the main scheduler holds a lock; the other one may have begun before the last job was submitted
        if (
            considered
            and main_now > main
            and (backfill_now > backfill + 1 or (backfill_now > backfill and last > submitted_at))
        ):
            return
        if considered and time.monotonic() - began > PATIENCE:
            return
        time.sleep(pause)
        pause = min(1.2 * pause, 1.0)


def cycles(twin: Twin) -> tuple[int, int, int]:
    """How often the main scheduler and the backfill scheduler have run, and when the latter began to for the last time.

    In seconds since the epoch.
    """
    text = twin.query("sdiag")[1]
    main, backfill = (int(number) for number in re.findall(r"Total cycles: (\d+)", text)[:2])
    last = re.search(r"Last cycle when: .*\((\d+)\)", text)
    return main, backfill, int(last[1]) if last is not None else 0


if __name__ == "__main__":
    main()
