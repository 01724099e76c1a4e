"""Fields of a profile that are an extension's, such as ``idle``: the profile's class has those of all extensions.

Which of them a hub has is asked when its profiles are read: a field of an extension that it leaves out is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar

from pydantic import Field, create_model, model_validator
from traitlets.log import get_logger

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extension import Kind, installed, load_each
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.schema import BadValue

T = TypeVar("T")


@dataclass(frozen=True)
class ServerCommand:
    """The command that a job starts; the profile's container holds the part in :attr:`words` alone."""

    words: tuple[str, ...]
    outside: tuple[str, ...] = ()
    """The words before them, of what runs outside the container."""
    shared: tuple[str, ...] = ()
    """Folders that both use, which the container binds."""
    beside: str = ""
    """See :attr:`python_beside`; empty: the first of all words."""

    @property
    def all_words(self) -> tuple[str, ...]:
        """The whole command."""
        return (*self.outside, *self.words)

    @property
    def python_beside(self) -> str:
        """A program beside which a Python for the launcher may lie."""
        return self.beside or self.all_words[0]


@dataclass(frozen=True)
class Program:
    """A program in the place of JupyterLab."""

    title: str
    """Its name for people."""
    icon: str
    """The picture beside its name, one of ``gpuspawner_icon.html``."""
    readiness: str
    """The path, below the server's, at which JupyterHub and the hub's own check ask the server."""
    launched: Callable[[str], ServerCommand]
    """Its command for the launcher, by the one that starts JupyterLab (``c.Spawner.cmd``)."""


@dataclass(frozen=True)
class ProfileField(Generic[T]):
    """A field of a profile that an extension adds."""

    name: str
    type: Any
    """Its type, as in a model of pydantic's; with :class:`~.schema.Guarded` for one that files may not always set."""
    about: str
    """What it means, for the reference."""
    default: T
    """Its value in a profile that does not set it."""
    needs_job: str = ""
    """Why it is for ``kind: slurm`` alone, such as "servers of the other kinds hold no resources of Slurm's"."""
    check: Callable[[Profile], None] | None = None
    """Raises BadValue for a profile in which it cannot stand beside another field."""
    program: Callable[[T], Program | None] | None = None
    """What a server runs in the place of JupyterLab where the field has this value; None: JupyterLab."""

    def of(self, profile: Profile | None) -> T:
        """Its value in a profile; the default where there is no profile."""
        value: T = getattr(profile, self.name, self.default)
        return value


FIELDS = Kind(
    "a tuple of ProfileField",
    lambda fields: isinstance(fields, tuple) and all(isinstance(field, ProfileField) for field in fields),
)


@cache
def profile_fields() -> Mapping[str, tuple[str, ProfileField[Any]]]:
    """The fields of all extensions that are installed, by their names, each with its extension's name."""
    loaded = load_each(installed(), lambda own: own.profile_fields, lambda fault: get_logger().error(fault), FIELDS)
    return {field.name: (extension.name, field) for extension, fields in loaded for field in fields}


def program_of(profile: Profile | None) -> Program | None:
    """What runs in the place of JupyterLab, and of the profile's ``command``; None: nothing does."""
    of_fields = (field.program(field.of(profile)) for _, field in profile_fields().values() if field.program)
    return next(filter(None, of_fields), None)


@cache
def profile_class() -> type[Profile]:
    """:class:`Profile` with the fields of all extensions that are installed."""
    fields = [field for _, field in profile_fields().values()]
    if not fields:
        return Profile
    validators: dict[str, Any] = {
        f"_check_{field.name}": model_validator(mode="after")(_checked(field)) for field in fields
    }
    definitions: dict[str, Any] = {
        field.name: (field.type, Field(default=field.default, description=field.about)) for field in fields
    }
    return create_model(
        Profile.__name__,
        __base__=Profile,
        __doc__=Profile.__doc__,
        __module__=Profile.__module__,
        __validators__=validators,
        **definitions,
    )


def _checked(field: ProfileField[Any]) -> Callable[[Profile], Profile]:
    def check(profile: Profile) -> Profile:
        if field.name in profile.model_fields_set and field.of(profile) != field.default:
            if field.needs_job and profile.kind != "slurm":
                raise BadValue(f"{field.name} is for kind: slurm; {field.needs_job}")
            if field.check is not None:
                try:
                    field.check(profile)
                except BadValue:
                    raise
                except Exception as error:
                    raise BadValue(f"{field.name} cannot be checked: {type(error).__name__}: {error}") from error
        return profile

    return check


def refuse_left_out(
    profile: Profile, extensions: Collection[str] | None, where: Callable[[Sequence[str | int]], str]
) -> None:
    """Raise ConfigError for a field that is set, and is of an extension other than these; None: of any."""
    for name, (extension, _) in profile_fields().items():
        if extensions is not None and extension not in extensions and name in profile.model_fields_set:
            raise ConfigError(
                f"this field is of the extension {extension}, which this hub leaves out.",
                where=where((name,)),
                hint=f"Add {extension} to c.GPUProfilesSpawner.extensions, or remove the field.",
            )
