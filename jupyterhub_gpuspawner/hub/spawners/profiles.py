"""The spawner that JupyterHub knows: it offers profiles, and a child of the right kind starts the server.

What it inherits from wrapspawner is the name, the ``profiles`` setting and the idea of a child.
Trait links, saved configuration and the silent fallback to a local process are not
inherited: the child is built from the request that was checked, and gets what is named here.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Any

from jupyterhub.spawner import Spawner
from jupyterhub.utils import maybe_future
from sqlalchemy.exc import SQLAlchemyError
from traitlets import Callable, Enum, List, Type, Unicode, Union, default
from wrapspawner import ProfilesSpawner

from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError
from jupyterhub_gpuspawner.hub import named
from jupyterhub_gpuspawner.hub.ending.failure import database_away, spawn_failure
from jupyterhub_gpuspawner.hub.ending.record import RemembersEnding
from jupyterhub_gpuspawner.hub.jupyterhub_compat import UserOptions
from jupyterhub_gpuspawner.hub.pages.choose.form import render_form
from jupyterhub_gpuspawner.hub.report.reader import ReportError
from jupyterhub_gpuspawner.hub.site.database import TO_START, TO_STOP, TO_TELL, LogName, takes_changes
from jupyterhub_gpuspawner.hub.spawners.child import TIMES, Inheritance, configured_as, new_child, other_class
from jupyterhub_gpuspawner.hub.spawners.inherited_settings import IgnoredSetting, ignored_settings
from jupyterhub_gpuspawner.hub.spawners.local import GPULocalSpawner
from jupyterhub_gpuspawner.hub.spawners.profile_source import SharedFolder, offered_profiles, profile_folder
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.hub.start.build import site_defaults
from jupyterhub_gpuspawner.profiles.files.rights import ALLOWANCES, TRAITS, Rights
from jupyterhub_gpuspawner.profiles.profile import parse_profiles
from jupyterhub_gpuspawner.profiles.resolve import JobRequest, choice_from_form, resolve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping

    from jupyterhub_gpuspawner.profiles.profile import Profile
    from jupyterhub_gpuspawner.wire.documents import NodeReport, PlacementDocument

STATE_VERSION = 1


class GPUProfilesSpawner(LogName, RemembersEnding, ProfilesSpawner):
    """Offers profiles of GPU and CPU jobs; the chosen one decides which child starts the server."""

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
    slurm_spawner_class = Type(GPUSlurmSpawner, GPUSlurmSpawner, config=True, help="Spawner class for Slurm profiles.")
    local_spawner_class = Type(
        GPULocalSpawner, GPULocalSpawner, config=True, help="Spawner class for profiles on the hub's own machine."
    )

    user_options = UserOptions()
    options_form = Union(
        [Unicode(), Callable()], config=True, help="The form: a string or a callable, as for JupyterHub's Spawner."
    )
    options_from_form = Union(
        [Callable(), Unicode()],
        config=True,
        help="Callable that converts form data to user options, as for JupyterHub's Spawner.",
    )

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._inheritance = Inheritance(self)

    @default("options_form")
    def _default_options_form(self) -> Any:
        return render_form

    # wrapspawner would set its own static form here
    _options_form_default = _default_options_form

    @default("options_from_form")
    def _default_options_from_form(self) -> Any:
        return choice_from_form

    @default("apply_user_options")
    def _default_apply_user_options(self) -> Any:
        return _apply_user_options

    def offered(self) -> tuple[Profile, ...]:
        """All profiles of this hub, those of its folder as they were at the last look; raises ConfigError."""
        return offered_profiles(self.profiles, self.folder, name=configured_as(self, "profiles"))

    @property
    def folder(self) -> SharedFolder | None:
        """The folder of profiles, shared by all servers; None where the admin named none."""
        if not self.profiles_dir:
            return None
        return profile_folder(
            self.profiles_dir, Rights(frozenset(self.profiles_dir_allows), frozenset(self.profiles_dir_classes))
        )

    async def look_at_profiles(self) -> None:
        """Take a new look at the folder of profiles, for what is offered from now on."""
        if self.folder is not None:
            await self.folder.refresh()

    def profile_errors(self) -> tuple[ConfigError, ...]:
        """What is wrong with files of the profiles' folder now; their last good versions are offered."""
        return self.folder.errors if self.folder is not None else ()

    def groups_of_user(self) -> frozenset[str]:
        """The names of the JupyterHub groups of this server's user."""
        return frozenset(group.name for group in self.user.groups)

    def resolve(self, user_options: Mapping[str, object]) -> JobRequest:
        """What the user's options ask for, checked; raises RequestError or ConfigError."""
        return resolve(
            self.offered(),
            user_options,
            username=self.user.name,
            groups=self.groups_of_user(),
            server_name=self.name,
            now=datetime.now().astimezone(),
            defaults=site_defaults(self.slurm_site()),
        )

    def prepare(self, request: JobRequest) -> None:
        """Build the child for ``request`` and take over its times; raises ConfigError."""
        child = self._child(request.kind, request.spawner_class, request.traits, where=f"profile {request.profile}")
        if isinstance(child, (GPUSlurmSpawner, GPULocalSpawner)):
            child.request = request
        elif request.command:
            child.cmd = list(request.command)
        if request.default_url:
            child.default_url = request.default_url
        self._inheritance.take_times(child, {name: getattr(request, name) for name in TIMES})
        self.child_profile = request.profile
        self._kind, self._class_name = request.kind, request.spawner_class or ""
        self._of_the_profile = {*request.traits, *(["default_url"] if request.default_url else [])}
        self.child_spawner = child

    _kind = ""
    _class_name = ""
    _of_the_profile: Collection[str] = ()

    def _child(self, kind: str, class_name: str | None, traits: Mapping[str, Any], *, where: str) -> Spawner:
        classes = {"slurm": self.slurm_spawner_class, "local": self.local_spawner_class}
        child_class = classes.get(kind) or other_class(class_name or "", where=where)
        return new_child(self, child_class, traits, where=where)

    def slurm_site(self) -> GPUSlurmSpawner:
        """A child with the settings of all Slurm servers, of no profile, and what a group's override says of ``req_*``.

        Raises ConfigError.
        """
        child = self._child("slurm", None, {}, where="c.GPUSlurmSpawner")
        assert isinstance(child, GPUSlurmSpawner)  # noqa: S101 - for mypy: the trait allows nothing else
        self._inheritance.hand_down_requests(child)
        return child

    def rehearsal(self, request: JobRequest) -> GPUSlurmSpawner:
        """A child for a Slurm job that is only asked about: a server that runs is left alone. Raises ConfigError."""
        child = self._child("slurm", None, request.traits, where=f"profile {request.profile}")
        assert isinstance(child, GPUSlurmSpawner)  # noqa: S101 - for mypy: the trait allows nothing else
        child.request = request
        self._inheritance.hand_down(child, but=request.traits)
        return child

    def check(self) -> None:
        """Raise ConfigError for what would fail at a click: a profile of the configuration, or the folder's name."""
        self._child("slurm", None, {}, where="c.GPUSlurmSpawner").check()
        where = configured_as(self, "profiles")
        for position, profile in enumerate(parse_profiles(self.profiles, name=where)):
            self._child(profile.kind, profile.spawner_class, profile.traits, where=f"{where}[{position}].traits")
        if self.folder is not None:
            self.folder.first_look()
        if self.folder is not None and self.folder.missing:
            raise ConfigError(
                f"there is no folder {self.profiles_dir!r}.",
                where=configured_as(self, "profiles_dir"),
                hint="Make it, and put YAML files with profiles into it.",
            )
        if not self.profiles_dir:
            self.offered()

    def ignored_settings(self) -> tuple[IgnoredSetting, ...]:
        """Settings of this hub and of its profiles that have no effect, for the admin; raises ConfigError."""
        site = self.slurm_site()
        try:
            profiles = self.offered()
        except ConfigError:  # none yet: a folder may be filled later
            profiles = parse_profiles(self.profiles)
        return ignored_settings(self.config, type(site), type(self), batch_script=site.batch_script, profiles=profiles)

    # --- the spawner contract -------------------------------------------------------------------

    async def start(self) -> Any:
        """Start the child; raises what the hub can show."""
        self.ending = None
        await takes_changes(self.orm_spawner, TO_START)
        try:
            if self.child_spawner is None:
                await self.look_at_profiles()
                self.prepare(self.resolve(self.user_options))
            child = self.child_spawner
            self._inheritance.hand_down(child, but=self._of_the_profile)
            where = await maybe_future(child.start())
        except GPUSpawnerError as error:
            raise spawn_failure(error) from error
        except SQLAlchemyError as error:
            raise database_away(self.orm_spawner) from error
        finally:  # an error and a cancellation, too, are written down by the hub before anything else
            noted = await takes_changes(self.orm_spawner, TO_START)
        if not noted:
            raise database_away()
        return where

    async def stop(self, now: bool = False) -> None:  # noqa: FBT001, FBT002 - JupyterHub's signature
        """Stop the child, and wait until the hub can note it."""
        if self.child_spawner is not None:
            await maybe_future(self.child_spawner.stop(now=now))
        await takes_changes(self.orm_spawner, TO_STOP)

    async def poll(self) -> int | None:
        """The child's answer; 0 (not running) where there is none. None while the hub cannot note that it has ended."""
        status: int | None = 0
        if self.child_spawner is not None:
            status = await maybe_future(self.child_spawner.poll())
        return status if status is None or await takes_changes(self.orm_spawner, TO_TELL) else None

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        """The child's events; works before there is a child, too."""
        while self.child_spawner is None:  # noqa: ASYNC110 - a hook or a certificate may take its time
            await asyncio.sleep(0.2)
        async for event in self.child_spawner.progress():
            yield event

    async def get_url(self) -> str:
        """The child's word on where the server is."""
        asked = self.child_spawner.get_url() if self.child_spawner is not None else super().get_url()
        url: str = await maybe_future(asked)
        return url

    async def move_certs(self, paths: dict[str, str]) -> dict[str, str]:
        """Let the child bring the certificates to where its server runs."""
        moving = self.child_spawner.move_certs if self.child_spawner is not None else super().move_certs
        moved: dict[str, str] = await maybe_future(moving(paths))
        return moved

    async def rename(self, old_name: str, new_name: str) -> None:
        """Tell the child that its server has a new name."""
        if self.child_spawner is not None:
            await maybe_future(self.child_spawner.rename(old_name, new_name))

    # --- state: which profile, which kind, and the child's own facts; never configuration -----------

    def get_state(self) -> dict[str, Any]:
        """Profile slug, kind, and the child's facts; where nothing runs only how the last server ended."""
        if self.child_spawner is None:
            return self.ending_state()
        state: dict[str, Any] = {
            "version": STATE_VERSION,
            "profile": self.child_profile,
            "kind": self._kind,
            "child": self.child_spawner.get_state(),
        }
        if self._class_name:
            state["class"] = self._class_name
        return state

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Rebuild the child from its facts; today's profiles play no part in it."""
        self.load_ending(state)
        child_state = state.get("child")
        kind, class_name = str(state.get("kind", "")), str(state.get("class", ""))
        if child_state is None and "child_state" in state:  # written by wrapspawner
            child_state = state["child_state"]
            kind = "slurm" if "job_id" in child_state else "local"
        if not isinstance(child_state, dict) or not kind:
            return
        try:
            child = self._child(kind, class_name, {}, where="stored state")
        except ConfigError as error:
            self.log.error("The stored server of %s cannot be restored: %s", self._log_name, error)  # noqa: TRY400
            return
        child.load_state(child_state)
        self._inheritance.take_times(child, {})
        self.child_profile = str(state.get("profile", ""))
        self._kind, self._class_name = kind, class_name
        self.child_spawner = child

    def clear_state(self) -> None:
        """Forget the server; the hub calls this when it has ended and before a start."""
        Spawner.clear_state(self)
        if self.child_spawner is not None:
            self.child_spawner.clear_state()
        self.child_spawner = None
        self.child_profile = ""
        self._kind = self._class_name = ""

    # --- the report ---------------------------------------------------------------------------

    def accept_report(self, report: NodeReport) -> None:
        """Hand the launcher's report to the child; raises ReportError if nothing is being started."""
        accept = getattr(self.child_spawner, "accept_report", None)
        if accept is None:
            raise ReportError("server: nothing is being started here")
        accept(report)

    @property
    def placement(self) -> PlacementDocument | None:
        """Where the server runs and what it got; None before its report."""
        return getattr(self.child_spawner, "placement", None)

    @property
    def topology(self) -> Mapping[str, Any] | None:
        """The node's topology document, for the picture."""
        return getattr(self.child_spawner, "topology", None)


async def _apply_user_options(spawner: GPUProfilesSpawner, user_options: Mapping[str, object]) -> None:
    """The one gate for form, link and REST: check, normalise, store, and build the child."""
    await spawner.look_at_profiles()
    try:
        request = spawner.resolve(user_options)
        spawner.prepare(request)
    except GPUSpawnerError as error:
        raise spawn_failure(error) from error
    spawner.user_options = dict(request.options)
    if spawner.orm_spawner is not None:
        spawner.orm_spawner.user_options = dict(request.options)


named.watch(__name__)
