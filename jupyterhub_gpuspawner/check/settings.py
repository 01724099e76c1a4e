"""Settings that have no effect or a name that none has, and what in the hub's own configuration is doubtful."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from jupyterhub.app import JupyterHub
from jupyterhub.traitlets import Command
from traitlets import Dict, List, Set, TraitError
from traitlets.config import Config, Configurable
from traitlets.config.loader import LazyConfigValue
from traitlets.utils.importstring import import_item

from jupyterhub_gpuspawner.check.finding import Code, Context, Finding, Severity, names_no_cluster
from jupyterhub_gpuspawner.check.inherited_settings import ignored_by, unused_methods
from jupyterhub_gpuspawner.check.now_effective import now_effective
from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extension import Fault, installed, load_each
from jupyterhub_gpuspawner.hub.extensions import HUB, TRAITS, chosen, names_for
from jupyterhub_gpuspawner.hub.site.database import write_fix
from jupyterhub_gpuspawner.hub.spawner_bases import LocalProcessSpawner, SlurmSpawner
from jupyterhub_gpuspawner.hub.spawners.classes import classes_beside, set_by, submits_to_slurm
from jupyterhub_gpuspawner.site import configuration
from jupyterhub_gpuspawner.site.configured import configured_value, exposed_database, refused_names, settings_classes
from jupyterhub_gpuspawner.site.database import DEFAULT, write_fault
from jupyterhub_gpuspawner.site.page_templates import lost_parts
from jupyterhub_gpuspawner.site.values import ConfiguredValue, configured_values, problem_of, refused, subclasses

IGNORED = Code("setting-ignored", "A setting of batchspawner or wrapspawner has no effect here.")
REFUSED = Code("user-refused", "The configuration names a user for whom no server can ever be started, such as root.")
EXPOSED = Code("database-exposed", "Other accounts of the hub's machine can read the hub's SQLite database.")
READ_ONLY = Code(
    "database-read-only", "The hub's database takes no changes: its file is read-only, or the disk is full."
)
TEMPLATE = Code(
    "template-replaces",
    "A page template of the site's leaves out messages, links or the cards of servers, or has a block or uses a macro "
    "that the templates it names do not have.",
)

UNSEEN = Code(
    "database-unseen",
    "The hub's SQLite database has a path relative to the hub's working directory, which is not known, since no hub "
    "with this configuration is seen running. Who can read it, and its users and groups, are not checked.",
)
_HIDDEN = (
    "not looked at: {} is in the working directory of the hub, which is not seen running, and not beside the "
    "configuration"
)


@names_no_cluster
async def check_settings(context: Context) -> AsyncIterator[Finding]:
    """Look at the settings alone."""
    config = context.site.config
    for setting in ignored_by(context.spawner):
        yield IGNORED.warning(setting.where, setting.text)
    for finding in now_effective(context):
        yield finding
    for cls in unused_classes(context):
        yield UNUSED.warning(cls.__name__, *_of_unused(cls))
    for text in refused_names(config):
        yield REFUSED.error("users", text)
    extensions = [
        str(extension.folder / "templates") for extension in chosen(getattr(context.spawner, "extensions", None))
    ]
    for text in lost_parts(configured_value(config.JupyterHub.get("template_paths", [])), extensions):
        yield TEMPLATE.warning("c.JupyterHub.template_paths", text)
    db_url = str(config.JupyterHub.get("db_url", DEFAULT))
    if configuration.is_unseen(db_url):
        if "db_url" in config.JupyterHub:  # for the default one, most likely no hub has run yet
            yield UNSEEN.ok("database", _HIDDEN.format(configuration.sqlite_file(db_url)))
        return
    if exposed := exposed_database(db_url):
        yield EXPOSED.warning("database", exposed)
    with suppress(ConfigError):  # there is none yet, or it is no SQL database: the hub says so when it starts
        if fault := await asyncio.to_thread(write_fault, db_url, config.JupyterHub.get("db_kwargs", {})):
            text = f"it takes no changes ({fault}), so nobody could sign in, and no server start."
            yield READ_ONLY.error("database", text, write_fix(db_url))


UNUSED = Code(
    "class-unused", "The configuration defines a class of batchspawner's family that none of the hub's servers has."
)


def unused_classes(context: Context) -> Iterator[type]:
    """The classes of batchspawner's family that the configuration file defines, and no server is of."""
    named = getattr(context.spawner, "profile_classes", {}).values()
    used = {base for cls in (type(context.spawner), *named) for base in cls.__mro__}
    bases = {base for cls in context.site.classes for base in cls.__mro__[1:]}
    yield from (cls for cls in context.site.classes if cls not in used | bases)


def _of_unused(cls: type) -> tuple[str, str]:
    methods = {method.rpartition(".")[2] for method in unused_methods(cls)}
    own = {name for base in classes_beside(cls, SlurmSpawner) for name in set_by(base)}
    values = {name for name in own if name[0] != "_" and (hasattr(SlurmSpawner, name) or name.startswith("req_"))}
    names = sorted(methods | values)
    what = f" ({', '.join(names)})" if names else ""
    return (
        f"no server is of this class, so what it sets and does has no effect{what}.",
        "Set its values as c.GPUSlurmSpawner.NAME, as `gpuspawner migrate` does with the former spawner_class; or "
        "derive it from GPUSlurmSpawner, and name it as c.JupyterHub.spawner_class.",
    )


ADDED = Code("extension-added", "An extension is not named, and the hub has it since another one needs it.")
LEFT_OUT = Code("setting-left-out", "A setting is one of an extension that the hub leaves out, so it has no effect.")


@names_no_cluster
def check_left_out(context: Context) -> Iterator[Finding]:
    """Look for extensions that are not in `c.GPUProfilesSpawner.extensions`: needed by others, or with settings."""
    config, spawner_class, names = context.site.config, type(context.spawner), names_for(context.spawner)
    used = chosen(names).names
    for extension in installed():
        if extension.name in used:
            if names is not None and extension.name not in names:
                needed = f"{extension.name} is not named, and the hub has it, since another extension needs it."
                yield ADDED.warning("c.GPUProfilesSpawner.extensions", needed, f"Add {extension.name}.")
            continue
        hubs = [adds.settings for _, adds in load_each([extension], lambda left: left.hub, _unloaded, HUB)]
        owners = {cls: cls for classes in hubs for cls in classes}
        owners |= {
            traits: spawner_class
            for _, traits in load_each([extension], lambda left: left.spawner_settings, _unloaded, TRAITS)
        }
        for traits, cls in owners.items():
            own = traits.class_own_traits(config=True)
            for setting in configured_values(config, cls):
                if setting.name in own:
                    text = f"it is of the extension {extension.name}, which this hub leaves out, so it has no effect."
                    fix = f"Remove it, or add {extension.name} to c.GPUProfilesSpawner.extensions."
                    yield LEFT_OUT.warning(setting.where, text, fix)


def _unloaded(_fault: Fault) -> None:
    """Nothing is said of an extension that the hub leaves out and that could not be loaded."""


# Settings that are accepted, and do not mean what they seem to.

LOST = Code(
    "addition-ignored",
    "The configuration adds to a setting by a method of another type, such as `append` to a set, which has no effect.",
)
ONE_WORD = Code(
    "command-not-list", "A command is one text with blanks, which JupyterHub takes for the name of a program."
)


_OF_LISTS = {"extend": "append or extend", "prepend": "prepend", "inserts": "insert"}
_ADDED = {Set: ("set", _OF_LISTS), Dict: ("dict", _OF_LISTS), List: ("list", {"update": "update"})}
"""Of each kind of setting: the names in which traitlets keeps what is added without effect, and the methods."""


def doubtful(setting: ConfiguredValue) -> Iterator[Finding]:
    """Whether a setting is accepted, and does not mean what it seems to."""
    if isinstance(setting.trait, Command):
        yield from _of_command(setting)
    if not isinstance(setting.value, LazyConfigValue):
        return
    for trait, (kind, methods) in _ADDED.items():
        lost = [method for key, method in methods.items() if key in setting.value.to_dict()]
        if isinstance(setting.trait, trait) and lost:
            yield LOST.error(
                setting.where,
                f"this setting is a {kind}, to which {lost[0]} adds nothing.",
                f"Use {setting.where}.{'extend' if kind == 'list' else 'update'}.",
            )


def _of_command(setting: ConfiguredValue) -> Iterator[Finding]:
    words = [setting.value] if isinstance(setting.value, str) else setting.value
    program = words[0] if isinstance(words, (list, tuple)) and words else ""
    if not isinstance(program, str) or len(program.split()) < 2 or Path(program).exists():
        return
    try:
        meant = shlex.split(program)
    except ValueError:
        meant = program.split()
    yield ONE_WORD.error(
        setting.where,
        f"{program!r} is taken for the name of one program, which does not exist.",
        f"Write {setting.where} = {[*meant, *words[1:]]!r}.",
    )


# Settings of the hub's classes: misspelt names, which traitlets accepts and ignores, and values of a wrong type.
#
# And the one line of configuration without which nothing of this package is used.

SETTING = Code("setting-unknown", "The configuration sets something that the class does not have, so it has no effect.")
CLASS = Code("class-unknown", "The configuration has a section whose name is close to that of a class, and is not one.")
INVALID = Code(
    "hub-setting-invalid", "JupyterHub does not start with a setting: its type is wrong, or its class is missing."
)
DEFAULT_SPAWNER = Code(
    "spawner-class-missing",
    "The configuration does not set `c.JupyterHub.spawner_class`, so the hub starts every server on its own machine.",
)
ALIKE = 0.75
"""How close a name must be to be suggested; see :func:`difflib.get_close_matches`."""


@names_no_cluster
def check_names(context: Context) -> Iterator[Finding]:
    """Look at each name in the configuration."""
    config = context.site.config
    try:
        app = configuration.application(config)
        used = classes_in_use(context, app)
    except ConfigError as error:
        yield _invalid(error)
        return
    except ImportError as error:
        yield INVALID.error(configuration.CONFIG_FILE, str(error))
        return
    if "spawner_class" not in config.JupyterHub:
        yield default_spawner()
    reported = {setting.where for setting in ignored_by(context.spawner)}
    for finding in _unknown(config, (*used, *settings_classes(), *app.classes)):
        if finding.where not in reported:
            yield finding
    wrong: dict[str, Finding] = {}
    for cls in used:
        doubts = (finding for setting in configured_values(config, cls) for finding in doubtful(setting))
        for finding in (*map(_invalid, refused(config, cls)), *doubts):
            wrong.setdefault(finding.where, finding)  # a setting of a base class is that of several
    yield from wrong.values()


def default_spawner() -> Finding:
    """The finding for a configuration that names no spawner."""
    return DEFAULT_SPAWNER.error(
        configuration.SPAWNER_CLASS,
        "it is not set, so the hub uses nothing of this package and starts every server on its own machine.",
        "Set it to 'gpu-profiles'; if another file that loads this one sets it (load_subconfig), check that file.",
    )


def _invalid(error: ConfigError) -> Finding:
    return INVALID.error(error.where or configuration.CONFIG_FILE, error.fault, error.hint)


def classes_in_use(context: Context, app: Any) -> tuple[Any, ...]:
    """The configurable classes of which this hub makes objects; ``app`` is its application. Raises ConfigError."""
    classes: list[Any] = [
        JupyterHub,
        type(context.spawner),
        LocalProcessSpawner,
        *settings_classes(names_for(context.spawner)),
    ]
    for name in ("authenticator_class", "proxy_class"):
        try:
            classes.append(getattr(app, name))
        except TraitError as error:  # a plugin that is not installed
            raise ConfigError(problem_of(error), where=f"c.JupyterHub.{name}") from error
    named = getattr(context.spawner, "profile_classes", {})
    others = (profile.spawner_class for profile in context.profiles if profile.spawner_class is not None)
    classes += [named.get(name) or import_item(name) for name in others]
    classes += [cls for cls in named.values() if submits_to_slurm(cls)]
    return tuple(dict.fromkeys(classes))


def misspelt(site: configuration.Site) -> Iterator[Finding]:
    """Sections and settings whose names are close to others, in a configuration with which the hub does not start."""
    classes = (JupyterHub, site.spawner_class, LocalProcessSpawner, *settings_classes())
    for finding in _unknown(site.config, classes):
        if finding.severity is Severity.ERROR:
            yield finding


def _unknown(config: Config, classes: tuple[Any, ...]) -> Iterator[Finding]:
    """Sections and settings that no class has.

    Sections of classes that this hub does not use are common, so only one with a similar name is reported.
    """
    class_names = {cls.__name__ for cls in subclasses(Configurable)}
    sections = {name.lower(): name for cls in classes for name in cls.section_names()}
    for section, values in sorted(config.items()):
        set_here = sorted(name for name in values if not name[:1].isupper()) if isinstance(values, dict) else []
        if not set_here:
            continue
        if section in sections.values():
            owners = [cls for cls in classes if section in cls.section_names()]
            names = {name for cls in owners for name in cls.class_trait_names(config=True)}
            for name in set_here:
                if name not in names:
                    yield _unknown_setting(section, name, names)
        elif section not in class_names and (near := get_close_matches(section.lower(), sections, 1, cutoff=0.85)):
            yield CLASS.error(
                f"c.{section}",
                f"there is no class {section}, so {', '.join(set_here)} {'has' if len(set_here) == 1 else 'have'} no "
                "effect.",
                f"Write c.{sections[near[0]]}.{set_here[0]}.",
            )


def _unknown_setting(section: str, name: str, names: Iterable[str]) -> Finding:
    where, text = f"c.{section}.{name}", f"{section} has no setting {name}, so this line has no effect."
    if near := get_close_matches(name, names, n=1, cutoff=ALIKE):
        return SETTING.error(where, text, f"Write c.{section}.{near[0]}.")
    return SETTING.warning(where, text, "Remove it, or look for its present name in the settings' reference.")
