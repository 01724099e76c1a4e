"""The admin's settings for what is kept of nodes: ``c.GPUFleet``."""

from __future__ import annotations

from traitlets.config import Configurable

from jupyterhub_gpuspawner.hub.site.bounded import Count


class GPUFleet(Configurable):
    """What the hub keeps of its servers' reports, by node: no user's name and no server's."""

    keep_days = Count(
        90,
        low=0,
        high=3650,
        config=True,
        help="""Days for which the hub keeps what it knows of a node, and of each grant, after the last report.
        0: nothing is kept, and `gpuspawner fleet` and the cluster's page *Health* are empty.""",
    )
