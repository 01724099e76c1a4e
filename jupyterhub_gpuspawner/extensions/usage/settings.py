"""The setting of ``c.GPUSlurmSpawner`` about the use of servers."""

from __future__ import annotations

from traitlets import HasTraits

from jupyterhub_gpuspawner.hub.site.slurm_settings import Seconds


class UsageSettings(HasTraits):
    """How often the use of a server is measured."""

    usage_interval = Seconds(
        30.0,
        low=1,
        high=600,
        or_zero=True,
        config=True,
        help="""Seconds between two samples of what a server uses of its GPUs, cores and memory; 0: none are taken.
        A process beside the server takes them, and sends a summary of ten at a time to the hub, which shows the
        last hour.""",
    )
