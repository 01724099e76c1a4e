"""A hub with an extension that offers one profile for an occasion."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from traitlets.config import Config

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extension import Extension
from jupyterhub_gpuspawner.hub.extension import HubExtension, ProfilesOf
from jupyterhub_gpuspawner.hub.extensions import HubExtensions, Part
from jupyterhub_gpuspawner.hub.site.state import KEY
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.profiles.offered import Occasion, Offered
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles

PROFILES = [
    {"display_name": "Test", "slug": "test", "kind": "local"},
    {"display_name": "Usual", "slug": "usual", "kind": "local", "default": True},
]
(LESSON,) = parse_profiles([{"display_name": "A lesson", "slug": "course-lesson", "kind": "local"}])
OCCASION = Occasion("lesson", "A lesson", "course-lesson")
FAULT = ConfigError("the other lesson has no sessions")


async def refresh(_spawner: Any) -> None:
    """Nothing is read."""


LESSONS = ProfilesOf(
    offered=lambda spawner: [Offered(LESSON, OCCASION, base="usual", rank=1)] if spawner.user.name == "train1" else [],
    refresh=refresh,
    errors=lambda _spawner: [FAULT],
    refusal=lambda spawner, slug: f"{spawner.user.name} takes no lessons." if slug == LESSON.slug else "",
    occasion=lambda _settings, slug: OCCASION if slug == LESSON.slug else None,
    started_for_others="a lesson that you give",
)
"""A lesson for train1."""


def offering(*profiles_of: ProfilesOf) -> dict[str, Any]:
    """The settings of a hub with an extension for each of these."""
    extensions = HubExtensions()
    extensions.parts = tuple(
        Part(Extension(f"lessons{number or ''}", "Lessons."), HubExtension(profiles_of=offers))
        for number, offers in enumerate(profiles_of)
    )
    return {KEY: extensions.state}


def spawner_for(name: str, *profiles_of: ProfilesOf) -> GPUProfilesSpawner:
    """The spawner of a user of such a hub."""
    user = SimpleNamespace(name=name, groups=[], settings=offering(*profiles_of), spawners={})
    return GPUProfilesSpawner(profiles=PROFILES, user=user, config=Config())
