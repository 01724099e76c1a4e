"""What an extension is, and which ones are there.

An extension is one subject beside the core, such as courses or messages. It is a package whose ``EXTENSION`` says what
it adds. Those of this package are the folders of ``extensions/``; others are found by the entry-point group
``jupyterhub_gpuspawner.extensions``. Importing one is cheap and needs no hub: everything that it adds is named by a
reference, as in an entry point, and loaded when it is needed.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from jupyterhub_gpuspawner.errors import ConfigError

GROUP = "jupyterhub_gpuspawner.extensions"
"""The entry-point group; each entry leads to the package that has ``EXTENSION``."""


@dataclass(frozen=True)
class Command:
    """A command of ``gpuspawner``."""

    target: str
    """The reference of its :class:`click.Command`."""
    sentence: str
    """What it does, for the list of commands."""
    unconfigured: str = ""
    """What ``gpuspawner check`` says of it where a hub has no configuration yet, in a sentence; empty: nothing."""


@dataclass(frozen=True)
class Extension:
    """What an extension adds. A reference is ``.module:name``, relative to its package, or ``package.module:name``."""

    name: str
    """That of its folder, and in ``c.GPUProfilesSpawner.extensions``."""
    about: str
    """One sentence for an administrator."""
    needs: tuple[str, ...] = ()
    """Names of the extensions without which it cannot be there; it may import these."""
    hub: str = ""
    """The :class:`~.hub.extension.HubExtension`: what it adds to a hub that runs."""
    spawner_settings: str = ""
    """A class of traits that become settings of ``c.GPUSlurmSpawner``; its ``check_settings``, where it has one, is
    called with those of each cluster, and raises ConfigError for what no server can be started or run with."""
    profile_fields: str = ""
    """A tuple of :class:`~.profiles.sections.ProfileField`: fields of a profile that it adds."""
    option_fields: str = ""
    """The same for fields of an option of a profile."""
    commands: Mapping[str, Command] = field(default_factory=dict)
    """Commands of ``gpuspawner`` by their names."""
    command_options: Mapping[str, str] = field(default_factory=dict)
    """By the name of a command that is no extension's: what is called with it, and returns it with more options."""
    checks: str = ""
    """A module; each of its functions whose name begins with ``check_`` is a check of ``gpuspawner check``."""
    judge: str = ""
    """The :data:`~.check.finding.Judge` of ``gpuspawner check``: why a request can never run on a cluster."""
    requests: str = ""
    """A function of a site, a choice, a user, their groups and a server: each :class:`~.profiles.resolve.JobRequest`
    that the user makes with a profile which it offers beside the hub's, with notes; for ``gpuspawner show``."""
    login_scripts: Mapping[str, str] = field(default_factory=dict)
    """Scripts of ``wrapper_dir`` that run as the hub's own account, by their names: files of its package."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files of its package that an admin installs, by their paths in the folder that ``gpuspawner files`` writes."""
    launcher: str = ""
    """The :class:`~.batch.carried.Carried`: what it adds to the launcher of the jobs that use it."""
    forget: str = ""
    """A function of a connection to the hub's database and a user's name, which deletes what is kept there of them and
    returns how many there were by what they are, such as ``{"idle time": 3}``."""
    package: str = ""
    """The package that declares it."""

    def __post_init__(self) -> None:
        """Raises TypeError for what is gone through and is of another type; a reference is tried where it is loaded."""
        if not isinstance(self.needs, (tuple, list)):
            raise TypeError(f"needs must be a tuple of names, not {self.needs!r}")
        for name, kind in {"commands": Command, "command_options": str, "login_scripts": str, "files": str}.items():
            value = getattr(self, name)
            if not isinstance(value, Mapping) or not all(isinstance(of_name, kind) for of_name in value.values()):
                raise TypeError(f"{name} must be a mapping of names to {kind.__name__}, not {value!r}")

    def load(self, reference: str) -> Any:
        """What a reference of this extension's leads to; raises whatever its import raises."""
        module, _, name = reference.partition(":")
        loaded = import_module(module, self.package)
        return getattr(loaded, name) if name else loaded

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return Path(str(import_module(self.package).__file__)).parent


@dataclass(frozen=True)
class Fault:
    """Why an extension is left out."""

    name: str
    """The name of its folder or entry point."""
    text: str
    error: BaseException | None = None

    def __str__(self) -> str:
        return f"The extension {self.name} is left out: {self.text}"


@dataclass(frozen=True)
class Extensions:
    """The extensions of an installation or of a hub, those that others need before these, and what is left out."""

    present: tuple[Extension, ...] = ()
    faults: tuple[Fault, ...] = ()

    def __iter__(self) -> Iterator[Extension]:
        return iter(self.present)

    @property
    def names(self) -> tuple[str, ...]:
        """In order."""
        return tuple(extension.name for extension in self.present)

    def only(self, names: Iterable[str]) -> Extensions:
        """Those with these names, and those that they need; raises ConfigError for a name that is not there."""
        wanted, faulty = set(names), {fault.name for fault in self.faults}
        for name in sorted(wanted - {*self.names} - faulty):
            there = f"There are {', '.join(self.names) or 'none'}."
            raise ConfigError(f"there is no extension {name!r}.", where="c.GPUProfilesSpawner.extensions", hint=there)
        for extension in reversed(self.present):
            wanted |= {*extension.needs} if extension.name in wanted else set()
        chosen = tuple(extension for extension in self.present if extension.name in wanted)
        return Extensions(chosen, tuple(fault for fault in self.faults if fault.name in wanted))


@cache
def installed() -> Extensions:
    """All that are installed; imports their packages, and nothing that they refer to."""
    folder = import_module("jupyterhub_gpuspawner.extensions")
    own = ((module.name, f"{folder.__name__}.{module.name}") for module in pkgutil.iter_modules(folder.__path__))
    foreign = ((entry.name, entry.value) for entry in entry_points(group=GROUP))
    return found(*own, *foreign)


def found(*packages: tuple[str, str]) -> Extensions:
    """The extensions of these packages, each by the name that was found; one that cannot be used is a fault."""
    extensions: dict[str, Extension] = {}
    faults = []
    for name, package in packages:
        try:
            extension = import_module(package).EXTENSION
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever another's module raises, the hub goes on
            faults.append(Fault(name, f"{type(error).__name__}: {error}", error))
            continue
        if not isinstance(extension, Extension) or extension.name != name:
            faults.append(Fault(name, f"EXTENSION of {package} must be an Extension with the name {name!r}."))
        elif name in extensions:
            faults.append(Fault(name, f"{package} and {extensions[name].package} have the same name."))
        else:
            extensions[name] = replace(extension, package=package)
    return _in_order(extensions, faults)


def _in_order(extensions: dict[str, Extension], faults: Sequence[Fault]) -> Extensions:
    """Those that others need first; one whose needs are not there, or need it in a circle, is a fault."""
    ordered: dict[str, Extension] = {}
    waiting = dict(extensions)
    while ready := [name for name, extension in waiting.items() if ordered.keys() >= set(extension.needs)]:
        ordered |= {name: waiting.pop(name) for name in ready}
    return Extensions(
        tuple(ordered.values()),
        (
            *faults,
            *(
                Fault(name, f"it needs {', '.join(sorted(set(extension.needs) - ordered.keys()))}, not there.")
                for name, extension in waiting.items()
            ),
        ),
    )


@dataclass(frozen=True)
class Kind:
    """What a reference must lead to."""

    name: str
    """Such as ``a function``."""
    fits: Callable[[Any], bool]


ANYTHING = Kind("anything", lambda _: True)
FUNCTION = Kind("a function", callable)


def load_each(
    extensions: Iterable[Extension],
    reference: Callable[[Extension], str],
    on_fault: Callable[[Fault], object],
    kind: Kind = ANYTHING,
) -> Iterator[tuple[Extension, Any]]:
    """What a reference of each leads to, for those that have it.

    ``on_fault`` is told of one that cannot be loaded, or is of another kind.
    """
    for extension in extensions:
        if name := reference(extension):
            try:
                loaded = extension.load(name)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - as above
                text = f"{name} cannot be loaded: {type(error).__name__}: {' '.join(str(error).split())}"
                on_fault(Fault(extension.name, text, error))
                continue
            if kind.fits(loaded):
                yield extension, loaded
            else:
                on_fault(Fault(extension.name, f"{name} must be {kind.name}."))
