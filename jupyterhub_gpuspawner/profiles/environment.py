"""What a job sets up before the server starts: modules, Python environment or container, variables, shell lines."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from jupyterhub_gpuspawner.profiles.schema import (
    BadValue,
    Bind,
    Folder,
    Frozen,
    Image,
    Lines,
    ModuleName,
    OneOrMany,
    PythonHome,
    ShellLine,
    Text,
)

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_OWNED = {
    "CUDA_VISIBLE_DEVICES": "the launcher sets it to the GPUs that Slurm granted",
    "CUDA_DEVICE_ORDER": "the launcher sets it to PCI_BUS_ID",
}


class Container(Frozen):
    """The image that the server runs in; the launcher itself runs outside it."""

    image: Image
    """Path of an image file or folder, or an address such as ``docker://...``."""
    binds: Annotated[tuple[Bind, ...], OneOrMany] = ()
    """``SOURCE[:TARGET[:ro]]``, one each."""
    nv: bool | None = None
    """Make the node's NVIDIA driver available (``--nv``); default: if the job asks for a GPU."""
    runtime: Literal["apptainer", "singularity"] = "apptainer"
    """The command that runs it."""


def _as_container(value: Any) -> Any:
    return {"image": value} if isinstance(value, str) else value


class Environment(Frozen):
    """What is set up in the job, in this order, before the server starts."""

    login_shell: bool = True
    """Run the script with ``bash -l``, so that the site's profile, which defines ``module``, is read."""
    module_use: Annotated[tuple[Folder, ...], OneOrMany] = ()
    """Folders for ``module use``."""
    modules: Annotated[tuple[ModuleName, ...], OneOrMany] = ()
    """Names for ``module load``, in order; if one fails, the job ends with an error that names it."""
    conda: PythonHome | None = None
    """A conda environment's name or path."""
    venv: PythonHome | None = None
    """A virtual environment's path."""
    container: Annotated[Container | None, BeforeValidator(_as_container)] = None
    """An Apptainer image: its path alone, or a table."""
    variables: dict[str, Text] = Field(default_factory=dict)
    """Variables to export, each one line."""
    setup: Annotated[tuple[ShellLine, ...], Lines] = ()
    """Shell lines of the admin, inserted into the script unchanged."""

    @field_validator("variables")
    @classmethod
    def _allowed(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if _VARIABLE.fullmatch(name) is None:
                raise BadValue("is not a valid variable name: use letters, digits and _, and no digit first", name)
            if name in _OWNED:
                raise BadValue(f"{name} cannot be set by a profile: {_OWNED[name]}")
            if name.startswith("JUPYTERHUB_"):
                rule = "cannot be set by a profile: the hub sets all variables that begin with JUPYTERHUB_"
                raise BadValue(rule, told=f"{name} {rule}")
        return value
