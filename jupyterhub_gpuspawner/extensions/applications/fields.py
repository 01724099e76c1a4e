"""A web application that a server runs in the place of JupyterLab, as its profile says it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import field_validator, model_validator

from jupyterhub_gpuspawner.profiles.profile import Profile, Words
from jupyterhub_gpuspawner.profiles.schema import BadValue, Frozen, Guarded, Prose, matching
from jupyterhub_gpuspawner.profiles.sections import ProfileField, Program, ServerCommand

SOCKET = "{socket}"
"""Replaced by the path of the application's unix socket."""

KINDS: Mapping[str, Mapping[str, Any]] = yaml.safe_load(Path(__file__).with_name("kinds.yaml").read_text("utf-8"))
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

    def launched(self, server: str) -> ServerCommand:
        """The command for the launcher; behind the hub's sign-in the part after ``--`` is the application's.

        jupyter-server-proxy is looked for beside ``server`` first, then in the job's PATH. It runs outside the
        profile's container, which therefore need not contain it.
        """
        if self.auth == "own":
            return ServerCommand(self._all())
        absolute = ("--absolute-url",) if self.absolute_url else ()
        gate = (GATE, server, "--ready", self.ready or "/", *absolute, "--")
        return ServerCommand(self._all(), outside=gate, shared=(SOCKET_FOLDER,), beside=server)


def _one_command(profile: Profile) -> None:
    options = (choice for option in profile.profile_options.values() for choice in option.choices.values())
    if profile.command is not None or any(choice.command is not None for choice in options):
        raise BadValue("app and command cannot be used together: the application's command is app.command")


def _program(app: Application | None) -> Program | None:
    return Program(app.title, app.icon, app.readiness, app.launched) if app is not None else None


APP = ProfileField[Application | None](
    "app",
    Annotated[Application | None, Guarded("command")],
    "A web application in the place of JupyterLab, by the name of a known kind or as a table; Slurm jobs only. "
    "Default: JupyterLab, or what ``command`` starts.",
    None,
    needs_job="servers of the other kinds take command",
    check=_one_command,
    program=_program,
)
FIELDS = (APP,)
