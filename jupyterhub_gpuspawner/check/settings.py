"""Settings that have no effect or a name that none has, and what in the hub's own configuration is doubtful."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from jupyterhub.app import JupyterHub
from jupyterhub.traitlets import Command
from traitlets import Dict, List, Set, TraitError, TraitType
from traitlets.config import Config, Configurable
from traitlets.config.loader import LazyConfigValue
from traitlets.utils.importstring import import_item

from jupyterhub_gpuspawner.check.finding import Code, Context, Finding
from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.registration import SETTINGS_CLASSES
from jupyterhub_gpuspawner.hub.site.account import configured_value, refused_names
from jupyterhub_gpuspawner.hub.site.database import DEFAULT, exposed_database
from jupyterhub_gpuspawner.hub.site.slurm_settings import former_settings
from jupyterhub_gpuspawner.hub.site.templates import lost_parts
from jupyterhub_gpuspawner.hub.spawner_bases import LocalProcessSpawner
from jupyterhub_gpuspawner.site.configuration import CONFIG_FILE, application, is_unseen, sqlite_file
from jupyterhub_gpuspawner.site.values import ConfiguredValue, configured_values, problem_of, refused

IGNORED = Code("setting-ignored", "A setting of batchspawner, wrapspawner or an earlier version has no effect here.")
REFUSED = Code("user-refused", "The configuration names a user for whom no server can ever be started, such as root.")
EXPOSED = Code("database-exposed", "Other accounts of the hub's machine can read the hub's SQLite database.")
TEMPLATE = Code(
    "template-replaces", "A page template of the site's leaves out messages, links or the cards of servers."
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


async def check_settings(context: Context) -> list[Finding]:
    """Look at the settings alone."""
    config = context.site.config
    findings = [IGNORED.warning(setting.where, setting.text) for setting in context.spawner.ignored_settings()]
    findings += [IGNORED.warning(f"c.{section}.{name}", text) for section, name, text in former_settings(config)]
    findings += [REFUSED.error("users", text) for text in refused_names(config)]
    folders = configured_value(config.JupyterHub.get("template_paths", []))
    findings += [TEMPLATE.warning("c.JupyterHub.template_paths", text) for text in lost_parts(folders)]
    db_url = str(config.JupyterHub.get("db_url", DEFAULT))
    if is_unseen(db_url):
        if "db_url" in config.JupyterHub:  # for the default one, most likely no hub has run yet
            findings.append(UNSEEN.ok("database", _HIDDEN.format(sqlite_file(db_url))))
    elif exposed := exposed_database(db_url):
        findings.append(EXPOSED.warning("database", exposed))
    return findings


# Settings that are accepted, and do not mean what they seem to.

LOST = Code(
    "addition-ignored",
    "The configuration adds to a setting by a method of another type, such as `append` to a set, which has no effect.",
)
ONE_WORD = Code(
    "command-not-list", "A command is one text with blanks, which JupyterHub takes for the name of a program."
)


def doubtful(config: Config, cls: type[Configurable]) -> Iterator[Finding]:
    """The settings that are accepted, and do not mean what they seem to."""
    for setting in configured_values(config, cls):
        if isinstance(setting.value, LazyConfigValue):
            if method := _lost(setting.trait, setting.value):
                kind = next(name for type_, name in _KINDS.items() if isinstance(setting.trait, type_))
                yield LOST.error(
                    setting.where,
                    f"this setting is a {kind}, to which {method} adds nothing.",
                    f"Use {setting.where}.{'extend' if kind == 'list' else 'update'}.",
                )
        elif isinstance(setting.trait, Command):
            yield from _of_command(setting)


def _lost(trait: TraitType[Any, Any], value: LazyConfigValue) -> str:
    """The method by which something was added to a setting that does not have it; empty for none."""
    adds = value.to_dict()
    if isinstance(trait, (Set, Dict)):
        return next((name for key, name in _OF_LISTS.items() if key in adds), "")
    if isinstance(trait, List) and "update" in adds:
        return "update"
    return ""


_KINDS: dict[type, str] = {Set: "set", Dict: "dict", List: "list"}
_OF_LISTS = {"extend": "append or extend", "prepend": "prepend", "inserts": "insert"}
"""Methods of lists, by the names in which traitlets keeps what they add."""


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


async def check_names(context: Context) -> list[Finding]:
    """Look at each name in the configuration."""
    try:
        app = application(context.site.config)
        used = classes_in_use(context, app)
    except (ConfigError, ImportError) as error:
        return [_invalid(error) if isinstance(error, ConfigError) else INVALID.error(CONFIG_FILE, str(error))]
    findings = [] if "spawner_class" in context.site.config.JupyterHub else [_without_slurm()]
    reported = {setting.where for setting in context.spawner.ignored_settings()}
    reported |= {f"c.{section}.{name}" for section, name, _ in former_settings(context.site.config)}
    findings += [finding for finding in _findings(context, (*used, *app.classes)) if finding.where not in reported]
    wrong: dict[str, Finding] = {}
    for cls in used:
        for finding in (*map(_invalid, refused(context.site.config, cls)), *doubtful(context.site.config, cls)):
            wrong.setdefault(finding.where, finding)  # a setting of a base class is that of several
    return [*findings, *wrong.values()]


def _without_slurm() -> Finding:
    return DEFAULT_SPAWNER.error(
        "c.JupyterHub.spawner_class",
        "it is not set, so the hub uses nothing of this package and starts every server on its own machine.",
        "Set it to 'gpu-profiles'; if another file that loads this one sets it (load_subconfig), check that file.",
    )


def _invalid(error: ConfigError) -> Finding:
    where = error.where or CONFIG_FILE
    return INVALID.error(where, error.message.removeprefix(f"{where}: "), error.hint)


def classes_in_use(context: Context, app: Any) -> tuple[Any, ...]:
    """The configurable classes of which this hub makes objects; ``app`` is its application. Raises ConfigError."""
    classes: list[Any] = [JupyterHub, type(context.spawner), LocalProcessSpawner]
    classes += SETTINGS_CLASSES
    for name in ("authenticator_class", "proxy_class"):
        try:
            classes.append(getattr(app, name))
        except TraitError as error:  # a plugin that is not installed
            raise ConfigError(problem_of(error), where=f"c.JupyterHub.{name}") from error
    classes += [import_item(profile.spawner_class) for profile in context.profiles if profile.spawner_class is not None]
    return tuple(dict.fromkeys(classes))


def _findings(context: Context, classes: tuple[Any, ...]) -> Iterator[Finding]:
    class_names = {cls.__name__ for cls in _every_class(Configurable)}
    sections = {name for cls in classes for name in cls.section_names()}
    for section, values in sorted(context.site.config.items()):
        set_here = sorted(name for name in values if not name[:1].isupper()) if isinstance(values, dict) else []
        if not set_here:
            continue
        if section not in sections:
            if section not in class_names:
                yield from _unknown_class(section, set_here, sections)
            continue
        names = {
            name for cls in classes if section in cls.section_names() for name in cls.class_trait_names(config=True)
        }
        for name in set_here:
            if name not in names:
                yield _unknown_setting(section, name, names)


def _unknown_class(section: str, names: list[str], sections: Iterable[str]) -> Iterator[Finding]:
    """Sections of classes that this hub does not use are common, so only one with a similar name is reported."""
    by_lower = {section.lower(): section for section in sections}
    if near := get_close_matches(section.lower(), by_lower, n=1, cutoff=0.85):
        name = by_lower[near[0]]
        yield CLASS.error(
            f"c.{section}",
            f"there is no class {section}, so {', '.join(names)} {'has' if len(names) == 1 else 'have'} no effect.",
            f"Write c.{name}.{names[0]}.",
        )


def _unknown_setting(section: str, name: str, names: Iterable[str]) -> Finding:
    where, text = f"c.{section}.{name}", f"{section} has no setting {name}, so this line has no effect."
    near = get_close_matches(name, names, n=1, cutoff=ALIKE)
    if near:
        return SETTING.error(where, text, f"Write c.{section}.{near[0]}.")
    return SETTING.warning(where, text, "Remove it, or look for its present name in the settings' reference.")


def _every_class(cls: type[Any]) -> Iterator[type[Any]]:
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _every_class(subclass)
