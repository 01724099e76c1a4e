"""The profile model: what users choose from, written by an admin or instructor; a typed form of ``profile_list``.

The fields follow KubeSpawner's ``profile_list``. :func:`parse_profiles` reads the hub's configuration: dicts of this
schema and wrapspawner's tuples and pairs, in any mixture. Every fault is a ConfigError with the path of the field.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.profiles.option import OPTION_LIMIT, UNLISTED, Override, ProfileOption, put_over
from jupyterhub_gpuspawner.profiles.resources import Environment, Extend, PlacementRules, Resources
from jupyterhub_gpuspawner.profiles.schema import (
    BadValue,
    Checked,
    Duration,
    Frozen,
    Guarded,
    OneOrMany,
    Prose,
    Seconds,
    Text,
    UrlPath,
    Wait,
    matching,
    merged,
    printable,
    whole,
)
from jupyterhub_gpuspawner.profiles.tuples import slug_of, typed_fields
from jupyterhub_gpuspawner.words import memory

# Applications whose command, socket and readiness are known, by their names.

SOCKET = "{socket}"
"""Replaced by the path of the application's unix socket."""

KINDS: Mapping[str, Mapping[str, Any]] = {
    "code-server": {
        "name": "VS Code",
        "icon": "code",
        "command": ("code-server", "--auth", "none", "--disable-telemetry", "--disable-update-check"),
        # its second socket would lie in the home folder, which nodes share
        "socket": ("--session-socket", "{socket_folder}/session.sock", "--socket", SOCKET),
        "ready": "/healthz",
    },
    "dash": {
        "name": "Dash",
        "icon": "dashboard",
        "command": ("gunicorn",),
        "socket": ("--bind", f"unix:{SOCKET}"),
    },
    "panel": {
        "name": "Panel",
        "icon": "dashboard",
        "command": ("panel", "serve"),
        "socket": ("--unix-socket", SOCKET, "--prefix", "{base_url}", "--allow-websocket-origin", "*"),
        "absolute_url": True,
    },
    "streamlit": {
        "name": "Streamlit",
        "icon": "dashboard",
        "command": ("uvicorn",),  # `streamlit run` has no unix sockets since it uses Starlette
        "socket": ("--uds", SOCKET),
        "ready": "/_stcore/health",
    },
}
"""What is known of well-known applications; a profile's own fields replace it."""


GATE = "gpuspawner-gate"
"""First word of a command that the launcher runs behind the hub's sign-in."""
SOCKET_FOLDER = "{socket_folder}"
"""Replaced by the folder in which the socket lies."""

OPEN_PORT = (
    "needs socket, the arguments by which the application listens on a unix socket, with {socket} in them: on a TCP "
    "port every user of the node could open it without signing in; only an application that signs people in with "
    "JupyterHub itself may listen on the server's port (auth: own)"
)


def words(value: Any) -> Any:
    """Split a command line into its words, as a shell does; anything else stays as it is. Raises BadValue."""
    if not isinstance(value, str):
        return value
    try:
        return shlex.split(printable(value))
    except ValueError as error:
        raise error if isinstance(error, BadValue) else BadValue("has an unbalanced quote", value) from None


Words = Annotated[tuple[Text, ...], BeforeValidator(words)]
ReadyPath = Annotated[
    str, matching(r"/[!-z|~]*", "a path of the application that begins with '/', without blanks and braces")
]


class Application(Frozen):
    """A web application that a server runs in the place of JupyterLab."""

    kind: Literal["code-server", "dash", "panel", "streamlit"] | None = None
    """An application whose fields are known; ``app: code-server`` is short for it. Fields given beside it replace the
    known ones."""
    name: Prose = ""
    """Its name for people; default: the command."""
    icon: Literal["app", "chart", "code", "dashboard", "statistics"] = "app"
    """The picture beside its name."""
    command: Words = ()
    """The program and its first arguments."""
    args: Words = ()
    """Further arguments, such as the script that a dashboard shows. ``{base_url}`` is replaced by the server's path at
    the hub. JupyterHub's own arguments (``c.Spawner.args``) are not added."""
    socket: Words = ()
    """Arguments, put last, by which it listens on a unix socket, whose path replaces ``{socket}``. Required unless it
    signs people in itself: a TCP port is open to every user of the node."""
    ready: ReadyPath | None = None
    """The path at which it answers once it is ready, below 500 in HTTP's status; default: ``/``, with ``auth: own``
    JupyterHub's ``/api``."""
    absolute_url: bool = False
    """It expects requests with the server's path at the hub (``{base_url}``), as jupyter-server-proxy's setting of this
    name; otherwise it gets them without."""
    auth: Literal["hub", "own"] = "hub"
    """``hub``: jupyter-server-proxy lets in whom JupyterHub lets in. ``own``: the application signs people in with
    JupyterHub itself (OAuth), and listens on the port of ``JUPYTERHUB_SERVICE_URL``, which also replaces ``{port}``."""

    @model_validator(mode="before")
    @classmethod
    def _of_its_kind(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = {"kind": value}
        if isinstance(value, dict) and isinstance(value.get("kind"), str):
            return {**KINDS.get(value["kind"], {}), **value}
        return value

    @field_validator("command")
    @classmethod
    def _named(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if value and (not value[0] or value[0] == GATE):
            raise BadValue("must begin with the application's program")
        return value

    @field_validator("socket")
    @classmethod
    def _has_its_path(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if value and not any(SOCKET in word for word in value):
            raise BadValue("must contain {socket}, in the place of the unix socket's path")
        return value

    @model_validator(mode="after")
    def _nobody_comes_in_unseen(self) -> Application:
        if not self.command:
            raise BadValue("command is missing: name the program, or a known kind")
        if self.auth == "own":
            if self.socket:
                raise BadValue("socket is for auth: hub; with auth: own the application listens on the server's port")
            if self.absolute_url:
                raise BadValue("absolute_url is for auth: hub; with auth: own requests are not changed")
        elif not self.socket:
            raise BadValue(OPEN_PORT)
        elif any("{port}" in word for word in self._all()):
            raise BadValue("{port} is for auth: own; " + OPEN_PORT)
        return self

    def _all(self) -> tuple[str, ...]:
        return (*self.command, *self.args, *self.socket)

    @property
    def title(self) -> str:
        """Its name for people."""
        return self.name or self.command[0].rpartition("/")[2]

    @property
    def readiness(self) -> str:
        """The path, below the server's, at which JupyterHub and the hub's own check ask the server."""
        return self.ready.lstrip("/") if self.auth == "own" and self.ready else "api"

    def launched(self, server: str) -> tuple[str, ...]:
        """The command for the launcher; behind the hub's sign-in the part after ``--`` is the application's.

        ``server`` is the command that starts JupyterLab (``c.Spawner.cmd``): jupyter-server-proxy is looked for beside
        it first, then in the job's PATH.
        """
        if self.auth == "own":
            return self._all()
        absolute = ("--absolute-url",) if self.absolute_url else ()
        return (GATE, server, "--ready", self.ready or "/", *absolute, "--", *self._all())


def own_words(command: Sequence[str]) -> int:
    """Where the application's own command begins in ``command``; 0 if it does not run behind the hub's sign-in."""
    return command.index("--") + 1 if command[0] == GATE else 0


# When a running server counts as idle, and what is done then: as a profile or the site says it, and resolved.

WARNED_AFTER = (1 / 2, 5 / 6)
"""Parts of the time after which a server counts as idle, at which its user is warned."""
HELD_FACTOR = 2
"""By this much the time is longer where much of a GPU's memory is held."""


class IdleAction(str, Enum):
    """What is done about an idle server."""

    REPORT = "report"
    """Nothing; `gpuspawner idle` lists it."""
    NOTIFY = "tell"
    """Its user is told, on the home page and in JupyterLab."""
    STOP = "stop"
    """Its user is told, and the server is stopped."""


def _positive(value: int) -> int:
    if value < 1:
        raise BadValue("must be at least 1s")
    return value


class Keep(Frozen):
    """How often a user may keep a server that is idle."""

    by: Duration = 1800
    """The time for which it is left alone each time. Kept in seconds."""
    times: Annotated[int, whole(0, 100)] = 2
    """How often, from start to end of a server."""

    @field_validator("by")
    @classmethod
    def _some_time(cls, value: int) -> int:
        return _positive(value)


class Idle(Frozen):
    """When a server that does not use its GPUs counts as idle, and what is done then. Slurm jobs only.

    A field that is left out has the site's value (``c.GPUSlurmSpawner.idle``). The user is warned after half and after
    five sixths of ``gpu``, or of ``kernel`` where the server has no GPU.
    """

    gpu: Duration | None = None
    """A server with GPUs is idle when none of them has been used for this long, and one that holds a quarter of a GPU's
    memory or more after twice that; ``null``: never. Kept in seconds, as all durations."""
    kernel: Duration | None = None
    """A server is idle only when JupyterHub has seen no activity of it for this long either. Without it, activity does
    not matter for a server with GPUs, and a server without GPUs is never idle."""
    action: Literal["report", "tell", "stop"] | None = None
    """What is done: nothing but a record for ``gpuspawner idle``; its user is told; or told, and the server stopped."""
    keep: Keep | None = None
    """How its user may keep an idle server."""

    @field_validator("gpu", "kernel")
    @classmethod
    def _some_time(cls, value: int | None) -> int | None:
        return value if value is None else _positive(value)


@dataclass(frozen=True)
class IdleRule:
    """The policy for the servers of one profile. Durations are in seconds."""

    gpu: int | None = 3600
    held: int | None = 7200
    """In the place of :attr:`gpu` where much of a GPU's memory is held."""
    kernel: int | None = None
    leads: tuple[int, ...] = (1800, 600)
    """How long before the server counts as idle its user is warned, the longest first; at most half of ``kernel``."""
    action: IdleAction = IdleAction.REPORT
    keep_by: int = 1800
    keep_times: int = 2

    def limit(self, *, gpus: bool, held: bool) -> int | None:
        """Seconds after which a server with or without GPUs counts as idle; None: never."""
        if not gpus:
            return self.kernel
        return self.held if held and self.gpu is not None else self.gpu


SITE = Idle(gpu="60min", action="report", keep=Keep())
"""The policy where the site sets nothing."""


def idle_rule(profile: Idle | None = None, site: Idle = SITE) -> IdleRule:
    """The policy for a profile that says ``profile``, at a site that says ``site``."""
    rule = merged(SITE, site)
    if profile is not None:
        rule = merged(rule, profile)
    limit = rule.gpu if rule.gpu is not None else rule.kernel
    leads = {limit - round(limit * part) for part in WARNED_AFTER} if limit is not None else set()
    if rule.kernel is not None:  # somebody who was active just now is not warned
        leads = {min(lead, rule.kernel // 2) for lead in leads}
    keep = rule.keep if rule.keep is not None else Keep(times=0)
    return IdleRule(
        gpu=rule.gpu,
        held=rule.gpu and HELD_FACTOR * rule.gpu,
        kernel=rule.kernel,
        leads=tuple(sorted(leads, reverse=True)),
        action=IdleAction(rule.action or "report"),
        keep_by=keep.by,
        keep_times=keep.times,
    )


SLUG = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}"


def _moment(value: object) -> date:
    if isinstance(value, date):
        return value
    try:
        text = str(value)
        return date.fromisoformat(text) if len(text) == len("2024-05-31") else datetime.fromisoformat(text)
    except ValueError:
        raise BadValue("is not a valid date or time: use 2024-05-31, or 2024-05-31 09:00", value) from None


Moment = Annotated[date, Checked(_moment, {"type": "string", "examples": ["2024-05-31", "2024-05-31 09:00"]})]


class Allow(Frozen):
    """Who may use a profile, and when. Default: everybody, always."""

    groups: Annotated[tuple[Text, ...], OneOrMany] = ()
    """JupyterHub groups; membership in one of them is enough."""
    users: Annotated[tuple[Text, ...], OneOrMany] = ()
    """User names; a matching group or a matching name is enough."""
    from_: Moment | None = Field(default=None, alias="from")
    """The first day, or a date and time; in the hub's time zone unless it has a UTC offset."""
    until: Moment | None = None
    """The last day (inclusive), or a date and time."""


def _port_range(value: Any) -> Any:
    if isinstance(value, str) and re.fullmatch("[0-9]{1,5}-[0-9]{1,5}", value):
        value = [int(port) for port in value.split("-")]
    match value:
        case [int(first), int(last)] if 1024 <= first <= last <= 65535:
            return first, last
    raise BadValue("must be two ports within 1024 to 65535, such as 20000-20999", value)


class Profile(Frozen):
    """One choice on the form: a server and how it is started."""

    display_name: Prose
    slug: Annotated[str, matching(SLUG, "letters, digits and . _ -, at most 63")]
    """Its name in links, REST and stored options; default: derived from the display name."""
    description: Prose = ""
    default: bool = False
    """Used if the user chooses no profile; of several, the first one that the user may use."""
    kind: Annotated[Literal["slurm", "local", "other"], Guarded("local", free="slurm|other")] = "slurm"
    """A Slurm job, a process on the hub's machine, or another spawner class."""
    spawner_class: Text | None = None
    """Dotted name of that class, for kind ``other``."""
    traits: Mapping[str, Any] = Field(default_factory=dict)
    """Settings of the spawner that starts the server, such as ``ip``. batchspawner's ``req_*`` settings that correspond
    to a field of ``slurm`` set that field, unless ``slurm`` sets it itself. Those that find a running server are stored
    with it in the hub's database: for kind ``other`` all but ``environment``."""
    slurm: Resources = Resources()
    environment: Environment = Environment()
    placement: PlacementRules = PlacementRules()
    allow: Allow = Allow()
    courses: Annotated[tuple[Text, ...], OneOrMany] | None = None
    """The courses that may use the profile, by the names of their files without ending; an empty list: none. Default:
    every course. ``allow`` applies to the people of a course as to everybody else."""
    profile_options: dict[str, ProfileOption] = Field(default_factory=dict)
    start_timeout: Seconds | None = None
    """Seconds from Slurm's allocation until the server's address is known; without Slurm, from the click."""
    queue_timeout: Wait | None = None
    """How long the job may wait in Slurm's queue, such as ``4:00:00``, or UNLIMITED; default: the site's. Kept in
    seconds."""
    extend: Extend | None = None
    """Whether a user may extend the server while it runs; default: not. Slurm jobs only."""
    idle: Idle | None = None
    """When the server counts as idle, and what is done then; default: as the site says. Slurm jobs only."""
    lab: bool = True
    """Whether JupyterLab shows the time left, notices and *More time* (``c.GPUSlurmSpawner.lab_companion``); Slurm jobs
    only."""
    command: Annotated[Annotated[tuple[Text, ...], BeforeValidator(words)] | None, Guarded("command")] = None
    """The server's command; default: the hub's (``jupyterhub-singleuser``)."""
    app: Annotated[Application | None, Guarded("command")] = None
    """A web application in the place of JupyterLab, by the name of a known kind or as a table; Slurm jobs only.
    Default: JupyterLab, or what ``command`` starts."""
    default_url: UrlPath | None = None
    """The page that opens first, such as ``/lab/tree/start.ipynb``."""
    port_range: Annotated[tuple[int, int], BeforeValidator(_port_range)] | None = None
    """Ports that the server may listen on, such as ``20000-20999``."""

    @model_validator(mode="before")
    @classmethod
    def _with_slug(cls, value: Any) -> Any:
        if isinstance(value, dict) and "slug" not in value and isinstance(value.get("display_name"), str):
            return {**value, "slug": slug_of(value["display_name"])}
        return value

    @model_validator(mode="before")
    @classmethod
    def _typed_traits(cls, value: Any) -> Any:
        if not isinstance(value, dict) or value.get("kind", "slurm") != "slurm":
            return value
        traits, slurm = value.get("traits"), value.get("slurm", {})
        if not isinstance(traits, Mapping) or not isinstance(slurm, Mapping):
            return value
        rest = dict(traits)
        fields = typed_fields(rest)
        return {**value, "traits": rest, "slurm": {**fields, **slurm}} if fields else value

    @field_validator("profile_options")
    @classmethod
    def _names(cls, value: dict[str, ProfileOption]) -> dict[str, ProfileOption]:
        if len(value) > OPTION_LIMIT:
            raise BadValue(f"has more than {OPTION_LIMIT} options, which is the limit")
        for name in value:
            valid = re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}", name, re.ASCII)
            if not valid or "--" in name or name in ("profile", UNLISTED):
                raise BadValue("is not a valid option name: use letters, digits, . _ -, no --, and not 'profile'", name)
        return value

    @model_validator(mode="after")
    def _class_of_other(self) -> Profile:
        if (self.kind == "other") != bool(self.spawner_class):
            raise BadValue("kind: other requires a spawner_class (a dotted name), and the other kinds do not allow one")
        return self

    @model_validator(mode="after")
    def _one_command(self) -> Profile:
        if self.app is None:
            return self
        if self.kind != "slurm":
            raise BadValue("app is for kind: slurm; servers of the other kinds take command")
        options = (choice for option in self.profile_options.values() for choice in option.choices.values())
        if self.command is not None or any(choice.command is not None for choice in options):
            raise BadValue("app and command cannot be used together: the application's command is app.command")
        return self

    @model_validator(mode="after")
    def _only_of_jobs(self) -> Profile:
        if self.extend is not None and self.kind != "slurm":
            raise BadValue("extend is for kind: slurm; servers of the other kinds have no time limit of Slurm's")
        if self.idle is not None and self.kind != "slurm":
            raise BadValue("idle is for kind: slurm; servers of the other kinds hold no resources of Slurm's")
        return self

    @model_validator(mode="after")
    def _starts_untouched(self) -> Profile:
        """The unchanged profile must be allowed, otherwise every start without a change would be refused."""
        settings = self.as_override()
        for name, option in self.profile_options.items():
            part_settings = option.setting_of(settings)
            if option.range is not None and option.range.default is None and part_settings is not None:
                try:
                    option.choose(part_settings)
                except ValueError:
                    raise BadValue(
                        f"profile_options.{name}.range has no default, and the profile's value of "
                        f"{option.range.sets} is outside the range: give the range a default, or change the field"
                    ) from None
            initial = option.initial(settings)
            if initial is not None:
                settings = put_over(settings, option.choose(initial)[1])
        if settings.slurm.gpus and settings.slurm.shards:
            raise BadValue("GPUs and shards cannot be requested together, and the unchanged profile requests both")
        return self

    def cluster_with(self, options: Mapping[str, Any]) -> str:
        """The cluster that the profile or one of these values of its options names; empty for the hub's first.

        Raises RequestError for a value that an option does not have.
        """
        unchanged, name = self.as_override(), self.slurm.cluster
        for key, option in self.profile_options.items():
            value = options.get(key, option.initial(unchanged))
            if value is not None:
                name = option.choose(value)[1].slurm.cluster or name
        return name or ""

    def as_override(self) -> Override:
        """The profile's own fields, before any option."""
        return Override(
            slurm=self.slurm,
            environment=self.environment,
            placement=self.placement,
            command=self.command,
            default_url=self.default_url,
        )


class SlugTaken(ConfigError):
    """A profile of a file has the slug of another profile, and is left out."""


LEAST_MEMORY = 512
"""MiB below which a profile's memory is almost surely meant in other units: a notebook server alone takes a third."""


def doubts_of(profile: Profile) -> tuple[str, ...]:
    """Values of a profile that are valid and almost surely mistakes, each in a sentence for its author.

    Whether the author wrote a unit is not known here.
    """
    memories = {"slurm.memory": profile.slurm.memory}
    for name, option in profile.profile_options.items():
        path = f"profile_options.{name}"
        memories |= {
            f"{path}.choices.{key}.slurm.memory": choice.slurm.memory for key, choice in option.choices.items()
        }
        if option.range is not None and option.range.sets == "slurm.memory":
            memories[f"{path}.range.max"] = option.range.override(option.range.max).slurm.memory
    return tuple(
        f"profile {profile.slug}: {field}: {memory(mib)} is less than a notebook server needs; did you mean {mib}G?"
        for field, mib in memories.items()
        if mib is not None and 0 < mib < LEAST_MEMORY
    )
