"""The ``srun`` of a step: how many ranks run on which nodes, its command line, and its environment. Pure.

A server's environment, and that of its terminals and notebook cells, contains the ``SLURM_*`` variables of the batch
step. For srun many of them are options (srun(1), "INPUT ENVIRONMENT VARIABLES"): the batch step's one task per node and
its CPUs would then hold for every step. So srun gets only the job's id, and what its user must have set.
"""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jupyterhub_gpuspawner.node.step.job import Job
    from jupyterhub_gpuspawner.node.step.options import Options

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
_BINDING_VARIABLES = (
    "SLURM_CONF",
    "SLURM_CLUSTERS",
    "SLURM_MPI_TYPE",
    "SLURM_DEBUG",
    "SLURM_GPU_BIND",
    "SLURM_TRES_BIND",
    "SLURM_GPUS_PER_TASK",
)
"""Variables that Slurm itself sets for a batch job only if the job was submitted with the option."""
_SECRET = ("JUPYTERHUB_API_TOKEN", "JPY_API_TOKEN", "CONFIGPROXY_AUTH_TOKEN")
"""Not sent over the network to the other nodes: no rank needs them."""
_PYTHONS = (
    "python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9 "
    "/usr/bin/python3 /usr/libexec/platform-python"
)
_BOOT = f"""\
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
sys.argv = [path, "--rank", *sys.argv[1:]]
runpy.run_path(path, run_name="__main__")
' "$@"
done
echo "gpuspawner-run: no Python 3.9 or newer on $(hostname)" >&2
exit 127
"""
"""Shell lines that find a Python on each node and start the launcher there. Nothing is written to the node's disks."""


@dataclass(frozen=True)
class Layout:
    """How many ranks run on each node of the step."""

    nodes: tuple[str, ...]
    counts: tuple[int, ...]

    @property
    def tasks(self) -> int:
        """All ranks."""
        return sum(self.counts)

    @property
    def node_of(self) -> tuple[str, ...]:
        """The node of each rank: ranks are numbered node by node."""
        return tuple(node for node, count in zip(self.nodes, self.counts) for _ in range(count))

    @property
    def even(self) -> bool:
        """Whether every node has as many ranks as the others."""
        return len(set(self.counts)) == 1


def layout(job: Job, options: Options) -> Layout:
    """Ranks for each node, as asked for; raises ValueError if the job has too little for it."""
    wanted = options.nodes or len(job.nodes)
    if wanted > len(job.nodes):
        raise ValueError(f"--nodes: {wanted} nodes were asked for; job {job.id} has {len(job.nodes)}")
    nodes, gpus = job.nodes[:wanted], job.gpus[:wanted]
    if options.ntasks is not None:
        share, more = divmod(options.ntasks, wanted)
        counts = tuple(share + int(n < more) for n in range(wanted))
    elif options.per_node or not (options.per_gpu or any(gpus)) or (options.is_torchrun and not options.per_gpu):
        counts = (1,) * wanted
    else:
        counts = tuple(gpus)
        if not any(gpus):
            raise ValueError("--per-gpu: this job has no GPU; use --per-node or --ntasks")
    used = [(node, count) for node, count in zip(nodes, counts) if count]
    return Layout(tuple(node for node, _ in used), tuple(count for _, count in used))


def keeps(options: Options, environ: Mapping[str, str]) -> tuple[str, ...]:
    """What Slurm binds by the user's own choice, of ``gpu``, ``cpu`` and ``mem``: by option, or by variable of srun."""
    user_options = {
        "gpu": ("--gpu-bind", "--tres-bind", "--gpus-per-task", "--tres-per-task"),
        "cpu": ("--cpu-bind",),
        "mem": ("--mem-bind",),
    }
    variables = {
        "gpu": ("SLURM_GPU_BIND", "SLURM_TRES_BIND", "SLURM_GPUS_PER_TASK"),
        "cpu": ("SLURM_CPU_BIND",),
        "mem": ("SLURM_MEM_BIND",),
    }
    own = users(environ)
    return tuple(
        kind
        for kind, names in user_options.items()
        if getattr(options, f"{kind}_bind")
        or any(word.partition("=")[0] in names for word in options.srun)
        or any(name in own for name in variables[kind])
    )


def users(environ: Mapping[str, str]) -> dict[str, str]:
    """Those variables of srun that the user, or the profile, has set, and not Slurm for the batch step."""
    variables = {name: environ[name] for name in _BINDING_VARIABLES if name in environ}
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


def gpus_of_step(job: Job, where: Layout, bindings: Sequence[str]) -> list[str]:
    """The options by which a step gets the GPUs of its nodes, where Slurm does not give it these by itself.

    Slurm gives a step the same number on each node, or the same for each rank; raises ValueError where neither fits.
    """
    counts = [dict(zip(job.nodes, job.gpus))[node] for node in where.nodes]
    if not job.gpus_in_all or "gpu" in bindings or not any(counts):
        return []
    if len(counts) == 1:  # Slurm 22.05 refuses --gpus-per-node where the job's other nodes have fewer
        return [f"--gpus={counts[0]}"]
    if len(set(counts)) == 1:
        return [f"--gpus-per-node={counts[0]}"]
    if tuple(counts) == where.counts:
        return ["--gpus-per-task=1"]
    listed = ", ".join(f"{node} {count}" for node, count in zip(where.nodes, counts))
    raise ValueError(
        f"this job's nodes have different numbers of GPUs ({listed}); Slurm gives all of them only to a step with one "
        "rank for each: use --per-gpu"
    )


def command(options: Options, job: Job, where: Layout, *, hosts: str, bindings: Sequence[str] = ()) -> list[str]:
    """The command line of srun. ``hosts``: a file with a line for each rank, used if their numbers per node differ.

    ``--overlap`` shares the job's resources with the batch step and other steps. A rank that fails ends the others.
    ``bindings``: what Slurm binds by the user's own choice.
    """
    words = ["srun", "--overlap", "--export=ALL", "--kill-on-bad-exit=1", "--input=none", f"--ntasks={where.tasks}"]
    if where.even:
        words += [f"--nodes={len(where.nodes)}", f"--ntasks-per-node={where.counts[0]}", "--distribution=block"]
        words += [f"--nodelist={','.join(where.nodes)}"] if len(where.nodes) < len(job.nodes) else []
    else:
        words += ["--distribution=arbitrary", f"--nodelist={hosts}"]
    cpus = dict(zip(job.nodes, job.cpus))
    if any(count > cpus.get(node, count) for node, count in zip(where.nodes, where.counts)):
        words.append("--overcommit")
    words += gpus_of_step(job, where, bindings)
    words += [] if options.no_label or where.tasks == 1 else ["--label"]
    binds = {"gpu": options.gpu_bind, "cpu": options.cpu_bind, "mem": options.mem_bind}
    words += [f"--{kind}-bind={value}" for kind, value in binds.items() if value]
    return [*words, *options.srun, "/bin/sh", "-c", _BOOT, "gpuspawner-run", *options.command]


def without_own_binding(words: Sequence[str], bindings: Sequence[str]) -> list[str]:
    """The command line with ``--cpu-bind=none``, unless the user decides on CPUs: the ranks bind themselves."""
    return list(words) if "cpu" in bindings else [words[0], "--cpu-bind=none", *words[1:]]
