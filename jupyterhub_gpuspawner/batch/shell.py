"""The shell lines of a batch script: the profile's environment, the launcher brought to the node, and its call."""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from jupyterhub_gpuspawner.profiles.resources import Environment
from jupyterhub_gpuspawner.profiles.sections import ServerCommand
from jupyterhub_gpuspawner.wire.documents import LaunchPlan

_FOLDER = Path(__file__).with_name("lines")
_PLACE = re.compile("@([A-Z_]+)@")
_FAIL = """\
gpuspawner_fail() { gpuspawner_fault=$1; gpuspawner_subject=$2; echo "gpuspawner: $3" >&2; exit 1; }"""
PYTHONS = "python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9"
"""Names that are searched in the job's PATH, the environment's own Python first."""

AT_EXIT = "gpuspawner_end"
"""The function of :func:`report_failure` that a script runs at its end."""
_LATER_PYTHON = """\
# none yet: use the one that the lines below provide
[ "$GPUSPAWNER_PYTHON" != none ] || GPUSPAWNER_PYTHON=python3"""

_SPECIAL = re.compile(r"[^A-Za-z0-9_@%+=:,./-]")

_SRUN = """\
# Since Slurm 22.05, srun does not inherit --cpus-per-task from its job
[ -z "${SLURM_CPUS_PER_TASK:-}" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK"""
_ONE_TASK = """
# The task is for Slurm's choice of cores: programs take these for srun's, and wait for tasks that nobody starts
unset SLURM_NTASKS SLURM_NPROCS"""


@cache
def _text(name: str) -> str:
    return _FOLDER.joinpath(f"{name}.sh").read_text("utf-8").rstrip("\n")


def lines(name: str, **values: str) -> str:
    """The lines of a file of ``lines/``, with a value in each place such as ``@PLAN@``; raises KeyError without one."""
    return _PLACE.sub(lambda place: values[place[1].lower()], _text(name))


def setup_lines(environment: Environment) -> list[str]:
    """Shell lines that set up the profile's environment; a step that fails ends the job and says what failed."""
    steps: list[str] = []
    if environment.modules or environment.module_use:
        steps.append(
            "type module >/dev/null 2>&1 || " + _fail("module_command", "", "there is no module command on this node")
        )
    steps += [
        f"module use {shlex.quote(folder)} || " + _fail("module_path", folder, f"module use {folder} failed")
        for folder in environment.module_use
    ]
    steps += [
        f"module load {shlex.quote(name)} || " + _fail("module", name, f"module {name} cannot be loaded")
        for name in environment.modules
    ]
    if environment.conda:
        missing = _fail("conda_command", "", "there is no conda command on this node")
        steps.append(f"type conda >/dev/null 2>&1 || {missing}")
        failed = _fail("conda", environment.conda, f"conda environment {environment.conda} cannot be activated")
        steps.append(f'eval "$(conda shell.bash hook)" && conda activate {_path(environment.conda)} || {failed}')
    if environment.venv:
        activate = _path(f"{environment.venv}/bin/activate")
        sentence = f"virtual environment {environment.venv} cannot be activated"
        steps.append(f"source {activate} || " + _fail("venv", environment.venv, sentence))
    steps += [f"export {name}={shlex.quote(value)}" for name, value in environment.variables.items()]
    if any(" || gpuspawner_fail " in step for step in steps):
        steps.insert(0, _FAIL)
    return [*steps, *environment.setup]


def _fail(fault: str, subject: str, sentence: str) -> str:
    return f"gpuspawner_fail {fault} {shlex.quote(subject)} {shlex.quote(sentence)}"


def report_failure() -> str:
    """Lines that have the job report to the hub why it ends before its server has run.

    ``gpuspawner_fault`` is the step that is being taken, one of ``FAULTS`` of
    :mod:`~jupyterhub_gpuspawner.wire.bounds`; it is empty once nothing is to be reported. They precede all
    other lines: the profile's may end the job.
    """
    return lines("report", pythons=PYTHONS, remove=lines("remove"))


def _path(path: str) -> str:
    """Quote a path, except for a leading ``~/``, which is the user's home."""
    if path.startswith("~/"):
        return '"$HOME"/' + shlex.quote(path.removeprefix("~/"))
    return shlex.quote(path)


def in_container(environment: Environment, command: ServerCommand, *, gpu: bool) -> ServerCommand:
    """The server's command, run in the profile's container if it has one. ``gpu``: whether the job requests GPUs."""
    container = environment.container
    if container is None:
        return command
    nv = ("--nv",) if (container.nv if container.nv is not None else gpu) else ()
    bound = (word for folder in (*container.binds, *command.shared) for word in ("--bind", folder))
    return replace(command, words=(container.runtime, "exec", *nv, *bound, container.image, *command.words))


def unpack(launcher: bytes, plan: LaunchPlan, *, at_exit: str = "") -> str:
    """Lines that write launcher and plan to the first folder that can hold them, and remove them when the script ends.

    ``at_exit``: what the script runs at its end, :data:`AT_EXIT`; empty: only the removal.

    TMPDIR, /tmp, /dev/shm and the user's home are tried in this order, by writing. The lines are POSIX shell, since a
    site's own script may be run by sh. The folder's name contains that of the node, so that no other node that shares
    its parent removes it (:mod:`jupyterhub_gpuspawner.node.folder`).
    """
    text = base64.b64encode(launcher).decode("ascii")
    encoded = "\n".join(text[start : start + 120] for start in range(0, len(text), 120))
    unpacked = lines("unpack", plan=shlex.quote(plan.dumps()), launcher=encoded, at_exit=at_exit or "gpuspawner_remove")
    return unpacked if at_exit else f"{lines('remove')}\n{unpacked}"


def find_python(server: str, *, now: bool) -> str:
    """Lines that set ``GPUSPAWNER_PYTHON``, which may lie beside the program ``server``.

    With ``now`` they fail if there is no Python yet, else it may come later.
    If :func:`unpack` found no folder, they keep the launcher in memory.
    """
    found = lines("find_python", server=shlex.quote(server), pythons=PYTHONS)
    return f"{found}\n{lines('require_python') if now else _LATER_PYTHON}\n{lines('hold')}"


KEPT_LOGS = 20
"""Logs of a person that are kept in the folder that jobs make themselves."""


def own_log(log: str, folder: str) -> str:
    """Lines that move the job's log to ``folder``, which they make; ``log`` is its path, with ``%j`` for the job id.

    Slurm opens the log before the script runs, and does not make a folder for it.
    """
    path = '"$SLURM_JOB_ID"'.join(map(shlex.quote, log.split("%j")))
    return lines("own_log", kept=str(KEPT_LOGS), more=str(KEPT_LOGS + 1), log=path, folder=shlex.quote(folder))


def before_sites_lines() -> str:
    """Lines before those of the site, after :func:`report_failure`: a ``trap ... EXIT`` in them does not replace ours.

    A line that fails where ``set -e`` is in force is named. bash alone lets them do that: another shell's ``trap`` is
    left as it is.
    """
    return lines("trap")


def prologue_lines(prologue: str) -> str:
    """The site's ``req_prologue``, of which each line must succeed, as in batchspawner's own script; empty for none."""
    return f"set -euo pipefail\n{prologue.strip()}\nset +euo pipefail" if prologue.strip() else ""


def srun_cpus(*, one_task: bool = False) -> str:
    """Lines that let a job step use all CPUs of its job; ``one_task``: the hub has asked for one on each node."""
    return _SRUN + _ONE_TASK * one_task


def call(command: Sequence[str], *, in_quotes: bool = False) -> str:
    """The command that launches the server; raises ValueError if a word is not printable.

    ``in_quotes``: it may be within single quotes or a here-document, so it has none itself; and in a container, so the
    launcher finds a Python there.
    """
    for word in command:
        if not word.isprintable():
            raise ValueError(f"{word!r} in the server's command is not printable")
    words = " ".join(_SPECIAL.sub(r"\\\g<0>", word) or '""' for word in command) if in_quotes else shlex.join(command)
    start = "/bin/sh" if in_quotes else '"$GPUSPAWNER_PYTHON" -I'
    return f'{start} "$GPUSPAWNER_LAUNCHER" --plan "$GPUSPAWNER_PLAN" -- {words}'
