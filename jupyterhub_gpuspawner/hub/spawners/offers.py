"""What one user is offered, and what they may choose: profiles of the configuration, of a folder and of extensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jupyterhub.scopes import Scope

from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError, RequestError
from jupyterhub_gpuspawner.hub.extensions import extensions_for, extensions_of
from jupyterhub_gpuspawner.hub.job.failed_start import database_away, spawn_failure
from jupyterhub_gpuspawner.hub.jupyterhub_compat import START_SERVERS, session_of
from jupyterhub_gpuspawner.hub.site.database import TO_START, takes_changes, written
from jupyterhub_gpuspawner.hub.spawners.shared_folder import SharedFolder
from jupyterhub_gpuspawner.profiles.offered import Occasion, Offered
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.resolve import JobRequest
from jupyterhub_gpuspawner.words import sentence

EXAMPLES = "`gpuspawner files DIR --profiles` writes examples."
NO_PROFILE = "There is no profile to offer."
OFFER_PROFILES = (
    "Set c.GPUProfilesSpawner.profiles, or put files with profiles into c.GPUProfilesSpawner.profiles_dir; a "
    "hub without profiles sets c.JupyterHub.spawner_class = 'gpu-slurm'; " + EXAMPLES
)


@dataclass(frozen=True)
class ProfileSource:
    """The profiles that a hub offers: those of its configuration, then those of its folder."""

    configured: Sequence[object]
    """Profiles of the configuration, as the admin wrote them."""
    folder: SharedFolder | None = None
    setting: str = "profiles"
    """The setting with the configured profiles, for paths in errors."""
    extensions: frozenset[str] | None = None
    """The extensions whose fields a profile may have; None: all that are installed."""

    def configured_profiles(self) -> tuple[Profile, ...]:
        """Return the profiles of the configuration; raises ConfigError, which names the profile and the field."""
        return parse_profiles(self.configured, name=self.setting, extensions=self.extensions) if self.configured else ()

    def check_folder(self, setting: str) -> None:
        """Raise ConfigError if the folder, which ``setting`` names, is missing; or, without one, if nothing is offered.

        A folder may be filled later.
        """
        if self.folder is None:
            self.profiles()
            return
        self.folder.first_reading()
        if self.folder.last.missing:
            raise ConfigError(
                f"there is no folder {self.folder.path!r}.",
                where=setting,
                hint="Create it, and put YAML files with profiles into it; " + EXAMPLES,
            )

    def profiles(self) -> tuple[Profile, ...]:
        """Return all profiles, those of the folder as last read.

        Raises ConfigError for a fault in a configured profile, and if there is no profile at all. A fault in a file of
        the folder affects that file only: it is left out, or kept at its last good version.
        """
        profiles = self.configured_profiles()
        if self.folder is not None:
            profiles += self.folder.besides({profile.slug for profile in profiles})
        if profiles:
            return profiles
        hint = OFFER_PROFILES
        if self.folder is not None and self.folder.errors:
            hint = f"In {self.folder.path}: {self.folder.errors[0]}"
        raise ConfigError(NO_PROFILE, hint=hint)

    async def refresh(self) -> None:
        """Read the folder anew, if there is one."""
        if self.folder is not None:
            await self.folder.refresh()

    def errors(self) -> tuple[ConfigError, ...]:
        """Return the faults in files of the folder; their last good versions are offered."""
        return self.folder.errors if self.folder is not None else ()


# What extensions offer one user beside these.


def offered_beside(spawner: Any) -> tuple[Offered, ...]:
    """What extensions offer a spawner's user now."""
    return tuple(extensions_for(spawner).all_of("profiles_of", Offered, lambda adds: adds.profiles_of.offered, spawner))


def errors_beside(spawner: Any) -> tuple[ConfigError, ...]:
    """Why extensions do not offer what they should; ``spawner`` is anybody's."""
    return tuple(
        extensions_for(spawner).all_of("profiles_of", ConfigError, lambda adds: adds.profiles_of.errors, spawner)
    )


def refuse_what_is_for_others(spawner: Any, slug: object, offered: Sequence[Offered]) -> None:
    """Raise RequestError where ``slug`` is a profile that an extension offers to others, with how to get it."""
    if not isinstance(slug, str) or any(offer.profile.slug == slug for offer in offered):
        return
    refusals = extensions_for(spawner).each("profiles_of", lambda adds: adds.profiles_of.refusal, spawner, slug)
    if refusal := next(filter(None, refusals), ""):
        raise RequestError(refusal, field="profile")


def with_choices(spawner: Any, offer: Offered) -> Offered:
    """The same with the choices that options have for the spawner's user."""
    return replace(offer, profile=extensions_for(spawner).with_choices(spawner, offer.profile))


def refuse_choices(request: JobRequest, refused: Mapping[str, Mapping[str, str]]) -> None:
    """Raise RequestError where one of the values of a request's options is refused; see :class:`.HubExtension`."""
    for name, option in request.profile.profile_options.items():
        value = request.options.get(name, option.initial(request.profile.slurm))
        if reason := refused.get(name, {}).get(str(value)):
            raise RequestError(sentence(reason), field=name)


def occasion_of(settings: Mapping[str, Any], slug: str) -> Occasion | None:
    """For what the profile of a server is offered in the hub with these tornado settings; None for a hub's own."""
    occasions = extensions_of(settings).each("profiles_of", lambda adds: adds.profiles_of.occasion, settings, slug)
    return next(occasions, None)


def lead_scopes(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The scopes, filtered by an occasion's group, of those who lead it, such as a course's instructors."""
    adds = (part.adds.profiles_of for part in extensions_of(settings))
    return tuple(offers.lead_scope for offers in adds if offers.lead_scope)


# Applies the user options of one start: JupyterHub's ``apply_user_options``; and who may choose them.


def refusal_of_choice(settings: Mapping[str, Any]) -> str:
    """Why somebody does not choose what is started for another user, in the hub with these tornado settings."""
    adds = (part.adds.profiles_of for part in extensions_of(settings))
    started = [offers.started_for_others for offers in adds if offers.started_for_others]
    if not started:
        return "To choose a profile or options for somebody else, you need the scope admin:servers."
    return (
        f"For somebody else you can start {' or '.join(started)}, and nothing else. To choose a profile or options for "
        "them, you need the scope admin:servers."
    )


async def apply_user_options(spawner: Any, user_options: Mapping[str, object]) -> None:
    """Check the options of form, link or REST, store them normalised, and build the child of a profiles spawner."""
    await spawner.refresh_profiles()
    if not await takes_changes(spawner.orm_spawner, TO_START):  # whom a profile is for is read from the database
        raise database_away()
    try:
        request = spawner.resolve(user_options)
        spawner.prepare(request)
    except GPUSpawnerError as error:
        raise spawn_failure(error, server=spawner._log_name, contact=spawner.contact) from error  # noqa: SLF001 - ours
    spawner.user_options = dict(request.options)
    session = session_of(spawner.orm_spawner)
    if session is None:
        return

    def write() -> None:
        spawner.orm_spawner.user_options = dict(request.options)
        session.commit()

    # at once: JupyterHub rolls back at the next request of anybody what a hook that awaits has left uncommitted
    if not await written(session, write, TO_START):
        raise database_away()


def chooses_freely(handler: Any, user_name: str) -> bool:
    """Whether the sender of a request may choose the profile and options of a user's servers.

    They decide what runs as the user, so that is the user alone, and who starts the servers of all users or administers
    this user's. Others can start servers for an occasion, or since one was shared with them.
    """
    requester = handler.current_user
    if requester.kind == "user" and requester.name == user_name:
        return True
    everybody = handler.parsed_scopes.get(START_SERVERS) is Scope.ALL
    return everybody or bool(handler.has_scope(f"admin:servers!user={user_name}"))


def may_start_alone(handler: Any, options: Any) -> bool:
    """Whether these options name, alone, the profile of an occasion whose servers the sender of a request may start."""
    slug = options.get("profile") if isinstance(options, dict) and len(options) == 1 else None
    return isinstance(slug, str) and _may_start(handler, occasion_of(handler.settings, slug))


def refuse_choice_of_others(spawner: Any, request: JobRequest) -> None:
    """Raise RequestError where somebody starts for another user what is not offered for an occasion of theirs.

    A start without a request is the hub's own.
    """
    handler = spawner.handler
    if handler is None or chooses_freely(handler, spawner.user.name):
        return
    if request.offer is None or not _may_start(handler, request.offer.occasion):
        raise RequestError(refusal_of_choice(spawner.user.settings), field="profile")


def _may_start(handler: Any, occasion: Occasion | None) -> bool:
    return occasion is not None and bool(handler.has_scope(f"{START_SERVERS}!group={occasion.group}"))
