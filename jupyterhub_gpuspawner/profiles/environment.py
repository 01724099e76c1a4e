"""What a job sets up before the server starts: modules, Python environment or container, variables, shell lines."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, field_validator

from jupyterhub_gpuspawner.profiles.schema import (
    BadValue,
    Bind,
    Duration,
    Folder,
    Frozen,
    Image,
    Lines,
    ModuleName,
    OneOrMany,
    PythonHome,
    ShellLine,
    Text,
    name_former,
    whole,
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
                raise BadValue(rule, text=f"{name} {rule}")
        return value


# How the launcher places a server on its node, as set by a profile; the values are those of the launch plan.

CLAIM_FOLDER = "/var/tmp"  # noqa: S108 - what is in it is guarded
"""Folder for the locks by which servers claim GPUs (``placement.claim``): shared by all jobs of a node, which /tmp and
/dev/shm are not if they are private to each job."""


def policy_in_use(policy: object) -> object:
    """The policy, or the one that has taken the place of an earlier version's."""
    if policy != "single-numa-node":
        return policy
    name_former("single-numa-node", "is no longer a placement policy. In use: restricted, which was the same.")
    return "restricted"


class PlacementRules(Frozen):
    """Placement of a server on its node. A field that is left out has the site's setting."""

    former: ClassVar[dict[str, str]] = {"memory_policy": "c.GPUSlurmSpawner.memory_policy"}

    policy: Annotated[Literal["none", "best-effort", "restricted"], BeforeValidator(policy_in_use)] | None = None
    """How strictly GPUs, CPUs and memory must be near each other; ``restricted`` is requested from Slurm."""
    claim: Annotated[int, whole(1, 1024)] | None = None
    """GPUs that the server claims on its node; for clusters where Slurm allocates none or servers share them."""


# More time for a running server, as a profile allows it.


class Extend(Frozen):
    """How often a user may extend a running server, which adds to its job's time limit."""

    by: Duration
    """The time that is added each time, in full minutes, at most ``24h``. Less is added where a bound of the cluster
    comes first. Kept in seconds."""
    times: Annotated[int, whole(1, 100)] = 1
    """How often, from start to end of a server."""

    @field_validator("by")
    @classmethod
    def _in_minutes(cls, value: int) -> int:
        if value % 60 or not 60 <= value <= 86400:
            raise BadValue("must be a number of full minutes, from 1min to 24h")
        return value
