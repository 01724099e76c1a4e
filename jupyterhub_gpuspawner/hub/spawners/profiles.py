"""The spawner that JupyterHub knows: it offers profiles, and a child spawner of the right kind starts the server.

From wrapspawner it inherits the name, the ``profiles`` setting and the idea of a child. It does not inherit trait
links, saved configuration and the silent fallback to a local process: the child is built from the checked request, and
gets the settings that :mod:`.child` names.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from jupyterhub.utils import maybe_future
from sqlalchemy.exc import SQLAlchemyError
from traitlets import Callable, Enum, List, Type, Unicode, Union, default

from jupyterhub_gpuspawner.courses.course_profile import PREFIX
from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError
from jupyterhub_gpuspawner.hub.ending.failure import database_away, spawn_failure
from jupyterhub_gpuspawner.hub.ending.record import Ending, ending_state, of_profile, stored_ending
from jupyterhub_gpuspawner.hub.jupyterhub_compat import ChildOverrides, LogName, OwnStartTimeout, UserOptions
from jupyterhub_gpuspawner.hub.registered import require_registration
from jupyterhub_gpuspawner.hub.report.reader import ReportError
from jupyterhub_gpuspawner.hub.site.bounded import CheckedTimeouts
from jupyterhub_gpuspawner.hub.site.database import TO_START, TO_STOP, TO_TELL, takes_changes
from jupyterhub_gpuspawner.hub.site.tasks import timeout
from jupyterhub_gpuspawner.hub.spawner_bases import ProfilesSpawner, Spawner
from jupyterhub_gpuspawner.hub.spawners.child import configured_as
from jupyterhub_gpuspawner.hub.spawners.child_factory import CONNECTION, Child, ChildFactory, connection_settings
from jupyterhub_gpuspawner.hub.spawners.course_offers import course_faults, courses_offered, look_at_courses
from jupyterhub_gpuspawner.hub.spawners.inherited_settings import IgnoredSetting, ignored_settings
from jupyterhub_gpuspawner.hub.spawners.local import GPULocalSpawner
from jupyterhub_gpuspawner.hub.spawners.profile_source import ProfileSource, profile_folder
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.hub.spawners.user_options import apply_user_options, refuse_choice_of_others
from jupyterhub_gpuspawner.hub.start.build import site_defaults
from jupyterhub_gpuspawner.hub.start.liveness import status_or_running
from jupyterhub_gpuspawner.hub.text.wait import CONTACT
from jupyterhub_gpuspawner.profiles.files.rights import ALLOWANCES, TRAITS, Rights
from jupyterhub_gpuspawner.profiles.resolve import JobRequest, choice_from_form, resolve

if TYPE_CHECKING:
    from collections import abc
    from collections.abc import AsyncIterator, Mapping

    from jupyterhub_gpuspawner.courses.course_profile import CourseProfile
    from jupyterhub_gpuspawner.profiles.profile import Profile
    from jupyterhub_gpuspawner.wire.documents import NodeReport, PlacementDocument


class GPUProfilesSpawner(LogName, ChildOverrides, OwnStartTimeout, CheckedTimeouts, ProfilesSpawner):
    """Offers profiles of GPU and CPU jobs; the chosen one decides which child spawner starts the server."""

    profiles: List[Any] = List(
        config=True,
        help="""List of profiles: wrapspawner's tuples (display, key, class, dict), pairs (display, dict), or dicts with
        the fields of the reference, which are those of KubeSpawner's `profile_list` with typed `slurm`, `environment`,
        `placement` and `allow`. The forms can be mixed.""",
    )
    profiles_dir = Unicode(
        "",
        config=True,
        help="""Folder of YAML files with further profiles, which is read again when a file changes. Only regular files
        of at most 1 MiB are read; links in it are not followed, but the folder itself may be a link.""",
    )
    profiles_dir_allows: List[str] = List(
        Enum(tuple(ALLOWANCES)),
        config=True,
        help=f"""What files in `profiles_dir` may contain beyond requests to Slurm, the site's modules, texts and
        options. {"; ".join(f"`{word}`: {says}" for word, says in ALLOWANCES.items())}. Except for `local` and `traits`,
        each permission lets the author of a file decide what runs as the user who picks its profile. The only `traits`
        that a file may ever set are {", ".join(f"`{name}`" for name in TRAITS)}. Profiles in the configuration are not
        restricted.""",
    )
    profiles_dir_classes: List[str] = List(
        Unicode(),
        config=True,
        help="""Dotted names of spawner classes that files in `profiles_dir` may use for `kind: other`. A class that
        runs servers as the hub's account, such as JupyterHub's `SimpleLocalProcessSpawner`, gives access to that
        account to anyone who picks the profile.""",
    )
    contact = Unicode(
        CONTACT,
        config=True,
        help="""Whom participants may ask where a server cannot be started, as in "Please contact ...": a name or an
        address, or both, such as `the HPC help desk (hpc-help@example.org)`.""",
    )
    courses_dir = Unicode(
        "",
        config=True,
        help="Folder of YAML files with courses, one for each, which are read again. See `gpuspawner course check`.",
    )
    slurm_spawner_class = Type(GPUSlurmSpawner, GPUSlurmSpawner, config=True, help="Spawner class for Slurm profiles.")
    local_spawner_class = Type(
        GPULocalSpawner, GPULocalSpawner, config=True, help="Spawner class for profiles on the hub's own machine."
    )

    ending: Ending | None = None
    """How the last server ended, or why the last start failed; kept until the next start."""

    last_profile_name = ""  # the display name of the last server's profile, once it has ended
    user_options: Any = UserOptions()
    options_form = Union(
        [Unicode(), Callable()], config=True, help="The form: a string or a callable, as for JupyterHub's Spawner."
    )
    options_from_form = Union(
        [Callable(), Unicode()],
        config=True,
        help="Callable that converts form data to user options, as for JupyterHub's Spawner.",
    )

    default_form: ClassVar[abc.Callable[[Any], abc.Awaitable[str]] | None] = None
    """Renders the form if the admin sets none; :mod:`..registration` provides it."""
    child: Child | None = None
    """What starts the server; None until a profile is chosen."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._children = ChildFactory(self, self._class_of)

    @default("options_form")
    def _default_options_form(self) -> Any:
        return type(self).default_form or ""

    # wrapspawner would set its own static form here
    _options_form_default = _default_options_form

    @default("options_from_form")
    def _default_options_from_form(self) -> Any:
        return choice_from_form

    @default("apply_user_options")
    def _default_apply_user_options(self) -> Any:
        return apply_user_options

    @property
    def source(self) -> ProfileSource:
        """Where the profiles come from; the folder is shared by all servers."""
        rights = Rights(frozenset(self.profiles_dir_allows), frozenset(self.profiles_dir_classes))
        folder = profile_folder(self.profiles_dir, rights) if self.profiles_dir else None
        return ProfileSource(self.profiles, folder, configured_as(self, "profiles"))

    def offered(self) -> tuple[Profile, ...]:
        """Return this hub's profiles, then those of the user's courses, all as last read; raises ConfigError."""
        return (*self.source.profiles(), *(each.profile for each in self.course_profiles()))

    def course_profiles(self) -> tuple[CourseProfile, ...]:
        """Return the courses that the user takes or teaches, as profiles; raises ConfigError."""
        return courses_offered(self)

    async def look_at_profiles(self) -> None:
        """Read the folder of profiles anew, and the courses if that was long ago."""
        await self.source.refresh()
        await look_at_courses(self)

    def profile_errors(self) -> tuple[ConfigError, ...]:
        """Return the faults in files of profiles, whose last good versions are offered, and those in all courses."""
        return (*self.source.errors(), *course_faults(self))

    def groups_of_user(self) -> frozenset[str]:
        """Return the names of the JupyterHub groups of this server's user."""
        return frozenset(group.name for group in self.user.groups)

    def resolve(self, user_options: Mapping[str, object]) -> JobRequest:
        """Return the job request for these user options; raises RequestError or ConfigError."""
        request = resolve(
            self.offered(),
            user_options,
            username=self.user.name,
            groups=self.groups_of_user(),
            server_name=self.name,
            now=datetime.now().astimezone(),
            defaults=site_defaults(self.slurm_site()),
        )
        courses = self.course_profiles() if request.profile.startswith(PREFIX) else ()
        return replace(request, course=next((c.course for c in courses if c.profile.slug == request.profile), ""))

    def prepare(self, request: JobRequest) -> None:
        """Build the child for ``request``; raises ConfigError, and RequestError for what others may not choose."""
        refuse_choice_of_others(self, request)  # here, since an admin may set another apply_user_options
        self._adopt(self._children.for_request(request))

    def hand_down(self) -> None:
        """Give the prepared child what the hub, hooks and group overrides have set on this spawner for its start.

        Raises ConfigError for a group override that is not valid.
        """
        if self.child is not None:
            self._adopt(self._children.hand_down(self.child))

    def setting_of_child(self, name: str) -> object:
        """Return a setting of all Slurm servers; None if there is no such setting."""
        return getattr(self.slurm_spawner_class(config=self.config), name, None)

    def _adopt(self, child: Child | None) -> None:
        self.child = child
        # wrapspawner's names, under which others find them
        self.child_spawner = child.spawner if child is not None else None
        self.child_profile = child.profile if child is not None else ""

    def _class_of(self, kind: str) -> type[Spawner] | None:
        return {"slurm": self.slurm_spawner_class, "local": self.local_spawner_class}.get(kind)

    def slurm_site(self) -> GPUSlurmSpawner:
        """Return a spawner with the settings of all Slurm servers and of no profile; raises ConfigError."""
        return self._children.for_site()

    def slurm_sites(self) -> tuple[GPUSlurmSpawner, ...]:
        """Return :meth:`slurm_site`, and one for each other way in which configured profiles reach Slurm."""
        profiles = (each for each in self.source.configured_profiles() if each.kind == "slurm")
        sites: dict[tuple[str, ...], GPUSlurmSpawner] = {}
        for settings in ({}, *(connection_settings("slurm", each.traits) for each in profiles)):
            site = self._children.for_site(settings)
            sites.setdefault(tuple(getattr(site, name) for name in CONNECTION), site)
        return tuple(sites.values())

    def rehearsal(self, request: JobRequest) -> GPUSlurmSpawner:
        """Return a spawner for a Slurm job that is only tried; a running server is not affected. Raises ConfigError."""
        return self._children.for_trial(request)

    def check(self) -> None:
        """Raise ConfigError for what would fail every start: a configured profile, or a missing folder."""
        self._children.for_site().check()
        source = self.source
        for position, profile in enumerate(source.configured_profiles()):
            where = f"{source.setting}[{position}].traits"
            self._children.build(profile.kind, profile.spawner_class, profile.traits, where=where)
        source.check_folder(configured_as(self, "profiles_dir"))

    def ignored_settings(self) -> tuple[IgnoredSetting, ...]:
        """Return the settings of this hub and of its profiles that have no effect; raises ConfigError."""
        site = self.slurm_site()
        try:
            profiles = self.offered()
        except ConfigError:  # none yet: a folder may be filled later
            profiles = self.source.configured_profiles()
        return ignored_settings(self.config, type(site), type(self), batch_script=site.batch_script, profiles=profiles)

    # --- the spawner contract -------------------------------------------------------------------

    async def start(self) -> Any:
        """Start the child; raises an exception that the hub can show."""
        self.ending = None
        await takes_changes(self.orm_spawner, TO_START)
        try:
            require_registration()
            if self.child_spawner is None:
                async with timeout(self.start_timeout):
                    await self.look_at_profiles()
                self.prepare(self.resolve(self.user_options))
            self.hand_down()
            where = await self._start_child()
        except GPUSpawnerError as error:
            raise spawn_failure(error, server=self._log_name, contact=self.contact) from error
        except SQLAlchemyError as error:
            raise database_away(self.orm_spawner) from error
        finally:  # the hub writes an error or a cancellation to its database before anything else
            noted = await takes_changes(self.orm_spawner, TO_START)
        if not noted:
            raise database_away()
        return where

    async def _start_child(self) -> Any:
        """Start the child; one that does not watch its own time is ended as JupyterHub would end it."""
        starting = maybe_future(self.child_spawner.start())
        limit = None if isinstance(self.child_spawner, OwnStartTimeout) else self.start_timeout
        async with timeout(limit):
            return await starting

    async def stop(self, now: bool = False) -> None:  # noqa: FBT001, FBT002 - JupyterHub's signature
        """Stop the child, and wait until the hub can write that to its database."""
        if self.child_spawner is not None:
            await maybe_future(self.child_spawner.stop(now=now))
        await takes_changes(self.orm_spawner, TO_STOP)

    async def poll(self) -> int | None:
        """Return the child's status, 0 (not running) without a child; None while the hub cannot record its end.

        Also None where the child, which may be another package's, raises an exception: that says nothing of the server.
        """
        return await status_or_running(self._status(), name=self._log_name, log=self.log)

    async def _status(self) -> int | None:
        status: int | None = 0
        if self.child_spawner is not None:
            status = await maybe_future(self.child_spawner.poll())
        return status if status is None or await takes_changes(self.orm_spawner, TO_TELL) else None

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the child's events, once there is a child."""
        while self.child_spawner is None:  # noqa: ASYNC110 - a hook or a certificate may take its time
            await asyncio.sleep(0.2)
        async for event in self.child_spawner.progress():
            yield event

    async def get_url(self) -> str:
        """Return the URL of the server, as the child knows it."""
        asked = self.child_spawner.get_url() if self.child_spawner is not None else super().get_url()
        url: str = await maybe_future(asked)
        return url

    async def move_certs(self, paths: dict[str, str]) -> dict[str, str]:
        """Let the child move the certificates to where its server runs."""
        moving = self.child_spawner.move_certs if self.child_spawner is not None else super().move_certs
        moved: dict[str, str] = await maybe_future(moving(paths))
        return moved

    async def rename(self, old_name: str, new_name: str) -> None:
        """Tell the child that its server has a new name."""
        if self.child_spawner is not None:
            await maybe_future(self.child_spawner.rename(old_name, new_name))

    # --- state: which profile, which kind, what finds the server, and the child's own facts ------------

    def get_state(self) -> dict[str, Any]:
        """Return profile, kind and the child's state; if nothing runs, only how the last server ended."""
        return self.child.get_state() if self.child is not None else ending_state(self.ending)

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the child from stored state, with the settings that its profile has today, if there still is one."""
        self.ending = stored_ending(state)
        try:
            child = self._children.restored(state, self._profile_of(state))
        except ConfigError as error:
            self.log.error("The stored server of %s cannot be restored: %s", self._log_name, error)  # noqa: TRY400
            return
        if child is not None:
            self._adopt(child)

    def _profile_of(self, state: Mapping[str, Any]) -> Profile | None:
        """Return the profile of a stored server as it is today; None if it is gone or of another kind."""
        if not state.get("profile"):
            return None
        stored = (state["profile"], state.get("kind"), state.get("class", ""))
        try:
            profiles = self.source.profiles()
        except ConfigError:  # reported where profiles are offered
            return None
        return next((each for each in profiles if (each.slug, each.kind, each.spawner_class or "") == stored), None)

    def clear_state(self) -> None:
        """Forget the server, but not its profile's name; the hub calls this when it has ended and before a start."""
        Spawner.clear_state(self)
        if self.child is not None:
            self.last_profile_name = self.child.display_name or self.child.profile
            self.ending = of_profile(self.ending, self.last_profile_name)
        if self.child_spawner is not None:
            self.child_spawner.clear_state()
        self._adopt(None)

    def accept_report(self, report: NodeReport) -> None:
        """Pass the launcher's report to the child; raises ReportError if nothing is being started."""
        if not isinstance(self.child_spawner, (GPUSlurmSpawner, GPULocalSpawner)):
            raise ReportError("server: it is not being started")
        self.child_spawner.accept_report(report)

    @property
    def placement(self) -> PlacementDocument | None:
        """Where the server runs and what it got; None before its report."""
        return getattr(self.child_spawner, "placement", None)

    @property
    def topology(self) -> Mapping[str, Any] | None:
        """The node's topology document, for the picture."""
        return getattr(self.child_spawner, "topology", None)
