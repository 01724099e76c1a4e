"""The spawner that offers profiles: the chosen one's settings and request decide the server's job.

From wrapspawner it inherits the name and the ``profiles`` setting. A server that is no Slurm job is started by another
spawner (:mod:`.delegate`).
"""

from __future__ import annotations

import asyncio
import copy
import os
from collections import abc
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, ClassVar

from jupyterhub.spawner import SimpleLocalProcessSpawner
from jupyterhub.utils import maybe_future
from traitlets import Callable, Enum, List, TraitError, Type, Unicode, Union, default, validate
from traitlets.config.loader import LazyConfigValue

from jupyterhub_gpuspawner.batch.job import BatchJob, JobSettings, as_commanded, batch_job
from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError, RequestError
from jupyterhub_gpuspawner.hub.extensions import chosen, extensions_for
from jupyterhub_gpuspawner.hub.job.ending import Ending
from jupyterhub_gpuspawner.hub.jupyterhub_compat import OwnStartTimeout
from jupyterhub_gpuspawner.hub.site.slurm_settings import CONNECTION, Effective, known_settings
from jupyterhub_gpuspawner.hub.spawner_bases import LocalProcessSpawner, ProfilesSpawner, SlurmSpawner, Spawner
from jupyterhub_gpuspawner.hub.spawners import classes, delegate
from jupyterhub_gpuspawner.hub.spawners.offers import (
    ProfileSource,
    apply_user_options,
    errors_beside,
    offered_beside,
    refuse_choice_of_others,
    refuse_choices,
    refuse_what_is_for_others,
    with_choices,
)
from jupyterhub_gpuspawner.hub.spawners.rival import WithRival
from jupyterhub_gpuspawner.hub.spawners.server_job import BEFORE_REQUEST, HookSettings, shown_to_hooks
from jupyterhub_gpuspawner.hub.spawners.shared_folder import ProfileFolders
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.hub.words import CONTACT
from jupyterhub_gpuspawner.profiles.files import ALLOWANCES, TRAITS, Rights
from jupyterhub_gpuspawner.profiles.offered import Offered
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.resolve import JobRequest, choice_from_form, parse_choice, resolve
from jupyterhub_gpuspawner.profiles.sections import program_of
from jupyterhub_gpuspawner.slurm.accounts import account_of, refuse_root
from jupyterhub_gpuspawner.slurm.commands import checked_user_name
from jupyterhub_gpuspawner.slurm.job import Account
from jupyterhub_gpuspawner.slurm.run_as import as_root
from jupyterhub_gpuspawner.slurm.submit_command import COMMAND_HINT, SUBMIT
from jupyterhub_gpuspawner.tasks import timeout

TIMES = ("start_timeout", "http_timeout", "poll_interval")
"""Times in seconds that JupyterHub reads from this spawner, whichever one starts the server."""
STATE_VERSION = 2


@dataclass(frozen=True)
class ChosenProfile:
    """What is stored of the profile with which a server was started, as it was then."""

    profile: str
    """Its slug; empty in state that names none."""
    kind: str
    """``slurm``, ``local`` or ``other``."""
    base: str = ""
    """The slug of the hub's profile that it narrows; empty for one of the hub's own."""
    spawner_class: str = ""
    """Dotted name of the spawner's class, for kind ``other``."""
    display_name: str = ""
    """Empty in state of an earlier version."""
    app: str = ""
    """The name of its application; empty for Jupyter, and in state of an earlier version."""
    rank: int = 0
    """Which of an occasion's profiles that is, from 0, in the order in which their seats are filled."""

    @property
    def title(self) -> str:
        """Its display name, or its slug where that is not known."""
        return self.display_name or self.profile


NOTHING_CHOSEN = ChosenProfile("", "")


class GPUProfilesSpawner(WithRival, OwnStartTimeout, ProfilesSpawner):
    """Starts each server as the chosen profile says: most as Slurm jobs, some through another spawner."""

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
    ).tag(is_folder=True)
    profiles_dir_allows: List[str] = List(
        Enum(tuple(ALLOWANCES)),
        config=True,
        help=f"""What files in `profiles_dir` may contain beyond requests to Slurm, the site's modules, texts and
        options. {"; ".join(f"`{word}`: {text}" for word, text in ALLOWANCES.items())}. Except for `local` and `traits`,
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
    extensions: List[str] | None = List(
        Unicode(),
        None,
        allow_none=True,
        config=True,
        help="""Names of the extensions that this hub has, of those that `gpuspawner extensions` lists; what they
        need is added, with a warning in the log. Default: all that are installed. With `[]` there are profiles, the
        form, waiting, placement, cards, logs and stopping.""",
    )
    local_spawner_class = Type(
        LocalProcessSpawner,
        LocalProcessSpawner,
        config=True,
        help="""Spawner class for profiles on the hub's own machine: JupyterHub's, which runs each server as its user,
        or a subclass. For demos: `jupyterhub.spawner.SimpleLocalProcessSpawner`, which runs all of them as the hub's
        account; a hub that is root refuses it.""",
    )

    options_form = Union(
        [Unicode(), Callable()], config=True, help="The form: a string or a callable, as for JupyterHub's Spawner."
    )
    options_from_form = Union(
        [Callable(), Unicode()],
        config=True,
        help="Callable that converts form data to user options, as for JupyterHub's Spawner.",
    )

    @validate("extensions")
    def _validate_extensions(self, proposal: Any) -> list[str] | None:
        names: list[str] | None = proposal["value"]
        try:
            chosen(names)
        except ConfigError as error:
            raise TraitError(str(error)) from error
        return names

    default_form: ClassVar[abc.Callable[[Any], abc.Awaitable[str]] | None] = None
    """Renders the form if the admin sets none; :mod:`..registration` provides it."""
    chosen: ChosenProfile | None = None
    """The profile of the server that runs or is being started; None until one is chosen."""
    last: ChosenProfile | None = None
    """That of the last server, once it has ended."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._profile_classes: dict[str, type] = {}
        self._by_class: tuple[list[Any], list[Any]] | None = None
        self.environment = self._environment_of(type(self).__mro__)
        names = (*delegate.SETTINGS, *CONNECTION, "environment")
        self._configured = {name: copy.deepcopy(getattr(self, name)) for name in names}
        self._stored_traits: Mapping[str, Any] = {}  # of a delegate that was restored
        self.of_hooks = HookSettings(self, {*names, *BEFORE_REQUEST, *self.requested()})
        """What the site's hooks have set for the start."""

    def _environment_of(self, classes: Sequence[type]) -> dict[str, Any]:
        """The configured variables of these classes, such as all spawners, all jobs and this one; the first wins."""
        environment: dict[str, Any] = {}
        for cls in reversed(classes):
            value = self.config.get(cls.__name__, {}).get("environment", {})
            environment.update(value.get_value({}) if isinstance(value, LazyConfigValue) else value)
        return environment

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
        extensions = None if self.extensions is None else frozenset(chosen(self.extensions).names)
        rights = Rights(frozenset(self.profiles_dir_allows), frozenset(self.profiles_dir_classes), extensions)
        folder = self.hub_state.of(ProfileFolders)[self.profiles_dir, rights] if self.profiles_dir else None
        return ProfileSource(self._configured_profiles(), folder, self.configured_as("profiles"), extensions)

    @property
    def profile_classes(self) -> Mapping[str, type]:
        """The spawner classes that wrapspawner's tuples name, by their dotted names; raises ConfigError."""
        self._configured_profiles()
        return self._profile_classes

    def _configured_profiles(self) -> list[Any]:
        """The configured profiles; in wrapspawner's tuples with what a class of the site's sets. Raises ConfigError."""
        if self._by_class is None or self._by_class[0] is not self.profiles:
            name = self.configured_as("profiles")
            items = [self._with_class(item, f"{name}[{at}]") for at, item in enumerate(self.profiles)]
            tuples = any(isinstance(item, tuple) for item in items)
            self._by_class = self.profiles, classes.with_all_variables(items) if tuples else items
        return self._by_class[1]

    def _with_class(self, item: Any, where: str) -> Any:
        if not isinstance(item, (tuple, list)) or len(item) != 4 or not isinstance(item[3], Mapping):
            return item
        display_name, key, named, traits = item
        cls = classes.class_named(named)
        if not isinstance(cls, type):
            return item
        self._profile_classes[f"{cls.__module__}.{cls.__qualname__}"] = cls
        if not classes.submits_to_slurm(cls):
            return item
        values: Mapping[str, Any] = {}
        if classes.classes_beside(cls, type(self)):
            plain, spawner = (classes.instance_of(self, base, where=where) for base in (SlurmSpawner, cls))
            values = classes.of_a_profile(classes.values_beside(spawner, plain), cls)
        same = {name for name in CONNECTION if name in values and values[name] == getattr(self, name)}
        own = {name: value for name, value in values.items() if name not in same}
        return display_name, key, classes.PLAIN, classes.with_variables({**own, **traits}, cls)

    def offered(self) -> tuple[Profile, ...]:
        """Return this hub's profiles, then what extensions offer the user, all as last read; raises ConfigError."""
        return tuple(offer.profile for offer in self.offers())

    def offers(self) -> tuple[Offered, ...]:
        """Return the same profiles with how each is offered; raises ConfigError."""
        offers = (*map(Offered, self.source.profiles()), *offered_beside(self))
        return tuple(with_choices(self, offer) for offer in offers)

    async def refresh_profiles(self) -> None:
        """Read the folder of profiles anew, and what extensions offer if that was long ago."""
        await self.source.refresh()
        await extensions_for(self).refresh_profiles(self)

    def profile_errors(self) -> tuple[ConfigError, ...]:
        """Return the faults in files of profiles, whose last good versions are offered, and those of extensions."""
        return (*self.source.errors(), *errors_beside(self))

    def resolve(self, user_options: Mapping[str, object]) -> JobRequest:
        """Return the job request for these user options; raises RequestError or ConfigError."""
        offers = self.offers()
        refuse_what_is_for_others(self, user_options.get("profile"), offers)
        return self.request_of(offers, user_options)

    def request_of(self, offers: Sequence[Offered], user_options: Mapping[str, object]) -> JobRequest:
        """Return the request of these user options if these are what is offered; raises RequestError or ConfigError."""
        request = resolve(
            [offer.profile for offer in offers],
            user_options,
            username=self.user.name,
            groups=self.groups_of_user(),
            server_name=self.name,
            now=datetime.now().astimezone(),
            defaults=self.defaults(),
        )
        request = as_commanded(request, self.submit_command.options)
        refuse_choices(request, extensions_for(self).refused_choices(self, request))
        return replace(request, offer=next(offer for offer in offers if offer.profile.slug == request.profile.slug))

    def rescue(self, ending: Ending | None) -> Profile | None:
        """What its user may start after this ending instead, since their home folder is full; None: nothing else."""
        if ending is None or ending.cause.fault != "home_full":
            return None
        with suppress(ConfigError):  # logged where the profiles are read
            others = (offer for offer in self.offers() if offer.profile.slug != self.user_options.get("profile"))
            rescues = (offer for offer in others if offer.profile.rescue and self._alternative(offer, {}) is not None)
            return next((offer.profile for offer in rescues), None)
        return None

    def alternatives(self) -> list[JobRequest]:
        """What its user may accept in place of what waits, as they may have it now; raises ConfigError."""
        offers, values = self.offers(), parse_choice(self.user_options).options
        slugs = next((offer.profile.alternatives for offer in offers if offer.profile.slug == self.child_profile), ())
        named = (offer for slug in slugs for offer in offers if offer.profile.slug == slug)
        requests = [self._alternative(offer, values) for offer in named if offer.profile.kind == "slurm"]
        return [one for one in requests if one is not None and (one.resources.cluster or "") == self.cluster]

    def acceptable(self) -> list[JobRequest]:
        accepted = parse_choice(self.user_options).alternatives
        named = [request for request in self.alternatives() if request.profile.slug in accepted]
        return [*named, *self._of_occasion()]

    def _of_occasion(self) -> Iterator[JobRequest]:
        """What serves the occasion of what waits as well, as it is offered now."""
        waits = self.request.offer if self.request is not None else None
        ranks = {offer.rank for offer in waits.others} if waits is not None else set()
        now = next((offer for offer in self.offers() if ranks and offer.profile.slug == self.child_profile), None)
        for offer in (now, *now.others) if now is not None else ():
            request = self._alternative(offer, {}) if offer.rank in ranks else None
            if request is not None and (request.resources.cluster or "") == self.cluster:
                yield request

    def _alternative(self, offer: Offered, values: Mapping[str, str | int | float]) -> JobRequest | None:
        """The request of another offer, with the values that it takes; None where its user may not have it now."""
        shared = {name: value for name, value in values.items() if name in offer.profile.profile_options}
        for options in (shared, {}):
            with suppress(RequestError):
                return self.request_of([offer], {"profile": offer.profile.slug, **options})
        return None

    def job_beside(
        self, request: JobRequest, account: Account, start_id: str
    ) -> tuple[BatchJob, Mapping[str, str], Mapping[str, Any]]:
        own = self.chosen, self.request, self.child_profile
        try:
            with self.without_profile():
                self.of_hooks.see()
                self.prepare(request)
                assert self.request is not None
                job = batch_job(self.job_settings(), self.request, account, start_id=start_id)
                return job, self.job_environment(account), self.stored_profile()
        finally:
            self.chosen, self.request, self.child_profile = own
            self.of_hooks.see()

    def take_profile(self, profile: Mapping[str, Any], request: JobRequest | None) -> None:
        self.leave_profile()
        self.of_hooks.see()
        if request is not None:
            try:
                return self.prepare(request)
            except GPUSpawnerError as error:
                self.log.warning("The server of %s: %s", self._log_name, error)
        self._forget_choice()
        self.chosen = _stored_choice(profile, "slurm")
        self.child_profile = self.chosen.profile
        self._own_of_stored(_settings_of(self._profile_today(self.chosen)))
        return None

    def stored_profile(self) -> Mapping[str, Any]:
        return {name: value for name, value in asdict(self.chosen or NOTHING_CHOSEN).items() if value}

    async def ask_right_again(self) -> None:
        """Have the request be what the user may start now; raises RequestError where that is nothing any more.

        What the site's hooks have set for the start stays.
        """
        await super().ask_right_again()
        await self.refresh_profiles()
        request = self.resolve(self.user_options)
        if request.profile.kind != "slurm" or (request.resources.cluster or "") != self.cluster:
            raise RequestError(
                "The profile was changed while the start was kept for later.", field="profile", hint="Start again."
            )
        self.request = self.of_hooks.over(request)

    def prepare(self, request: JobRequest) -> None:
        """Make this the spawner of ``request``; raises ConfigError, and RequestError for what others may not choose."""
        refuse_choice_of_others(self, request)  # here, since an admin may set another apply_user_options
        self.of_hooks.note()
        request = self.of_hooks.over(request)
        self._forget_choice()
        profile = request.profile
        where = f"profile {profile.slug}"
        fields = {"start_timeout": profile.start_timeout, "default_url": request.default_url}
        settings = {**profile.traits, **{name: value for name, value in fields.items() if value}}
        if profile.kind == "slurm":
            self._refuse(profile.traits, where=where)
            self.use_cluster(request.resources.cluster or "")
            if self.of_hooks.variables:
                settings["environment"] = {**settings.get("environment", {}), **self.of_hooks.variables}
            shown = shown_to_hooks(request, cmd=self.of_site("cmd"))
            self._own_of_profile({**settings, **self.of_hooks.settings, **shown}, where=where)
        else:
            self.child_spawner = self._delegate(profile.kind, profile.spawner_class, profile.traits, where=where)
            self._share_times(settings)
        self.of_hooks.see()
        self.request, self.child_profile = request, profile.slug
        program = program_of(profile)
        self.chosen = ChosenProfile(
            profile.slug,
            profile.kind,
            request.offer.base if request.offer is not None else "",
            profile.spawner_class or "",
            profile.display_name,
            program.title if program is not None else "",
            request.offer.rank if request.offer is not None else 0,
        )

    @staticmethod
    def _refuse(traits: Mapping[str, Any], *, where: str) -> None:
        """Raise ConfigError for the first of a profile's ``traits`` that a job has not for itself."""
        known_settings(traits, GPUSlurmSpawner, where=where)
        if traits.get("batch_submit_cmd", SUBMIT) != SUBMIT:
            raise ConfigError("batch_submit_cmd is the same for all servers.", where=where, hint=COMMAND_HINT)
        for name in CONNECTION:
            if name in traits:
                raise ConfigError(
                    f"{name} is the same for all servers of a cluster.",
                    where=where,
                    hint=f"Set it in c.GPUSlurmSpawner.clusters, and slurm.cluster in the profile; or for all servers: "
                    f"c.GPUSlurmSpawner.{name} = {traits[name]!r}.",
                )
        if "clusters" in traits:
            raise ConfigError(
                "clusters is the same for all servers.",
                where=where,
                hint="Set it as c.GPUSlurmSpawner.clusters, and slurm.cluster in the profile.",
            )

    def _own_of_profile(self, settings: Mapping[str, Any], *, where: str) -> None:
        """Set what the profile sets, until the server has ended; raises ConfigError, and then none of it is set."""
        self.own(self.with_site(settings), where=where, of_profile=True)

    def _forget_choice(self) -> None:
        self.chosen, self.request, self.child_profile, self.child_spawner = None, None, "", None

    def _delegate(self, kind: str, class_name: str | None, traits: Mapping[str, Any], *, where: str) -> Spawner:
        local = kind == "local"
        named = self.local_spawner_class if local else self.profile_classes.get(class_name or "", class_name or "")
        spawner_class = delegate.other_class(named, where=where)
        return delegate.new_delegate(self, spawner_class, traits, where=where)

    def _share_times(self, settings: Mapping[str, Any]) -> None:
        """Set equal times here and in the delegate: the profile's, else those set here, else the delegate's."""
        starter, own = self.child_spawner, self._own_settings()
        times = {name: settings.get(name) or getattr(starter, name) for name in TIMES}
        self._own_of_profile({name: times[name] for name in TIMES if name in settings or name not in own}, where="")
        for name in TIMES:
            setattr(starter, name, getattr(self, name))

    def _own_classes(self) -> list[type]:
        """The classes whose configuration is not that of Slurm jobs."""
        return [cls for cls in type(self).__mro__ if cls not in GPUSlurmSpawner.__mro__]

    def _own_settings(self) -> frozenset[str]:
        """Names of settings that a hook, a group or the configuration of this class has set, not that of Slurm jobs."""
        configured = {name for cls in self._own_classes() for name in self.config.get(cls.__name__, {})}
        changed = {name for name, value in self._configured.items() if self.of_site(name) != value}
        return frozenset(configured | changed)

    def settings_of(self, request: JobRequest) -> JobSettings:
        """Return the settings of the job of a request that is not chosen; raises ConfigError."""
        self._refuse(request.profile.traits, where=f"profile {request.profile.slug}")
        return super().settings_of(request)

    def check(self) -> None:
        """Raise ConfigError for what would fail every start: a configured profile, or a missing folder."""
        super().check()
        source = self.source
        for position, profile in enumerate(source.configured_profiles()):
            where = f"{source.setting}[{position}].traits"
            if profile.kind == "slurm":
                self._refuse(profile.traits, where=where)
                self.checked(self.with_site(profile.traits), where=where)
            else:
                self._delegate(profile.kind, profile.spawner_class, profile.traits, where=where)
        source.check_folder(self.configured_as("profiles_dir"))

    # --- the spawner contract -------------------------------------------------------------------

    async def start_server(self) -> Any:
        """Start the chosen profile's server; raises an exception that the hub can show."""
        if self.chosen is None:
            async with timeout(self.start_timeout):
                await self.refresh_profiles()
            self.prepare(self.resolve(self.user_options))
        assert self.request is not None
        self.of_hooks.note()
        self.request = self.of_hooks.over(self.request)
        return await (super().start_server() if self.child_spawner is None else self._start_delegate())

    async def _start_delegate(self) -> Any:
        """Start a server that is no job; one that does not watch its own time is ended as JupyterHub would end it."""
        starter, request = self.child_spawner, self.request
        assert request is not None
        before, own = self._configured["environment"], self._environment_of(self._own_classes())
        changed = {name: value for name, value in self.environment.items() if before.get(name) != value}
        delegate.hand_over(
            self,
            starter,
            request,
            own=self._own_settings(),
            variables={**own, **changed},
            removed=before.keys() - self.environment.keys(),
            of_hooks=self.of_hooks.settings,
        )
        for name in self.of_hooks.settings:
            if name.startswith("req_") and not starter.has_trait(name):
                self.log.warning("The server of %s is no job: %s, set by a hook, has no effect", self._log_name, name)
        self._refuse_root(type(starter), where=f"profile {request.profile.slug}")
        if request.profile.kind == "local":
            await self._refuse_account(own=isinstance(starter, SimpleLocalProcessSpawner))
            try:
                brought, settings = self.carried(), self.settings_of_carried(self)
                delegate.bind(starter, request, self.placement_policy, brought, settings)
            except OSError as error:
                self.log.warning("The server of %s is not bound: %s", self._log_name, error)
        limit = None if isinstance(starter, OwnStartTimeout) else self.start_timeout
        async with timeout(limit):
            return await maybe_future(starter.start())

    def check_account(self, settings: Effective | None = None) -> None:
        """Raise ConfigError also where servers on this machine would run as root."""
        super().check_account(settings)
        self._refuse_root(self.local_spawner_class, where=self.configured_as("local_spawner_class"))

    def _refuse_root(self, cls: type[Spawner], *, where: str) -> None:
        """Raise ConfigError for a class that surely runs servers as the hub's account, in a hub that is root."""
        simple = SimpleLocalProcessSpawner
        as_hub = all(getattr(cls, name, None) is getattr(simple, name) for name in ("start", "make_preexec_fn"))
        if as_hub and not self.dangerously_run_servers_as_root and os.geteuid() == 0:
            raise as_root(where, f"{cls.__name__} runs them as the hub's account; use LocalProcessSpawner.")

    async def _refuse_account(self, *, own: bool) -> None:
        """Raise ConfigError for a user as whom no server is started on this machine; ``own``: as the hub's account."""
        if own:
            checked_user_name(self.user.name)  # it is part of a path
        else:
            await refuse_root(self.user.name)
            await account_of(self.user.name)

    async def server_status(self) -> int | None:
        """None while the server runs, as far as is known; else its exit code."""
        if self.child_spawner is None:
            return await super().server_status()
        status: int | None = await maybe_future(self.child_spawner.poll())
        return status

    async def stop_server(self, *, now: bool) -> None:
        if self.child_spawner is None:
            await super().stop_server(now=now)
        else:
            await maybe_future(self.child_spawner.stop(now=now))

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the server's events, once a profile is chosen."""
        while self.chosen is None:  # noqa: ASYNC110 - a hook or a certificate may take its time
            await asyncio.sleep(0.2)
        events = super().progress() if self.child_spawner is None else self.child_spawner.progress()
        async for event in events:
            yield event

    async def get_url(self) -> str:
        if self.child_spawner is None:
            return await super().get_url()
        return str(await maybe_future(self.child_spawner.get_url()))

    async def move_certs(self, paths: dict[str, str]) -> dict[str, str]:
        """Move the certificates to where the server runs."""
        if self.child_spawner is None:
            return await super().move_certs(paths)
        moved: dict[str, str] = await maybe_future(self.child_spawner.move_certs(paths))
        return moved

    async def rename(self, old_name: str, new_name: str) -> None:
        """Tell another package's spawner that its server has a new name."""
        if self.child_spawner is not None:
            await maybe_future(self.child_spawner.rename(old_name, new_name))

    # --- state: the profile, what finds the server, and the server's own facts ------------------------

    def get_state(self) -> dict[str, Any]:
        """Return profile, job and report; if nothing runs, only how the last server ended."""
        if self.chosen is None:
            return self.state_without_job()
        state: dict[str, Any] = {"version": STATE_VERSION, **self.stored_profile()}
        if self.child_spawner is None:
            own = self.cluster_settings(self.cluster) if self.cluster in self.clusters else {}
            configured = {name: own.get(name, self._configured[name]) for name in CONNECTION}
            changed = {name: getattr(self, name) for name in CONNECTION if getattr(self, name) != configured[name]}
            return {**state, **super().get_state(), **({"connection": changed} if changed else {})}
        traits = self.request.profile.traits if self.request is not None else self._stored_traits
        connection = delegate.storable(traits) if self.chosen.kind == "other" else {}
        return {**state, "child_state": self.child_spawner.get_state(), "connection": connection}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore a stored server, with the settings that its profile has today, if there still is one.

        Reads what an earlier version wrote, where the job's facts are those of a child, and what wrapspawner wrote.
        """
        self.load_state_without_job(state)
        server = state.get("child", state.get("child_state"))
        kind = str(state.get("kind", "slurm" if "job_id" in (server or state) else "local"))
        if kind == "slurm":
            server = {**state, **(server if isinstance(server, dict) else {})}
        if not isinstance(server, dict) or not {"kind", "child_state", "job_id"} & set(state):
            return
        chosen = _stored_choice(state, kind)
        profile = self._profile_today(chosen)
        connection = state.get("connection")
        connection = connection if isinstance(connection, dict) else {}
        settings = _settings_of(profile)
        try:
            if kind == "slurm":
                super().load_state(server)
                self._own_of_stored(settings)
                self.own({name: connection[name] for name in CONNECTION if name in connection}, where="stored state")
            else:
                self.child_spawner = self._stored_delegate(chosen, profile, connection)
                self.child_spawner.load_state(server)
                self._share_times(settings)
        except ConfigError as error:
            self.log.error("The stored server of %s cannot be restored: %s", self._log_name, error)
            self.disown()
            self._forget_choice()
            return
        self.chosen, self.child_profile = chosen, chosen.profile

    def _own_of_stored(self, settings: Mapping[str, Any]) -> None:
        """Set what a running server's profile sets today; one that is no longer valid does not lose the server."""
        try:
            self._refuse(settings, where="stored state")
            self._own_of_profile(settings, where="stored state")
        except ConfigError as error:
            self.log.warning("A running server of %s: %s", self._log_name, error)

    def _stored_delegate(
        self, chosen: ChosenProfile, profile: Profile | None, connection: Mapping[str, Any]
    ) -> Spawner:
        """A delegate with its profile's settings; one that is no longer valid does not lose the server."""
        today = profile.traits if profile is not None else {}
        self._stored_traits = connection
        for traits in ({**today, **connection}, connection):
            try:
                return self._delegate(chosen.kind, chosen.spawner_class, traits, where="stored state")
            except ConfigError as error:
                self.log.warning("A running server of %s: %s", self._log_name, error)
        return self._delegate(chosen.kind, chosen.spawner_class, {}, where="stored state")

    def _profile_today(self, chosen: ChosenProfile) -> Profile | None:
        """Return the admin's profile of a stored server as it is today; None if it is gone or of another kind."""
        stored = (chosen.base or chosen.profile, chosen.kind, chosen.spawner_class)
        try:
            profiles = self.source.profiles()
        except ConfigError:  # reported where profiles are offered
            return None
        return next(
            (profile for profile in profiles if (profile.slug, profile.kind, profile.spawner_class or "") == stored),
            None,
        )

    async def apply_group_overrides(self) -> None:
        """Apply the overrides of the user's groups, until the server has ended; profiles count before these."""
        self.of_hooks.note()
        await super().apply_group_overrides()
        self.of_hooks.replaced_by_group()

    def clear_state(self) -> None:
        """Forget the server, but not its profile's name; the hub calls this when it has ended and before a start."""
        if self.chosen is not None:
            self.last = self.chosen
            self.ended.of_profile(self.last.title, self.last.profile)
        super().clear_state()
        if self.child_spawner is not None:
            self.child_spawner.clear_state()
        self._forget_choice()
        self.of_hooks.begin()


def _stored_choice(state: Mapping[str, Any], kind: str) -> ChosenProfile:
    names = {"spawner_class": state.get("class", "")} | dict(state)
    texts = {name: str(names.get(name, "")) for name in ("profile", "base", "spawner_class", "display_name", "app")}
    rank = state.get("rank")
    return ChosenProfile(kind=kind, rank=rank if type(rank) is int else 0, **texts)


def _settings_of(profile: Profile | None) -> dict[str, Any]:
    """What a profile sets of a server that runs already."""
    settings = dict(profile.traits) if profile is not None else {}
    if profile is not None and profile.start_timeout is not None:
        settings["start_timeout"] = profile.start_timeout
    return settings


def job_spawner(spawner: Any) -> GPUSlurmSpawner | None:
    """The spawner of ours that starts the server as a Slurm job; None where another package's starts it."""
    delegate = spawner.child_spawner if isinstance(spawner, GPUProfilesSpawner) else None
    starter = spawner if delegate is None else delegate
    return starter if isinstance(starter, GPUSlurmSpawner) else None
