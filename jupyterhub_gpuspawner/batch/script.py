"""Render a checked request as a batch script. Pure; ``gpuspawner show`` prints the result.

Every value of a ``#SBATCH`` line has already passed its own grammar. Here it is checked once more: a value that could
end its line raises ValueError. The user's token is not in the script, but in the environment of sbatch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from jupyterhub_gpuspawner.batch.shell import (
    AT_EXIT,
    before_sites_lines,
    call,
    find_python,
    in_container,
    lines,
    own_log,
    prologue_lines,
    report_failure,
    setup_lines,
    srun_cpus,
    unpack,
)
from jupyterhub_gpuspawner.profiles.resolve import JobRequest
from jupyterhub_gpuspawner.profiles.resources import Resources, options_in_line
from jupyterhub_gpuspawner.profiles.sections import ServerCommand
from jupyterhub_gpuspawner.units import format_memory
from jupyterhub_gpuspawner.wire.documents import LaunchPlan

PLAIN = re.compile(r"[A-Za-z0-9_.:/,+=%@()*&|\[\]!~^-]*", re.ASCII)


def render(
    request: JobRequest,
    *,
    launcher: bytes,
    plan: LaunchPlan,
    command: ServerCommand,
    tag: str,
    log_path: str,
    log_folder: str = "",
    job_name: str,
    chdir: str,
    before_server: Sequence[str] = (),
    prologue: str = "",
    epilogue: str = "",
    gpus_option: str = "gres",
) -> str:
    """Render the whole batch script; raises ValueError if a value is not one printable line.

    ``log_path`` is where Slurm writes the log, and ``log_folder`` where the job then moves it; empty: it stays.
    ``before_server`` are lines of our own; ``prologue`` and ``epilogue`` are the admin's, run before and after the
    server. ``gpus_option``: ``gres`` or ``gpus``. A job on one node asks for its GPUs with this option of sbatch; one
    on several nodes always with ``--gres``, as ``--gpus`` would be the sum of all its nodes, and Slurm may distribute
    that unevenly.
    """
    environment = request.environment
    server = in_container(environment, command, gpu=bool(request.resources.gres or request.placement.claim))
    head = [
        "#!/bin/bash -l" if environment.login_shell else "#!/bin/bash",
        f"# A JupyterHub server, profile {_printable(request.profile.slug)}. Written by jupyterhub-gpuspawner.",
    ]
    first = {"job-name": job_name, "comment": tag, "output": log_path, "chdir": chdir, "export": "ALL"}
    head += [f"#SBATCH {option(name, value)}" for name, value in first.items()]
    head += ["#SBATCH --no-requeue"]  # a server that lost its node has lost its work; its user decides what comes next
    head += [f"#SBATCH {option}" for option in options(request.resources, plan.policy, gpus_option)]
    setup, before = "\n".join(setup_lines(environment)), prologue_lines(prologue)
    parts = [
        "\n".join(head),
        report_failure(),
        before_sites_lines() if environment.setup or before or epilogue else "",
        own_log(log_path, log_folder) if log_folder else "",
        _section("The profile's environment", setup),
        srun_cpus(one_task=bool(_one_task(request.resources, plan.policy))),
        _section("Before the server: the site's own lines", before and f"gpuspawner_fault=prologue\n{before}"),
        unpack(launcher, plan, at_exit=AT_EXIT),
        find_python(server.python_beside, now=True),
        *before_server,
        _section(
            "The server. Signals are handled after it ends, so that the lines below still run",
            lines("serve", call=call(server.all_words)),
        ),
        _section("After the server: the site's own lines", epilogue),
        'exit "$status"',
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(title: str, text: str) -> str:
    return f"# {title}\n{text.strip()}" if text.strip() else ""


def options(resources: Resources, policy: str, gpus_option: str = "gres") -> Iterator[str]:
    """sbatch options for the requested resources, in the order in which people look for them.

    The number of tasks is not one of them. Without it a job has one task on each node; with ``--ntasks=1`` or
    ``--ntasks-per-node=1`` Slurm distributes the task's cores over the sockets where gres.conf has no ``Cores=``
    (measured; the page "What gres.conf is worth" has the figures). With the policy ``restricted``, which needs
    ``Cores=``, Slurm 24.11 gives a job without it all cores of its GPUs' sockets, so there it is one on
    each node, unless the site's own options count tasks.

    ``gpus_option``: see :func:`render`.
    """
    yield f"--nodes={resources.node_count}"
    wanted = {
        "partition": resources.partition,
        **resources.plain_options,
        "time": resources.time_option,
        "cpus-per-task": resources.cpus,
        "mem": None if resources.memory is None else format_memory(resources.memory),
        **_devices(resources, gpus_option),
    }
    yield from (option(name, value) for name, value in wanted.items() if value is not None)
    if resources.exclusive:
        yield "--exclusive"
    if resources.gres and policy == "restricted":
        yield from (*_one_task(resources, policy), "--gres-flags=enforce-binding")
    yield from (_printable(line) for line in resources.options)


def _one_task(resources: Resources, policy: str) -> tuple[str, ...]:
    """One on each node; not where the site's own options count tasks: on the whole, on a node, or on a GPU."""
    counted = any("tasks" in name for line in resources.options for name, _ in options_in_line(line))
    return (f"--ntasks={resources.node_count}",) if resources.gres and policy == "restricted" and not counted else ()


def _devices(resources: Resources, gpus_option: str) -> dict[str, str | None]:
    if gpus_option == "gpus" and resources.gpus and resources.node_count == 1:
        gpus = f"{resources.gpu_type}:{resources.gpus}" if resources.gpu_type else str(resources.gpus)
        return {"gpus": gpus, "gres": resources.other_gres or None}
    return {"gres": resources.gres_option or None}


def option(name: str, value: str | int) -> str:
    """``--name=value``, quoted for sbatch if the value contains a space or ``#``; raises ValueError if it cannot be."""
    text = _printable(str(value))
    if PLAIN.fullmatch(text):
        return f"--{name}={text}"
    if '"' in text or "\\" in text:
        raise ValueError(f"--{name}: {text!r} contains a quote or a backslash, which sbatch would interpret")
    return f'--{name}="{text}"'


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError(f"{text!r} is not one printable line")
    return text
