"""Render an admin's own ``batch_script``, as in batchspawner: ``req_*`` values by name, and ``{cmd}``.

Options that current Slurm no longer accepts are corrected, each with a sentence for the log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from types import MappingProxyType
from typing import Any

from jinja2 import TemplateError, meta
from jinja2.sandbox import SandboxedEnvironment

from jupyterhub_gpuspawner.batch.script import PLAIN, option
from jupyterhub_gpuspawner.batch.shell import (
    AT_EXIT,
    before_sites_lines,
    call,
    find_python,
    in_container,
    report_failure,
    setup_lines,
    srun_cpus,
    unpack,
)
from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.profiles.resources import SBATCH_OPTIONS, Environment
from jupyterhub_gpuspawner.profiles.schema import Written
from jupyterhub_gpuspawner.profiles.sections import ServerCommand
from jupyterhub_gpuspawner.slurm.sbatch_options import Option, written_options
from jupyterhub_gpuspawner.units import format_memory, format_walltime
from jupyterhub_gpuspawner.wire.documents import LaunchPlan

WHERE = "batch_script"
SHELL = ("prologue", "epilogue")
"""Variables with the admin's own shell lines."""
_REQUESTS = frozenset(["gres", "memory", "ngpus", "nnodes", "nprocs", "options", "partition", "runtime"])
_LINES = _REQUESTS.union(SBATCH_OPTIONS.values(), ["homedir", "keepvars", "username"])
"""Variables that are one printable line. A site's own have the values that it gives them."""
_REQUESTED = {
    "gres": ("gres", "gpus", "gpus-per-node", "gpus-per-task", "tres-per-task"),
    **{field: (name,) for name, field in SBATCH_OPTIONS.items()},
}
"""Variables that a profile may set and a template may omit, with the options that request them."""
_BRACES = "Write $HOME without braces, or the template for jinja2, as {{ partition }}, where ${HOME} needs nothing."
_SBATCH_MEMORY = re.compile(r"\d+[KMGT]?B?", re.ASCII | re.IGNORECASE)
NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})
_SAFE = re.compile(r"[\w.:/,+=@%-]*")


def is_for_jinja(template: str) -> bool:
    """Whether batchspawner fills in the template by jinja2, and not by ``str.format``."""
    return "{{" in template or "{%" in template


def names_in(template: str) -> frozenset[str]:
    """The variables that a template names; raises ValueError or TemplateError if it is not valid."""
    if is_for_jinja(template):
        return frozenset(meta.find_undeclared_variables(SandboxedEnvironment().parse(template)))
    fields = [(name, form) for _, name, form, _ in Formatter().parse(template) if name is not None]
    return frozenset(re.split(r"[.[]", name)[0] for name, _ in fields).union(
        *(names_in(form or "") for _, form in fields)
    )


def is_safe(value: object) -> bool:
    """Whether a value can add no line and no command, wherever a template puts it."""
    if isinstance(value, str):
        return _SAFE.fullmatch(value) is not None
    if isinstance(value, Mapping):
        return all(map(is_safe, [*value, *value.values()]))
    return (
        all(map(is_safe, value)) if isinstance(value, list | tuple) else value is None or isinstance(value, int | float)
    )


@dataclass(frozen=True)
class Rendered:
    """A script made from a template, and a sentence for each correction."""

    script: str
    notes: tuple[str, ...] = ()


def render_template(
    template: str,
    variables: Mapping[str, Any],
    *,
    launcher: bytes,
    plan: LaunchPlan,
    command: ServerCommand,
    tag: str,
    before_server: Sequence[str] = (),
    environment: Environment | None = None,
    job_name: str = "",
    options: Mapping[str, Any] = NO_OPTIONS,
) -> Rendered:
    """Fill in an admin's own template; raises ConfigError if it is not valid.

    If ``{{`` or ``{%`` occurs, the template is rendered by jinja2 (sandboxed), in which a name without a value is
    empty, otherwise by ``str.format``, as in batchspawner. ``{cmd}`` calls the launcher; the lines that unpack it, set
    up the profile's ``environment``, and the lines ``before_server``, are inserted before the first command. The tag is
    always added; ``--job-name``, ``--nodes=1``, ``--chdir`` (the user's home) and ``--export=ALL`` are added unless the
    template has such options. ``options`` are a user's own, in place of the variables of their names: only those that
    are safe.
    """
    if environment is not None:
        command = in_container(environment, command, gpu=bool(variables.get("gres") or plan.choose))
    for name in _LINES & variables.keys():
        value = variables[name]
        if not value.isprintable():
            raise ConfigError(f"the value of {name}, {value!r}, is not one printable line", where=WHERE)
    words = call(command.all_words, in_quotes=True)
    text = _filled(template, {**variables, **options, "tag": tag, "cmd": words})
    lines = text.split("\n")
    if not any(words in line for line in lines if not line.lstrip().startswith("#")):
        if "{cmd}" in text:
            raise ConfigError("for jinja2, which {{ or {% asks for, {cmd} is no variable.", where=WHERE, hint=_BRACES)
        raise ConfigError(
            "the template has no {cmd} outside of its comments.",
            where=WHERE,
            hint="Put {cmd} on the line where jupyterhub-singleuser is to start.",
        )
    unknown = sorted(names_in(template) - {*variables, *options, "tag", "cmd"})
    notes = [f"{name} has no value, and is empty wherever the template names it." for name in unknown]
    if re.search(rf"^([^'\"\n]*([;&|({{]|\b(then|do|else)\b))?\s*exec\b.*{re.escape(words)}", text, re.MULTILINE):
        notes.append("exec before {cmd} leaves the launcher's folder behind on the node: write {cmd} without it.")
    in_bash = "bash" in lines[0] or not lines[0].startswith("#!")
    if not in_bash and any(_TRAP.match(line) and AT_EXIT not in line for line in lines):
        notes.append(f"trap ... EXIT replaces the launcher's, which removes its folder: call {AT_EXIT} in yours, too.")
    first = next(at for at, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#"))
    head, there = _repaired(lines[:first], tag, notes)
    at = 1 if head and head[0].startswith("#!") else 0
    if job_name and "job-name" not in there:
        head[at:at] = [f"#SBATCH {option('job-name', job_name)}"]
    added = [*_added(there, variables, plan.policy, tag, notes)]
    head[at:at] = [f"#SBATCH {option}" for option in added]
    block = [
        report_failure(),
        before_sites_lines(),
        unpack(launcher, plan, at_exit=AT_EXIT),
        srun_cpus(one_task=any(option.startswith("--ntasks=") for option in added)),
        *(setup_lines(environment) if environment is not None else ()),
        find_python(command.python_beside, now=False),
        *before_server,
        "export GPUSPAWNER_PYTHON GPUSPAWNER_LAUNCHER GPUSPAWNER_PLAN",  # {cmd} may be in quotes, or in a file
        "gpuspawner_fault=script",
    ]
    shebang = [] if at else ["#!/bin/bash"]
    return Rendered("\n".join([*shebang, *head, *block, "", *lines[first:]]).rstrip("\n") + "\n", tuple(notes))


_TRAP = re.compile(r"\s*trap\s+(?!-).*\s(EXIT|0)\b")


MEMORY_UNIT = re.compile(r"\bmemory\b[^{}]*\}+([KMGT])")
"""The unit that follows ``{memory}``."""
HOURS = re.compile(r"\bruntime\b[^{}]*\}+:00:00")
"""``{runtime}`` in hours."""


def memory_variable(template: str, mib: int) -> str:
    """The value of ``{memory}``: as the admin wrote it, or in the unit that follows it in the template."""
    text = mib.text if isinstance(mib, Written) else ""
    unit = MEMORY_UNIT.search(template)
    if unit and text and not text.isdigit():
        number = mib * 1024 / 1024 ** "KMGT".index(unit[1])
        return f"{number:.0f}" if number.is_integer() else format_memory(mib)
    return text if _SBATCH_MEMORY.fullmatch(text) else format_memory(mib)


def runtime_variable(template: str, seconds: int | str) -> str:
    """The value of ``{runtime}``: as the admin wrote it, or in hours where ``:00:00`` follows it in the template."""
    if isinstance(seconds, str):
        return seconds
    text = seconds.text if isinstance(seconds, Written) else ""
    if HOURS.search(template) and not text.isdigit() and not seconds % 3600:
        return str(seconds // 3600)
    return text or format_walltime(seconds)


def _filled(template: str, variables: Mapping[str, Any]) -> str:
    names = ", ".join(sorted(variables))
    try:
        if is_for_jinja(template):
            return SandboxedEnvironment().from_string(template).render(variables)
        return template.format_map(variables)
    except KeyError as error:
        raise ConfigError(
            f"there is no value called {error.args[0]!r}.", where=WHERE, hint=f"{_BRACES} Names are {names}."
        ) from None
    except TemplateError as error:
        line = getattr(error, "lineno", None)
        where = f"{WHERE}, line {line}" if line else WHERE
        raise ConfigError(f"{str(error.message).rstrip('.')}.", where=where, hint=f"Names are {names}.") from None
    except (ValueError, IndexError, AttributeError) as error:
        raise ConfigError(f"the template cannot be filled in: {error}.", where=WHERE, hint=_BRACES) from None


def _repaired(lines: Sequence[str], tag: str, notes: list[str]) -> tuple[list[str], dict[str, str]]:
    """The lines as current Slurm accepts them, without those that have no option left; and the options' values."""
    head: list[str] = []
    there: dict[str, str] = {}
    for line in lines:
        directive, *rest = line.split(maxsplit=1) if line.startswith("#") else [""]  # indented, it is a comment
        if directive == "#SBATCH" and not rest:
            notes.append("An empty #SBATCH line is left out.")
            continue
        try:
            options = [*written_options(rest[0])] if directive == "#SBATCH" else []
        except ValueError:  # sbatch cannot take it apart, and says so itself
            options = []
        mended = [*filter(None, (_mended(option, tag, notes) for option in options))]
        there |= {option.name: option.value for option in mended}
        if mended == options:
            head.append(line)
        elif mended:
            head.append(f"#SBATCH {' '.join(map(_written, mended))}")
    return head, there


def _mended(option: Option, tag: str, notes: list[str]) -> Option | None:
    """The option as current Slurm accepts it; None for one that is left out."""
    if option.name == "comment":
        if option.value not in (tag, tag.partition("#")[0]):  # sbatch reads no further than # either
            notes.append(f"{_written(option)} is left out: the hub uses a job's comment to find the job again.")
        return None
    if option.name in ("uid", "gid"):
        notes.append(f"{_written(option)} is left out: only root may use it, and the job is submitted as its user.")
        return None
    if option.lacks_value:
        notes.append(f"--{option.name} is left out: it has no value.")
        return None
    if option.name == "workdir":
        current = option._replace(name="chdir")
        notes.append(f"{_written(option)} is replaced by {_written(current)}, the option's current name.")
        return current
    return option


def _written(option: Option) -> str:
    return option_word(option.name, option.value) if option.value and len(option.name) > 1 else str(option)


def option_word(name: str, value: str) -> str:
    """``--name=value`` in a line of sbatch's, which takes what follows a backslash as it is, also in quotes."""
    if PLAIN.fullmatch(value):
        return f"--{name}={value}"
    escaped = re.sub(r'(["\\])', r"\\\1", value)
    return f'--{name}="{escaped}"'


def _added(
    there: Mapping[str, str], variables: Mapping[str, Any], policy: str, tag: str, notes: list[str]
) -> Iterator[str]:
    """Options that a server needs and that are not ``there`` in the template."""
    yield option_word("comment", tag)
    nodes = there.get("nodes") or str(variables.get("nnodes") or 1)
    if "nodes" not in there:
        yield f"--nodes={nodes}"
    if "chdir" not in there and variables.get("homedir"):
        yield option_word("chdir", variables["homedir"])
    if "export" not in there:
        yield "--export=ALL"  # the default, but required from 26.05 on with --export-file, which the wrapper uses
    for name, options in _REQUESTED.items():
        value = variables.get(name, "")
        if value and there.keys().isdisjoint(options):
            option = option_word(options[0], value)
            notes.append(f"{option} is added: the profile requests it, and the template does not.")
            yield option
    if policy == "restricted" and variables.get("gres") and "gres-flags" not in there:
        notes.append(f"--gres-flags=enforce-binding is added: the policy {policy} requires it.")
        if nodes.isdigit() and not any("tasks" in name for name in there):
            yield f"--ntasks={nodes}"
        yield "--gres-flags=enforce-binding"
