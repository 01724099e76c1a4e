"""What has more memory than a server, in its user's choice: on the card after its end, and in JupyterLab before."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from jupyterhub_gpuspawner.errors import ConfigError, RequestError
from jupyterhub_gpuspawner.extensions.more_memory.larger import Choice, larger
from jupyterhub_gpuspawner.hub.choose.offer import fields_set
from jupyterhub_gpuspawner.hub.extension import HubExtension, Place, ServerPart, WithServer
from jupyterhub_gpuspawner.hub.job.ending import Ending
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.server import Server, ServerState, kept_with, with_profiles
from jupyterhub_gpuspawner.hub.web.handlers import as_query
from jupyterhub_gpuspawner.profiles.option import ProfileOption
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.job import End
from jupyterhub_gpuspawner.words import memory

FRESH_SECONDS = 3600.0
"""For how long the answer for a running server holds; profiles seldom change, and JupyterLab asks each minute."""
ENDED_SECONDS = 300.0
"""The same for one that has ended: pages of courses read all servers every other second, and each profile's every
choice takes its time."""


@dataclass(frozen=True)
class Proposal:
    """A choice with more memory."""

    name: str = ""
    """The profile's; empty: none has more."""
    memory: str = ""
    """Such as ``64 GiB``, or ``all memory of a node``."""
    query: str = ""
    """That of the form, filled in with the choice."""
    gpus: bool = False
    """The server had GPUs, and so has the choice."""
    server: str = ""
    """The server's name."""


def proposal(spawner: GPUProfilesSpawner, memory_mib: int | None) -> Proposal | None:
    """What its user may choose that has more memory than the server had; None where that is not known.

    ``memory_mib`` is what its job had on a node, where Slurm has said it.
    """
    options = {name: str(value) for name, value in spawner.user_options.items() if isinstance(value, (str, int, float))}
    try:
        offers = spawner.offers()

        def resources_of(options: Mapping[str, str]) -> Resources:
            return spawner.request_of(offers, options).resources

        wanted, profiles = resources_of(options), [offer.profile for offer in offers]
        choice = larger(wanted, memory_mib or wanted.memory or 0, choices(profiles, options, resources_of))
    except (ConfigError, RequestError):  # its profile is no longer offered, or no profile can be read
        return None
    if not (memory_mib or wanted.memory):
        return None
    gpus = bool(wanted.gres)
    if choice is None:
        return Proposal(gpus=gpus, server=spawner.name)
    amount = memory(choice.resources.memory) if choice.resources.memory else "all memory of a node"
    return Proposal(choice.name, amount, as_query(choice.options), gpus, spawner.name)


def choices(
    offered: Iterable[Profile], last: Mapping[str, str], resources_of: Callable[[Mapping[str, str]], Resources]
) -> Iterator[Choice]:
    """Each profile for Slurm, and with each value of its options that sets the memory; ``last`` gives other options.

    ``resources_of`` user options are what their job requests; RequestError: they are not allowed.
    """
    for profile in (profile for profile in offered if profile.kind == "slurm"):
        own = dict(last) if last.get("profile") == profile.slug else {"profile": profile.slug}
        values = [
            {name: value} for name, option in profile.profile_options.items() for value in _values_of_memory(option)
        ]
        for changed in ({}, *values):
            with suppress(RequestError):
                options = {**own, **changed}
                yield Choice(profile.display_name, options, resources_of(options))


def _values_of_memory(option: ProfileOption) -> list[str]:
    """The values of an option that sets the memory; of a range the largest."""
    if "slurm.memory" not in fields_set(option):
        return []
    return [*option.choices, *([str(option.range.max)] if option.range is not None else [])]


class MoreMemory(WithServer):
    """What has more memory than a running server."""

    proposal: Proposal | None = None
    _current_until = 0.0
    """In seconds of the monotonic clock."""
    _after: tuple[Ending, float, Proposal | None] | None = None
    """Of which ending, until when it holds, and what may be chosen then."""

    async def refresh(self, patience: float) -> None:  # noqa: ARG002 - nothing is waited for
        """Look it up, where that was long ago."""
        profiles = with_profiles(self.spawner)
        if profiles is not None and time.monotonic() >= self._current_until:
            self._current_until = time.monotonic() + FRESH_SECONDS
            self.proposal = proposal(profiles, None)

    def after(self, profiles: GPUProfilesSpawner, ending: Ending) -> Proposal | None:
        """What may be chosen after this ending, whose job ran out of memory; None where that is not known."""
        if self._after is None or self._after[0] != ending or time.monotonic() >= self._after[1]:
            memory_mib = ending.job.memory_mib if ending.job is not None else None
            self._after = ending, time.monotonic() + ENDED_SECONDS, proposal(profiles, memory_mib)
        return self._after[2]

    def forget(self) -> None:
        """The server has ended."""
        self.proposal, self._current_until = None, 0.0


def parts_of(spawner: Any, server: Server) -> Iterator[ServerPart]:
    """Of a server that runs what JupyterLab says in its warning; of one that ran out of memory what to choose."""
    profiles, ending = with_profiles(spawner), server.ending
    with_server = kept_with(spawner, MoreMemory)
    if server.state is ServerState.RUNNING:
        shown = with_server.proposal if with_server is not None else None
        if shown is not None and shown.name:
            yield ServerPart("more_memory", document={"more_memory": f"{shown.name} can have more: {shown.memory}."})
    elif profiles is not None and not server.active and ending is not None and ending.job is not None:
        of_memory = ending.job.end is End.OUT_OF_MEMORY
        shown = (with_server or MoreMemory(profiles)).after(profiles, ending) if of_memory else None
        if shown is not None:
            yield ServerPart("more_memory", Place.AFTER, "more_memory_card.html", shown, version=repr(shown))


HUB = HubExtension(with_server=MoreMemory, parts_of=parts_of)
