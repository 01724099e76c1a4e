"""What a job asks of Slurm, as an admin writes it."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, model_validator

from jupyterhub_gpuspawner.reservation import Reservation, as_rule
from jupyterhub_gpuspawner.schema import Constraint, ExtraLine, Frozen, Lines, Memory, Name, Names, Time, whole


class Resources(Frozen):
    """What a job asks of Slurm. Every field may be left out: then the site's default holds."""

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
    cpus: Annotated[int, whole(1)] | None = None
    """CPUs, as Slurm counts them (``--cpus-per-task``)."""
    memory: Memory | None = None
    """Memory in MiB, or with K, M, G or T; 0 is all of the node's."""
    time: Time | None = None
    """Wall time in sbatch's forms (a bare number counts minutes), or UNLIMITED. Kept in seconds."""
    account: Name | None = None
    """Account to charge."""
    qos: Name | None = None
    """Quality of service."""
    reservation: Annotated[Reservation | None, BeforeValidator(as_rule)] = None
    """A name, a pattern with strftime(3) codes such as ``ml-hpc-%u``, or a table by ISO date, with ``default``."""
    constraint: Constraint | None = None
    """Node features, in Slurm's words."""
    exclusive: bool | None = None
    """The whole node."""
    extra: Annotated[tuple[ExtraLine, ...], Lines] = ()
    """Further sbatch options, one line each, such as ``--gres-flags=enforce-binding``."""

    @model_validator(mode="after")
    def _gpus_or_shards(self) -> Resources:
        if self.gpus and self.shards:
            raise ValueError("gpus and shards exclude each other: a shard is a share of a GPU")
        return self
