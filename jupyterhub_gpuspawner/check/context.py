"""What every check is given: the configuration, the profiles, and Slurm's answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import datetime

    from jupyterhub_gpuspawner.cluster.snapshot import ClusterSnapshot
    from jupyterhub_gpuspawner.errors import SlurmOutputError, SlurmUnavailable
    from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
    from jupyterhub_gpuspawner.profiles.profile import Profile
    from jupyterhub_gpuspawner.profiles.resources import Resources
    from jupyterhub_gpuspawner.site.configuration import Site
    from jupyterhub_gpuspawner.site.people import People
    from jupyterhub_gpuspawner.slurm.client import SlurmClient


@dataclass(frozen=True)
class Options:
    """What the command line asks for beyond the usual checks."""

    user: str = ""
    """A user whose jobs are tried, without submitting them."""
    groups: tuple[str, ...] = ()
    """JupyterHub groups of that user."""
    people: int = 0
    """How many people would start at once; 0: not asked."""
    profile: str = ""
    """The only profile to try, and to count the seats of; empty: each."""
    submit: bool = False
    """Submit one small job of the user in each partition, and look at its node."""


DEFAULTS = Options()
"""Nothing beyond the usual checks."""


@dataclass(frozen=True)
class Context:
    """A site at one moment."""

    site: Site
    spawner: Any
    """The spawner of a user ``nobody``."""
    slurm_site: GPUSlurmSpawner
    """A spawner with the settings of all Slurm servers."""
    client: SlurmClient
    profiles: tuple[Profile, ...]
    """None in a hub without profiles."""
    defaults: Resources
    """The site's defaults for Slurm jobs."""
    people: People
    """JupyterHub's users and groups, as far as they are known."""
    now: datetime
    """With a time zone."""
    version: str = ""
    """Slurm's."""
    snapshot: ClusterSnapshot | None = None
    """None if Slurm did not answer, or not so that it can be read; then :attr:`slurm_error` says why."""
    slurm_error: SlurmUnavailable | SlurmOutputError | None = None
    options: Options = DEFAULTS
