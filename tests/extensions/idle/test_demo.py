"""The demo's profile that warns of an idle server."""

from __future__ import annotations

from itertools import groupby

from jupyterhub_gpuspawner.demo.run import PROFILES, RIGHTS
from jupyterhub_gpuspawner.demo.simulated_use import PERIOD, simulated_use
from jupyterhub_gpuspawner.demo.slurm_cluster import DEMO_CLUSTER, MACHINES
from jupyterhub_gpuspawner.extensions.idle.fields import IDLE, idle_rule
from jupyterhub_gpuspawner.extensions.usage.node.summary import SAMPLES
from jupyterhub_gpuspawner.placement.topology import load
from jupyterhub_gpuspawner.profiles.files import ProfileFolder

SUMMARY = SAMPLES * 30
"""Seconds between two summaries of use, by the default of `usage_interval`, which is longer than the demo's."""


def test_a_profile_whose_servers_count_as_idle_shows_it() -> None:
    """Its simulated GPUs are at times unused for that long, all of them, and for a whole summary wherever it begins."""
    gpus = [gpu for node in DEMO_CLUSTER.nodes for gpu in load(str(MACHINES / f"{node.machine}.json")).gpus]
    profiles = [profile for profile in ProfileFolder(PROFILES, RIGHTS).read().profiles if IDLE.of(profile) is not None]
    assert profiles
    for profile in profiles:
        kind = profile.slurm.gpu_type or ""
        own = [gpu for gpu in gpus if kind in (gpu.mig or gpu.name).lower()][: profile.slurm.gpus]
        unused = [
            not any(simulated_use(gpu.index, None, second, mig=bool(gpu.mig), uuid=gpu.uuid).processes for gpu in own)
            for second in range(2 * PERIOD)
        ]
        longest = max((len(list(run)) for is_unused, run in groupby(unused) if is_unused), default=0)
        assert longest >= max(idle_rule(IDLE.of(profile)).gpu or 0, 2 * SUMMARY)
