"""Fields of a profile, and of its options, that are an extension's, such as ``idle``: their classes have those of all.

Which of them a hub has is asked when its profiles are read: a field of an extension that it leaves out is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar

from pydantic import Field, create_model, model_validator
from traitlets.log import get_logger

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extension import Extension, Kind, installed, load_each
from jupyterhub_gpuspawner.profiles.option import ProfileOption
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.schema import BadValue, Frozen, Part

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
    """The picture beside its name, one of ``components/icon.css``."""
    readiness: str
    """The path, below the server's, at which JupyterHub and the hub's own check ask the server."""
    launched: Callable[[str], ServerCommand]
    """Its command for the launcher, by the one that starts JupyterLab (``c.Spawner.cmd``)."""


@dataclass(frozen=True)
class ProfileField(Generic[T]):
    """A field of a profile, or of one of its options, that an extension adds."""

    name: str
    type: Any
    """Its type, as in a model of pydantic's; with :class:`~.schema.Guarded` for one that files may not always set."""
    about: str
    """What it means, for the reference."""
    default: T
    """Its value in a profile that does not set it."""
    needs_job: str = ""
    """Why it is for ``kind: slurm`` alone, such as "servers of the other kinds hold no resources of Slurm's"."""
    check: Callable[[Any], None] | None = None
    """Raises BadValue for a profile, or an option, in which it cannot stand beside another field."""
    program: Callable[[T], Program | None] | None = None
    """What a server runs in the place of JupyterLab where the field has this value; None: JupyterLab."""

    def of(self, owner: Frozen | None) -> T:
        """Its value in a profile or an option; the default where there is none."""
        value: T = getattr(owner, self.name, self.default)
        return value


FIELDS = Kind(
    "a tuple of ProfileField",
    lambda fields: isinstance(fields, tuple) and all(isinstance(field, ProfileField) for field in fields),
)


Fields = Mapping[str, tuple[str, ProfileField[Any]]]
"""By their names, each with its extension's name."""


@cache
def profile_fields() -> Fields:
    """The fields of a profile of all extensions that are installed."""
    return _loaded(lambda extension: extension.profile_fields)


@cache
def option_fields() -> Fields:
    """The fields of an option likewise."""
    return _loaded(lambda extension: extension.option_fields)


def _loaded(reference: Callable[[Extension], str]) -> Fields:
    loaded = load_each(installed(), reference, lambda fault: get_logger().error(fault), FIELDS)
    return {field.name: (extension.name, field) for extension, fields in loaded for field in fields}


def program_of(profile: Profile | None) -> Program | None:
    """What runs in the place of JupyterLab, and of the profile's ``command``; None: nothing does.

    An extension that raises is named in the log, and its field counts for nothing.
    """
    for extension, field in profile_fields().values():
        try:
            if field.program and (program := field.program(field.of(profile))):
                return program
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the server starts, whatever an extension does
            get_logger().error("The extension %s is left out: %s failed: %r", extension, field.name, error)
    return None


@cache
def profile_class() -> type[Profile]:
    """:class:`Profile` with the fields of all extensions that are installed, in its options, too."""
    options: dict[str, Any] = {}
    if option_fields():
        options = {"profile_options": (dict[str, option_class()], Field(default_factory=dict))}  # type: ignore[misc]
    return _with_fields(Profile, profile_fields(), options)


@cache
def option_class() -> type[ProfileOption]:
    """:class:`ProfileOption` with the fields of all extensions that are installed."""
    return _with_fields(ProfileOption, option_fields(), {})


def _with_fields(base: type[Part], fields: Fields, more: Mapping[str, Any]) -> type[Part]:
    if not fields and not more:
        return base
    validators: dict[str, Any] = {
        f"_check_{name}": model_validator(mode="after")(_checked(field)) for name, (_, field) in fields.items()
    }
    definitions: dict[str, Any] = {
        name: (field.type, Field(default=field.default, description=field.about)) for name, (_, field) in fields.items()
    }
    return create_model(
        base.__name__,
        __base__=base,
        __doc__=base.__doc__,
        __module__=base.__module__,
        __validators__=validators,
        **definitions,
        **more,
    )


def _checked(field: ProfileField[Any]) -> Callable[[Part], Part]:
    def check(owner: Part) -> Part:
        if field.name in owner.model_fields_set and field.of(owner) != field.default:
            if field.needs_job and getattr(owner, "kind", "slurm") != "slurm":
                raise BadValue(f"{field.name} is for kind: slurm; {field.needs_job}")
            if field.check is not None:
                try:
                    field.check(owner)
                except BadValue:
                    raise
                except Exception as error:
                    raise BadValue(f"{field.name} cannot be checked: {type(error).__name__}: {error}") from error
        return owner

    return check


def refuse_left_out(
    profile: Profile, extensions: Collection[str] | None, where: Callable[[Sequence[str | int]], str]
) -> None:
    """Raise ConfigError for a field that is set, and is of an extension other than these; None: of any."""
    for owner, path, name, extension in _set_fields(profile):
        if extensions is not None and extension not in extensions and name in owner.model_fields_set:
            raise ConfigError(
                f"this field is of the extension {extension}, which this hub leaves out.",
                where=where((*path, name)),
                hint=f"Add {extension} to c.GPUProfilesSpawner.extensions, or remove the field.",
            )


def _set_fields(profile: Profile) -> Iterator[tuple[Frozen, tuple[str, ...], str, str]]:
    """Each field of extensions: whose it is, the path of that, its name, and its extension's."""
    yield from ((profile, (), name, extension) for name, (extension, _) in profile_fields().items())
    for option, value in profile.profile_options.items():
        path = ("profile_options", option)
        yield from ((value, path, name, extension) for name, (extension, _) in option_fields().items())
