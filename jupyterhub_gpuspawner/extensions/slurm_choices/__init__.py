"""Options whose choices are what each user has in Slurm: their accounts, partitions, QOS and reservations."""

from __future__ import annotations

from jupyterhub_gpuspawner.extension import Extension

EXTENSION = Extension(
    name="slurm_choices",
    about="Lets people choose among their own accounts, partitions, QOS and reservations, as Slurm lists them.",
    needs=("availability",),
    option_fields=".fields:FIELDS",
    hub=".hub:HUB",
    checks=".checks",
)
