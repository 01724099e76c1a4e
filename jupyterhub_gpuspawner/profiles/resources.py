"""What a job asks of Slurm, as an admin writes it."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, model_validator

from jupyterhub_gpuspawner.profiles.reservation import ReservationRule, as_rule
from jupyterhub_gpuspawner.profiles.schema import (
    BadValue,
    Constraint,
    ExtraLine,
    Frozen,
    Lines,
    Memory,
    Name,
    Names,
    Time,
    merged,
    whole,
)
from jupyterhub_gpuspawner.units import GPU_GRES, parse_gres


class Resources(Frozen):
    """What a job asks of Slurm. A field that is left out has the site's default; ``null`` takes the default away.

    ``gpus``, ``gpu_type`` and ``shards`` are one request (``--gres``): a profile that sets one of them replaces all
    that the site says of GPUs.
    """

    partition: Names | None = None
    """Partition, or several separated by commas."""
    nodes: Annotated[int, whole(1)] | None = None
    """Nodes; the server runs on the first. GPUs, CPUs and memory count for each node."""
    gpus: Annotated[int, whole(0, 1024)] | None = None
    """Whole GPUs, or MIG devices if ``gpu_type`` names a MIG profile."""
    gpu_type: Name | None = None
    """Slurm's type of GPU (``a100``), or a MIG profile (``1g.10gb``); alone it asks for one."""
    shards: Annotated[int, whole(0)] | None = None
    """Shares of GPUs (gres ``shard``)."""
    cpus: Annotated[int, whole(1, 65536)] | None = None
    """CPUs, as Slurm counts them (``--cpus-per-task``)."""
    memory: Memory | None = None
    """Memory in MiB, or with K, M, G or T; 0 is all of the node's."""
    time: Time | None = None
    """Wall time in sbatch's forms (a bare number counts minutes), or UNLIMITED. Kept in seconds."""
    account: Name | None = None
    """Account to charge."""
    qos: Name | None = None
    """Quality of service."""
    reservation: Annotated[ReservationRule | None, BeforeValidator(as_rule)] = None
    """A name, a pattern with strftime(3) codes such as ``ml-hpc-%u``, or a table by ISO date, with ``default``."""
    constraint: Constraint | None = None
    """Node features, in Slurm's words."""
    exclusive: bool | None = None
    """The whole node."""
    extra: Annotated[tuple[ExtraLine, ...], Lines] | None = ()
    """Further sbatch options, one line each, such as ``--gres-flags=enforce-binding``; they follow the site's, and
    ``null`` leaves those out."""

    @model_validator(mode="after")
    def _gpus_or_shards(self) -> Resources:
        if self.gpus and self.shards:
            raise BadValue("gpus and shards exclude each other: a shard is a share of a GPU")
        return self


_GRES = "--gres="


def names_in_gres(line: str) -> tuple[str, ...]:
    """The generic resources that a line of sbatch options asks for; empty where it asks for anything else, too."""
    if not line.startswith(_GRES) or " " in line:
        return ()
    try:
        return tuple(each.name for each in parse_gres(line.removeprefix(_GRES)))
    except ValueError:
        return ()


_GPUS = ("gpus", "gpu_type", "shards")


def over_defaults(said: Resources, defaults: Resources) -> Resources:
    """What profile and choice say over the site's defaults.

    A field that is set, to ``null`` too, replaces the default; lines of ``extra`` follow the site's. The fields of GPUs
    are replaced together, since half of the site's request for GPUs and half of the profile's is neither's; a line of
    the site's that asks for several kinds of them goes, too.
    """
    if defaults.gpus is None and defaults.gpu_type and not defaults.shards:
        defaults = defaults.model_copy(update={"gpus": 1})
    found = merged(defaults, said)
    mine = said.model_fields_set.intersection(_GPUS)
    if mine and found.extra:
        theirs = [line for line in defaults.extra or () if not set(GPU_GRES).isdisjoint(names_in_gres(line))]
        found = found.model_copy(update={"extra": tuple(line for line in found.extra if line not in theirs)})
    if any(getattr(said, name) is not None for name in mine):
        found = found.model_copy(update={name: getattr(said, name) for name in _GPUS})
    elif mine and not found.gpus and not found.shards:  # the type was that of the GPUs which null took away
        found = found.model_copy(update={"gpu_type": None})
    return found
