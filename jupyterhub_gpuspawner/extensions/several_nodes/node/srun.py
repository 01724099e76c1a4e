"""The ``srun`` of a step: how many ranks run on which nodes, its command line, and its environment. Pure.

A server's environment, and that of its terminals and notebook cells, contains the ``SLURM_*`` variables of the batch
step. For srun many of them are options (srun(1), "INPUT ENVIRONMENT VARIABLES"): the batch step's one task per node and
its CPUs would then hold for every step. So srun gets only the job's id, and what its user must have set.
"""

from __future__ import annotations

import base64
import json
import os
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.node import grant
from jupyterhub_gpuspawner.units import GPU_GRES, NodeAllocation, expand_nodelist

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


# The command line of ``gpuspawner-run``. Pure; ``gpuspawner run`` offers the same options.

ABOUT = "Run COMMAND as one job step on the nodes and GPUs of this job, each rank bound to its part of its node."

NODE_TIMEOUT = 60
"""Seconds. A node that only swaps or waits for a file system answers sooner."""
_REDIRECTED = ("--error", "-e", "--output", "-o", "--pty")
"""Options of srun with which the standard error of ranks goes elsewhere."""


@dataclass(frozen=True)
class Word:
    """One option: a flag if it has no metavariable."""

    names: tuple[str, ...]
    """The last one is that of a field of :class:`Options`, too."""
    help: str
    metavar: str = ""
    repeated: bool = False
    least: int | None = None
    """Its value is a whole number from this."""


WORDS = (
    Word(("-N", "--nodes"), "Number of the job's nodes to use, the first ones.  [default: all]", "N", least=1),
    Word(("--per-gpu",), "Start one rank for each GPU. The default, if the job has GPUs."),
    Word(("--per-node",), "Start one rank on each node. The default for torchrun, and without GPUs."),
    Word(("-n", "--ntasks"), "Start this many ranks, divided evenly over the nodes.", "N", least=1),
    Word(("--all-gpus",), "Show each rank all GPUs of its node, for programs that pick one by LOCAL_RANK."),
    Word(("--gpu-bind",), "Passed to srun. Slurm then decides which GPUs a rank has.", "TYPE"),
    Word(("--cpu-bind",), "Passed to srun. Slurm then decides which CPUs a rank has.", "TYPE"),
    Word(("--mem-bind",), "Passed to srun. Slurm then decides on the memory policy.", "TYPE"),
    Word(
        ("--srun",),
        "Another option for srun, such as --srun=--mpi=pmix. May be repeated.",
        "OPTION",
        repeated=True,
    ),
    Word(
        ("--logs",),
        "Write each rank's output to rank-R.NODE.log in this folder instead of the screen.",
        "FOLDER",
    ),
    Word(
        ("--node-timeout",),
        f"End the run if a node has not answered for this long; 0: never.  [default: {NODE_TIMEOUT}]",
        "SECONDS",
        least=0,
    ),
    Word(("--no-label",), "Do not begin each line of output with the number of its rank."),
    Word(("-v", "--verbose"), "Print each rank's binding, and the command of srun, on standard error."),
)
"""All options; one definition for both commands."""


@dataclass(frozen=True)
class Options:
    """What was asked for."""

    command: tuple[str, ...] = ()
    nodes: int | None = None
    per_gpu: bool = False
    per_node: bool = False
    ntasks: int | None = None
    all_gpus: bool = False
    gpu_bind: str | None = None
    cpu_bind: str | None = None
    mem_bind: str | None = None
    srun: tuple[str, ...] = ()
    logs: str | None = None
    node_timeout: int | None = None
    no_label: bool = False
    verbose: bool = False

    def checked(self) -> Options:
        """The same options; raises ValueError if they contradict each other or there is no command."""
        if not self.command:
            raise ValueError("there is no command; it follows --")
        if self.per_gpu + self.per_node + (self.ntasks is not None) > 1:
            raise ValueError("--per-gpu, --per-node and --ntasks exclude each other")
        return self

    @property
    def limit(self) -> int:
        """Seconds of silence after which a node is lost; 0: never, as where the ranks' messages do not arrive."""
        redirected = any(word.startswith(_REDIRECTED) for word in self.srun)
        return 0 if redirected else NODE_TIMEOUT if self.node_timeout is None else self.node_timeout

    @property
    def is_torchrun(self) -> bool:
        """Whether the command is torchrun, which starts a node's ranks itself."""
        words = [os.path.basename(self.command[0]), *self.command[1:3]]
        python = words[0].startswith("python") and words[1:2] == ["-m"]
        return words[0] == "torchrun" or (
            python and words[2:] in (["torch.distributed.run"], ["torch.distributed.launch"])
        )


def parse(arguments: Sequence[str]) -> Options:
    """Parse the command line; prints the help for ``-h``, and exits with status 2 for a wrong one, as argparse does."""
    import argparse

    parser = argparse.ArgumentParser(
        prog="gpuspawner-run",
        description=ABOUT,
        allow_abbrev=False,
        usage="%(prog)s [OPTIONS] -- COMMAND [ARGUMENT...]",
    )
    for word in WORDS:
        kind = str if word.least is None else partial(_whole, least=word.least)
        how: dict[str, Any] = {"metavar": word.metavar, "type": kind} if word.metavar else {"action": "store_true"}
        how |= {"action": "append", "default": []} if word.repeated else {}
        parser.add_argument(*word.names, help=word.help, **how)
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    values = vars(parser.parse_args(list(arguments)))
    command = values.pop("command")
    values["srun"] = tuple(values["srun"])
    try:
        return Options(command=tuple(command[1:] if command[:1] == ["--"] else command), **values).checked()
    except ValueError as error:
        parser.error(str(error))


def _whole(text: str, *, least: int) -> int:
    """A whole number from ``least``; raises argparse's error for another text."""
    from argparse import ArgumentTypeError

    if not (text.isascii() and text.isdigit()) or int(text) < least:
        raise ArgumentTypeError(f"{text} is not a whole number from {least}")
    return int(text)


# The nodes of the job, and what it has on each: from the environment and from ``scontrol show job -d``.


@dataclass(frozen=True)
class Node:
    """A node of the job: what the job has there, and how many ranks run there."""

    name: str
    gpus: int = 0
    """Number of GPUs, MIG devices and shares of GPUs."""
    cpus: int | None = None
    """Number of CPUs; None if it is not known."""
    ranks: int = 0


@dataclass(frozen=True)
class Job:
    """The job in which a step is to run."""

    id: str
    nodes: tuple[Node, ...]
    """In Slurm's order, in which it also numbers the tasks of a step."""
    here: str = ""
    """The node on which this process runs; empty if it is not one of the job's."""
    allocation: str = ""
    """The lines of ``scontrol show job -d`` about nodes, for the ranks; empty if there was no answer."""
    step_asks_for_gpus: bool = False
    """Whether a step has to ask for its GPUs, since the job did not ask for GPUs of each node.

    After ``--gpus`` Slurm gives a step none by itself, after ``--gpus-per-task`` as many for each of the step's tasks.
    """


_NOT_PER_NODE = ("TresPerJob=", "TresPerSocket=", "TresPerTask=")
"""What a job asked for other than for each node, in ``scontrol show job``."""


def read(environ: Mapping[str, str], answer: str) -> Job:
    """The job of this process. ``answer``: that of ``scontrol show job -d``, perhaps empty.

    Raises ValueError outside a job, or if its nodes are not known.
    """
    job = environ.get("SLURM_JOB_ID", "")
    if not job:
        raise ValueError("there is no Slurm job here: SLURM_JOB_ID is not set")
    lines = [line.strip() for line in answer.splitlines()]
    listed = [line.partition("=")[2] for line in lines if line.startswith("NodeList=")]
    text = environ.get("SLURM_JOB_NODELIST") or next(iter(listed), "")
    names = expand_nodelist(text) if text else ()
    if not names:
        raise ValueError(f"the nodes of job {job} are not known: neither SLURM_JOB_NODELIST nor scontrol names them")
    per_node = [line for line in lines if line.startswith("Nodes=") and "CPU_IDs=" in line]
    allocations = grant.allocations_of(answer)
    gpus = {allocation.node: _gpus(allocation) for allocation in allocations}
    cpus = {allocation.node: len(allocation.cpu_ids) for allocation in allocations}
    here = environ.get("SLURMD_NODENAME", "")
    # GPUs that the server has claimed, or that Slurm did not name, are known by its environment alone.
    if not per_node or (len(names) == 1 and not sum(gpus.values())):
        own = grant.number(environ.get("SLURM_GPUS_ON_NODE"))
        gpus = dict.fromkeys(names, len(grant.visible_names(environ) or ()) if own is None else own)
    return Job(
        job,
        tuple(Node(name, gpus.get(name, 0), cpus.get(name)) for name in names),
        here if here in names else "",
        "\n".join(per_node),
        step_asks_for_gpus=any(line.startswith(_NOT_PER_NODE) and "gpu" in line for line in lines),
    )


def _gpus(allocation: NodeAllocation) -> int:
    """The number of GPUs, MIG devices and shares of GPUs."""
    gres = [gres for gres in allocation.gres if gres.name in GPU_GRES]
    return sum(item.count if item.name == "gpu" else len(item.indices) for item in gres)


SPEC = "GPUSPAWNER_STEP"
"""The variable with what each rank must know (:class:`Spec`)."""


@dataclass(frozen=True)
class Spec:
    """What ``gpuspawner-run`` tells every rank."""

    token: str
    """Marks the ranks' own messages in their output."""
    plan: str
    """The launch plan of the server, as JSON."""
    master_addr: str = ""
    """Empty: the address of the node on which srun runs, which Slurm tells each rank."""
    master_port: int = 0
    keeps: tuple[str, ...] = ()
    """What Slurm binds by the user's own choice: ``gpu``, ``cpu``, ``mem``."""
    all_gpus: bool = False
    torchrun: bool = False
    logs: str = ""
    allocation: str = ""
    """Lines of ``scontrol show job -d``, so that not every rank asks slurmctld."""
    verbose: bool = False
    beat: float = 0.0
    """Seconds after which each rank says again that it is there; 0: never."""

    def dumps(self) -> str:
        """As JSON, for :func:`loads`."""
        return json.dumps(asdict(self))


def loads(text: str) -> Spec:
    """The spec that ``gpuspawner-run`` wrote; raises ValueError or TypeError for another text."""
    document = json.loads(text)
    return Spec(**{**document, "keeps": tuple(document["keeps"])})


ARCHIVE = "GPUSPAWNER_ARCHIVE_"
"""Begin of the names of the variables with the launcher, in base64."""
_PIECE = 96 * 1024
"""Characters in one of them: the kernel allows 128 KiB (execve(2), MAX_ARG_STRLEN)."""
_BINDINGS = {
    "gpu": (
        ("--gpu-bind", "--tres-bind", "--gpus-per-task", "--tres-per-task"),
        ("SLURM_GPU_BIND", "SLURM_TRES_BIND"),  # not SLURM_GPUS_PER_TASK, which is about the tasks of the job
    ),
    "cpu": (("--cpu-bind",), ("SLURM_CPU_BIND",)),
    "mem": (("--mem-bind",), ("SLURM_MEM_BIND",)),
}
"""Options of srun by which its user has Slurm bind, and the variables that srun reads for them."""
_USERS = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_MPI_TYPE", "SLURM_DEBUG", *_BINDINGS["gpu"][1])
"""Variables that Slurm itself sets for a batch job only if the job was submitted with the option."""
_SECRET = ("JUPYTERHUB_API_TOKEN", "JPY_API_TOKEN", "CONFIGPROXY_AUTH_TOKEN")
"""Not sent over the network to the other nodes: no rank needs them."""
_PYTHONS = (
    "python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9 "
    '"${GPUSPAWNER_BESIDE:-}/python3" /usr/bin/python3 /usr/libexec/platform-python'
)
RANK = "jupyterhub_gpuspawner.extensions.several_nodes.node.rank:main"
BOOT = f"""\
for python in "${{GPUSPAWNER_PYTHON:-}}" {_PYTHONS}; do
    [ "$("$python" -I -S -c 'import sys, zlib; print(sys.version_info >= (3, 9))' 2>/dev/null)" = True ] &&
        exec "$python" -I -c '
import base64, os, runpy, sys, tempfile
names = sorted(name for name in os.environ if name.startswith("{ARCHIVE}"))
archive = base64.b64decode("".join([os.environ.pop(name) for name in names]))
try:
    file = os.fdopen(os.memfd_create("launch.pyz"), "wb")
except (AttributeError, OSError):
    file = tempfile.TemporaryFile()
file.write(archive)
file.flush()
path = "/proc/self/fd/%d" % file.fileno()
sys.argv = [path, "--entry", *sys.argv[1:]]
runpy.run_path(path, run_name="__main__")
' "$@"
done
echo "$0: no Python 3.9 or newer on ${{SLURMD_NODENAME:-$(hostname)}}" >&2
exit 127
"""
"""Shell lines that find a Python on a node and run a function of the launcher there; nothing is written to its disks.

Their arguments are the function, as ``module:function``, and its arguments; their name begins the line that says that
there is no Python.
"""


def layout(job: Job, options: Options) -> tuple[Node, ...]:
    """The nodes of the step with their ranks, as asked for; raises ValueError if the job has too little for it.

    Slurm numbers the ranks node by node.
    """
    wanted = options.nodes or len(job.nodes)
    if wanted > len(job.nodes):
        raise ValueError(f"--nodes: {wanted} nodes were asked for; job {job.id} has {len(job.nodes)}")
    nodes = job.nodes[:wanted]
    has_gpus = any(node.gpus for node in nodes)
    if options.ntasks is not None:
        share, more = divmod(options.ntasks, wanted)
        ranks = [share + int(n < more) for n in range(wanted)]
    elif options.per_node or not (options.per_gpu or has_gpus) or (options.is_torchrun and not options.per_gpu):
        ranks = [1] * wanted
    elif has_gpus:
        ranks = [node.gpus for node in nodes]
    else:
        raise ValueError("--per-gpu: this job has no GPU; use --per-node or --ntasks")
    return tuple(replace(node, ranks=count) for node, count in zip(nodes, ranks) if count)


def keeps(options: Options, environ: Mapping[str, str]) -> tuple[str, ...]:
    """What Slurm binds by the user's own choice, of ``gpu``, ``cpu`` and ``mem``: by option, or by variable of srun."""
    own = users(environ)
    return tuple(
        kind
        for kind, (user_options, variables) in _BINDINGS.items()
        if getattr(options, f"{kind}_bind")
        or any(word.partition("=")[0] in user_options for word in options.srun)
        or any(name in own for name in variables)
    )


def users(environ: Mapping[str, str]) -> dict[str, str]:
    """Those variables of srun that the user, or the profile, has set, and not Slurm for the batch step."""
    variables = {name: environ[name] for name in _USERS if name in environ}
    if "SLURM_TRES_PER_TASK" in environ and ":per_task:" in environ.get("SLURM_TRES_BIND", ""):
        del variables["SLURM_TRES_BIND"]  # Slurm 24.11 and later bind like this by themselves after --gpus-per-task
    for name in ("SLURM_CPU_BIND", "SLURM_MEM_BIND"):
        # Slurm sets it to VERBOSE,TYPELIST of its own choice, and the three parts as variables of their own.
        parts = [environ.get(f"{name}_{part}", "") for part in ("VERBOSE", "TYPE", "LIST")]
        slurms = {f"{parts[0]},{parts[1]}{parts[2]}", f"{parts[0]},{parts[1]}", parts[0]}
        if name in environ and environ[name] not in slurms:
            variables[name] = environ[name]
    return variables


def environment(environ: Mapping[str, str], job: Job, *, spec: str, archive: bytes) -> dict[str, str]:
    """The environment of srun, which every rank inherits."""
    own = {name: value for name, value in environ.items() if not name.startswith(("SLURM_", "SLURMD_", "SRUN_"))}
    for name in _SECRET:
        own.pop(name, None)
    text = base64.b64encode(archive).decode("ascii")
    pieces = {f"{ARCHIVE}{n:02}": text[start : start + _PIECE] for n, start in enumerate(range(0, len(text), _PIECE))}
    return {**own, **users(environ), "SLURM_JOB_ID": job.id, SPEC: spec, **pieces}


def gpus_of_step(job: Job, nodes: Sequence[Node], bindings: Sequence[str]) -> list[str]:
    """The options by which a step gets the GPUs of its nodes, where Slurm does not give it these by itself.

    Slurm gives a step the same number on each node, or the same for each rank; raises ValueError where neither fits.
    """
    counts = [node.gpus for node in nodes]
    if not job.step_asks_for_gpus or "gpu" in bindings or not any(counts):
        return []
    if len(counts) == 1:  # Slurm 22.05 refuses --gpus-per-node where the job's other nodes have fewer
        return [f"--gpus={counts[0]}"]
    if len(set(counts)) == 1:
        return [f"--gpus-per-node={counts[0]}"]
    if all(node.gpus == node.ranks for node in nodes):
        return ["--gpus-per-task=1"]
    listed = ", ".join(f"{node.name} {node.gpus}" for node in nodes)
    raise ValueError(
        f"this job's nodes have different numbers of GPUs ({listed}); Slurm gives all of them only to a step with one "
        "rank for each: use --per-gpu"
    )


def nodes_by_rank(nodes: Sequence[Node]) -> list[str]:
    """The names of the nodes, in the order of the ranks."""
    return [node.name for node in nodes for _ in range(node.ranks)]


def command(options: Options, job: Job, nodes: Sequence[Node], *, bindings: Sequence[str] = ()) -> list[str]:
    """The command line of srun.

    ``--overlap`` shares the job's resources with the batch step and other steps. A rank that fails ends the others.
    ``bindings``: what Slurm binds by the user's own choice; where that is not the CPUs, the ranks bind themselves.
    """
    tasks = sum(node.ranks for node in nodes)
    words = ["srun", *([] if "cpu" in bindings else ["--cpu-bind=none"])]
    words += ["--overlap", "--export=ALL", "--kill-on-bad-exit=1", "--input=none", f"--ntasks={tasks}"]
    if len({node.ranks for node in nodes}) == 1:
        words += [f"--nodes={len(nodes)}", f"--ntasks-per-node={nodes[0].ranks}", "--distribution=block"]
        words += [f"--nodelist={','.join(node.name for node in nodes)}"] if len(nodes) < len(job.nodes) else []
    else:
        # not srun's short form for repeated hosts, host*2: Slurm 22.05 counts it once against --ntasks
        words += ["--distribution=arbitrary", f"--nodelist={','.join(nodes_by_rank(nodes))}"]
    if any(node.cpus is not None and node.ranks > node.cpus for node in nodes):
        words.append("--overcommit")
    words += gpus_of_step(job, nodes, bindings)
    words += [] if options.no_label or tasks == 1 else ["--label"]
    binds = {"gpu": options.gpu_bind, "cpu": options.cpu_bind, "mem": options.mem_bind}
    words += [f"--{kind}-bind={value}" for kind, value in binds.items() if value]
    return [*words, *options.srun, "/bin/sh", "-c", BOOT, "gpuspawner-run", RANK, *options.command]
