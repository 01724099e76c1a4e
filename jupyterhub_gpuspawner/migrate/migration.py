"""The whole migration of one configuration: what is to be written, and every difference."""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from traitlets.config import Config

from jupyterhub_gpuspawner.check.site import SOMEBODY, Site
from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.migrate.batch_template import DEFAULT_TEMPLATE, read_template
from jupyterhub_gpuspawner.migrate.configuration.old_hub import System, read_old_hub, settings_left
from jupyterhub_gpuspawner.migrate.configuration.source import Edited, SourceEditor
from jupyterhub_gpuspawner.migrate.configuration.stand_in import SPAWNERS, absent_modules
from jupyterhub_gpuspawner.migrate.difference import Difference, Kind
from jupyterhub_gpuspawner.migrate.draft import Draft, Offer
from jupyterhub_gpuspawner.migrate.forms.moss import convert_moss
from jupyterhub_gpuspawner.migrate.forms.slurm_form import convert_form, form_template
from jupyterhub_gpuspawner.migrate.profile_tuples import convert_one, convert_profiles
from jupyterhub_gpuspawner.migrate.sbatch_options import option_changes, sbatch_options, spelled
from jupyterhub_gpuspawner.migrate.site_settings import SiteSettings
from jupyterhub_gpuspawner.profiles.files.rights import ALLOWANCES, EVERYTHING, TRAITS, Rights, require
from jupyterhub_gpuspawner.profiles.profile import parse_profile
from jupyterhub_gpuspawner.profiles.schema import dotted

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from jupyterhub_gpuspawner.migrate.batch_template import BatchTemplate
    from jupyterhub_gpuspawner.migrate.configuration.old_hub import OldHub


@dataclass(frozen=True)
class Migration:
    """The result."""

    system: System
    edited: str
    """The configuration without the statements of the older spawners."""
    settings: dict[str, Any]
    """Settings of ``c.GPUSlurmSpawner`` to write."""
    in_files: tuple[dict[str, Any], ...]
    """Profiles for a YAML file."""
    in_configuration: tuple[dict[str, Any], ...]
    """Profiles that a file may not have."""
    allows: tuple[str, ...]
    """``profiles_dir_allows``."""
    classes: tuple[str, ...]
    """``profiles_dir_classes``."""
    differences: tuple[Difference, ...]


def migrate(path: Path) -> Migration:
    """Convert a configuration file; raises ConfigError if it cannot be read or is of another spawner."""
    hub = read_old_hub(path)
    draft = Draft()
    settings = hub.settings()
    template = _template(hub, draft)
    site = SiteSettings(hub, template, draft)
    values = {name: each.value for name, each in settings.items() if name.startswith("req_")}
    if hub.system is System.MOSS:
        site.convert(convert_moss(hub, template, draft))
        site.as_defaults()
    elif hub.system is System.SLURMFORMSPAWNER:
        site.convert(convert_form(hub, template, draft))
        site.as_defaults()
    elif hub.system is System.WRAPSPAWNER:
        site.convert()
        site.as_defaults()
        convert_profiles(hub, values, template, draft)
    else:
        site.convert()
        convert_one(site, values, template, draft)
    _tidy(draft)
    _of_form(hub, draft)
    _of_gpus(draft)
    edited = _edited(hub, draft)
    in_files, in_configuration, allows, classes = _places(draft)
    draft.differences += _of_options(draft)
    return Migration(
        hub.system,
        edited,
        draft.settings,
        in_files,
        in_configuration,
        allows,
        classes,
        tuple(draft.differences),
    )


def _template(hub: OldHub, draft: Draft) -> BatchTemplate:
    setting = hub.settings().get("batch_script")
    if hub.system is System.SLURMFORMSPAWNER:
        return form_template(hub, draft)
    text = str(setting.value) if setting is not None else DEFAULT_TEMPLATE
    return read_template(text, frozenset({"output"} if hub.system is System.MOSS else ()))


def _tidy(draft: Draft) -> None:
    """The first profile stays the default; names first and counts as numbers, as people write them."""
    for at, offer in enumerate(draft.offers):
        document = offer.document
        document.pop("default", None)
        names: dict[str, Any] = {
            name: document.pop(name) for name in ("display_name", "slug", "description") if name in document
        }
        rest = dict(document)
        document.clear()
        document |= names | ({"default": True} if at == 0 else {}) | rest
        slurm = document.get("slurm", {})
        for name in ("cpus", "gpus", "shards", "nodes"):
            if str(slurm.get(name, "")).isdigit():
                slurm[name] = int(slurm[name])


def _of_form(hub: OldHub, draft: Draft) -> None:
    """A form of the site's own, wherever it is set."""
    for section in ("Spawner", *sorted(hub.old_sections)):
        for name in ("options_form", "options_from_form"):
            if name in hub.section(section):
                draft.keep.pop((section, name), None)
                draft.decide(
                    f"c.{section}.{name}",
                    hub.section(section)[name],
                    "as it is" if section == "Spawner" else "left out",
                    "the profiles make the form, and what a form sends has to be one of their options",
                    "Remove it, and give the profiles a profile_options for each of its fields.",
                )


def _of_gpus(draft: Draft) -> None:
    """A hub whose jobs never asked for a GPU."""
    texts = [repr(offer.document) for offer in draft.offers] + [repr(draft.settings)]
    if not any(word in text for text in texts for word in ("gpus", "gres", "gpu_type", "shards")):
        draft.decide(
            "slurm.gpus",
            "no GPU requested",
            "no GPU requested",
            "a job without --gres is allocated no GPU; whether it sees all of a node's or none depends on the site",
            "Give the profiles that need GPUs slurm.gpus.",
        )


def _edited(hub: OldHub, draft: Draft) -> str:
    """The configuration's text; what is not renamed in it is written anew."""
    editor = SourceEditor(hub.source, sections=hub.old_sections, packages=SPAWNERS)
    result: Edited = editor.edited(draft.keep.keys())
    for setting in settings_left(hub, result.text):
        draft.decide(
            setting,
            setting.value,
            "as it is",
            "it is set in another file, which is not changed, and would still be read",
            "Remove it there.",
        )
    for (section, name), value in draft.keep.items():
        if (section, name) in result.renamed:
            continue
        if _is_literal(value):
            draft.settings.setdefault(name, value)
        else:
            draft.decide(
                f"c.{section}.{name}",
                value,
                "left out",
                "its value is not text, a number, a list or a table, and its statement uses what was removed",
                f"Set c.GPUSlurmSpawner.{name} again.",
            )
    for name in result.code:
        draft.decide(
            name,
            "code in the configuration",
            "left out",
            "it is derived from a class of the older spawners, or uses one",
            "Look whether it did anything that is still needed: docs/howto/add-a-profile.md has the fields for most.",
        )
    if result.helpers:
        draft.note(
            Kind.DROPPED, ", ".join(result.helpers), "definitions and imports", "", "only what was removed used them"
        )
    for name in hub.stand_ins:
        if name in absent_modules(result.text):
            draft.decide(
                f"import {name}",
                name,
                "as it is",
                "the module is not installed here, and was replaced while the file was read",
                f"Install {name} where the hub runs.",
            )
    draft.note(
        Kind.CHANGED,
        "c.JupyterHub.spawner_class",
        hub.spawner,
        "gpu-profiles",
        "this package's spawner, which offers the profiles",
    )
    return result.text


def _is_literal(value: object) -> bool:
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError):
        return False


def _places(
    draft: Draft,
) -> tuple[tuple[dict[str, Any], ...], tuple[dict[str, Any], ...], tuple[str, ...], tuple[str, ...]]:
    """Profiles for files, profiles for the configuration, and what files must be allowed."""
    files, configuration, allows, classes = [], [], set[str](), set[str]()
    for offer in draft.offers:
        document = offer.document
        profile = parse_profile(document, lambda path, slug=offer.slug: f"profile {slug}: {dotted(path)}")  # type: ignore[misc]
        traits = sorted(set(profile.traits) - set(TRAITS))
        if traits:
            configuration.append(document)
            draft.note(
                Kind.CHANGED,
                f"profile {offer.slug}",
                ", ".join(traits),
                "in jupyterhub_config.py",
                "profile files may not have these settings",
            )
            continue
        files.append(document)
        needed = frozenset({profile.spawner_class}) if profile.spawner_class else frozenset()
        classes |= needed
        for word in ALLOWANCES:
            try:
                require(profile, Rights(EVERYTHING.allowed - {word}, needed), dotted)
            except ConfigError:
                allows.add(word)
    return (
        tuple(files),
        tuple(configuration),
        tuple(word for word in ALLOWANCES if word in allows),
        tuple(sorted(classes)),
    )


def _of_options(draft: Draft) -> list[Difference]:
    """The options of sbatch in which the jobs differ, one difference for all profiles that share it."""
    found: dict[tuple[str, str | None, str | None, str], list[str]] = defaultdict(list)
    for offer, now in zip(draft.offers, _scripts(draft), strict=True):
        if offer.was is None or now is None:
            continue
        for each in option_changes(offer.was, sbatch_options(now)):
            found[each.option, each.was, each.now, each.why].append(offer.slug)
    jobs = sum(offer.was is not None for offer in draft.offers)
    return [
        Difference(
            Kind.CHANGED,
            f"--{option}",
            spelled(option, was),
            spelled(option, now),
            why or "the new script has it as the profile says",
            "" if why else "Compare the profile with what you had.",
            () if len(slugs) == jobs else tuple(slugs),
        )
        for (option, was, now, why), slugs in found.items()
    ]


def _scripts(draft: Draft) -> Iterable[str | None]:
    """The script of each profile for its default choice; None if it is no Slurm job."""
    slurm = {name: value for (_, name), value in draft.keep.items() if name in _COMPARED}
    config = Config(
        {
            "GPUSlurmSpawner": {"hub_name": "hub", **slurm, **draft.settings},
            "GPUProfilesSpawner": {"profiles": [offer.document for offer in draft.offers]},
        }
    )
    site = Site(config, GPUProfilesSpawner)
    for offer in draft.offers:
        yield None if offer.was is None else _script(site, offer)


_COMPARED = frozenset({"req_prologue", "req_epilogue", "req_keepvars_extra", "log_dir", "req_nnodes"})
"""Kept settings that a script depends on."""


def _script(site: Site, offer: Offer) -> str | None:
    spawner = site.spawner(SOMEBODY.name)
    try:
        spawner.prepare(spawner.resolve({"profile": offer.slug}))
        return str(spawner.child_spawner.batch_job(SOMEBODY).script)
    except GPUSpawnerError as error:
        raise ConfigError(f"the result has no batch script: {error}", where=f"profile {offer.slug}") from error
