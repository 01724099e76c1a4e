"""A profile's environment as shell lines, and the command that runs a server inside its container."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jupyterhub_gpuspawner.profiles.environment import Environment

_FAIL = 'gpuspawner_fail() { echo "gpuspawner: $*" >&2; exit 1; }'


def setup_lines(environment: Environment) -> list[str]:
    """Shell lines, none where nothing is set up; each that fails ends the job and names what failed."""
    steps: list[str] = []
    if environment.modules or environment.module_use:
        steps.append("type module >/dev/null 2>&1 || " + _fail("there is no module command on this node"))
    steps += [
        f"module use {shlex.quote(folder)} || " + _fail(f"module use {folder} failed")
        for folder in environment.module_use
    ]
    steps += [
        f"module load {shlex.quote(name)} || " + _fail(f"module {name} cannot be loaded")
        for name in environment.modules
    ]
    if environment.conda:
        failed = _fail(f"conda environment {environment.conda} cannot be activated")
        steps.append(f'eval "$(conda shell.bash hook)" && conda activate {_path(environment.conda)} || {failed}')
    if environment.venv:
        activate = _path(f"{environment.venv}/bin/activate")
        steps.append(f"source {activate} || " + _fail(f"virtual environment {environment.venv} cannot be activated"))
    steps += [f"export {name}={shlex.quote(value)}" for name, value in environment.variables.items()]
    if any(" || gpuspawner_fail " in step for step in steps):
        steps.insert(0, _FAIL)
    return [*steps, *environment.setup]


def _fail(sentence: str) -> str:
    return f"gpuspawner_fail {shlex.quote(sentence)}"


def _path(path: str) -> str:
    """Quoted, but for a leading ``~/``, which is the user's home."""
    if path.startswith("~/"):
        return '"$HOME"/' + shlex.quote(path.removeprefix("~/"))
    return shlex.quote(path)


def in_container(environment: Environment, command: Sequence[str], *, gpu: bool) -> list[str]:
    """The server's command, inside the profile's container if it has one. ``gpu``: whether the job asks for one."""
    container = environment.container
    if container is None:
        return list(command)
    nv = container.nv if container.nv is not None else gpu
    binds = [word for bind in container.binds for word in ("--bind", bind)]
    return [container.runtime, "exec", *(["--nv"] if nv else []), *binds, container.image, *command]
