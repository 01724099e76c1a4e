"""Converts one configuration: the settings and profiles of the new hub, and every difference."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from traitlets.config import Config

from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.migrate.draft import ConvertedProfile, Difference, Draft, Kind
from jupyterhub_gpuspawner.migrate.forms import convert_form, convert_moss, form_template
from jupyterhub_gpuspawner.migrate.old_hub import OldHub, System, read_old_hub
from jupyterhub_gpuspawner.migrate.profiles import convert_one, convert_profiles
from jupyterhub_gpuspawner.migrate.settings import SiteSettings
from jupyterhub_gpuspawner.migrate.template import (
    DEFAULT_TEMPLATE,
    BatchTemplate,
    option_changes,
    read_template,
    sbatch_options,
    spelled,
)
from jupyterhub_gpuspawner.profiles.file_rights import ALLOWANCES, EVERYTHING, TRAITS, Rights, require
from jupyterhub_gpuspawner.profiles.profile import parse_profile
from jupyterhub_gpuspawner.profiles.schema import dotted
from jupyterhub_gpuspawner.site.configuration import SOMEBODY, Site

SPAWNERS = frozenset(
    {
        "SlurmSpawner",
        "MultiSlurmSpawner",
        "ProfilesSpawner",
        "DockerProfilesSpawner",
        "WrapSpawner",
        "MOSlurmSpawner",
        "SlurmFormSpawner",
    }
)


@dataclass(frozen=True)
class Migration:
    """The new hub."""

    old_sections: tuple[str, ...]
    """Sections of the configuration that belong to the older spawners."""
    settings: dict[str, Any]
    """Of ``c.GPUSlurmSpawner``."""
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
    requests = {name: setting.value for name, setting in settings.items() if name.startswith("req_")}
    if hub.system is System.MOSS:
        site.convert(convert_moss(hub, template, draft))
        site.as_defaults()
    elif hub.system is System.SLURMFORMSPAWNER:
        site.convert(convert_form(hub, template, draft))
        site.as_defaults()
    elif hub.system is System.WRAPSPAWNER:
        site.convert()
        site.as_defaults()
        convert_profiles(hub, requests, template, draft)
    else:
        site.convert()
        convert_one(site, requests, template, draft)
    _tidy(draft)
    _of_form(hub, draft)
    _of_gpus(draft)
    _of_class(hub, draft)
    in_files, in_configuration, allows, classes = _by_rights(draft)
    draft.differences += _of_options(draft)
    sections = tuple(sorted(hub.old_sections & set(hub.config)))
    return Migration(sections, draft.settings, in_files, in_configuration, allows, classes, tuple(draft.differences))


def _template(hub: OldHub, draft: Draft) -> BatchTemplate:
    setting = hub.settings().get("batch_script")
    if hub.system is System.SLURMFORMSPAWNER:
        return form_template(hub, draft)
    text = str(setting.value) if setting is not None else DEFAULT_TEMPLATE
    return read_template(text, frozenset({"output"} if hub.system is System.MOSS else ()))


def _tidy(draft: Draft) -> None:
    """The first profile stays the default; names first and counts as numbers, as people write them."""
    for at, profile in enumerate(draft.profiles):
        document = profile.document
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
                draft.settings.pop(name, None)
                draft.decide(
                    f"c.{section}.{name}",
                    hub.section(section)[name],
                    "as it is" if section == "Spawner" else "left out",
                    "the profiles make the form, and what a form sends has to be one of their options",
                    "Remove it, and give the profiles a profile_options for each of its fields.",
                )


def _of_gpus(draft: Draft) -> None:
    """A hub whose jobs never asked for a GPU."""
    texts = [repr(profile.document) for profile in draft.profiles] + [repr(draft.settings)]
    if not any(word in text for text in texts for word in ("gpus", "gres", "gpu_type", "shards")):
        draft.decide(
            "slurm.gpus",
            "no GPU requested",
            "no GPU requested",
            "a job without --gres is allocated no GPU; whether it sees all of a node's or none depends on the site",
            "Give the profiles that need GPUs slurm.gpus.",
        )


def _of_class(hub: OldHub, draft: Draft) -> None:
    """The spawner itself, which may be a class of the site's own."""
    draft.note(
        Kind.CHANGED,
        "c.JupyterHub.spawner_class",
        hub.spawner,
        "gpu-profiles",
        "this package's spawner, which offers the profiles",
    )
    if hub.spawner not in SPAWNERS:
        draft.decide(
            hub.spawner,
            "a spawner class of the site's own",
            "left out",
            "it is derived from a class of the older spawners",
            "Look whether it did anything that is still needed: docs/howto/add-a-profile.md has the fields for most.",
        )


def _by_rights(
    draft: Draft,
) -> tuple[tuple[dict[str, Any], ...], tuple[dict[str, Any], ...], tuple[str, ...], tuple[str, ...]]:
    """Profiles for files, profiles for the configuration, and what files must be allowed."""
    files, configuration, allows, classes = [], [], set[str](), set[str]()
    for converted in draft.profiles:
        document = converted.document
        profile = parse_profile(document, lambda path, slug=converted.slug: f"profile {slug}: {dotted(path)}")  # type: ignore[misc]
        traits = sorted(set(profile.traits) - set(TRAITS))
        if traits:
            configuration.append(document)
            draft.note(
                Kind.CHANGED,
                f"profile {profile.slug}",
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
    changes: dict[tuple[str, str | None, str | None, str], list[str]] = defaultdict(list)
    for profile, now in zip(draft.profiles, _scripts(draft), strict=True):
        if profile.was is None or now is None:
            continue
        for change in option_changes(profile.was, sbatch_options(now)):
            changes[change.option, change.was, change.now, change.why].append(profile.slug)
    jobs = sum(profile.was is not None for profile in draft.profiles)
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
        for (option, was, now, why), slugs in changes.items()
    ]


def _scripts(draft: Draft) -> Iterable[str | None]:
    """The script of each profile for its default choice; None if it is no Slurm job."""
    config = Config(
        {
            "GPUSlurmSpawner": {"hub_name": "hub", **draft.settings},
            "GPUProfilesSpawner": {"profiles": [profile.document for profile in draft.profiles]},
        }
    )
    site = Site(config, GPUProfilesSpawner)
    for profile in draft.profiles:
        yield None if profile.was is None else _script(site, profile)


def _script(site: Site, profile: ConvertedProfile) -> str | None:
    spawner = site.spawner(SOMEBODY.name)
    try:
        spawner.prepare(spawner.resolve({"profile": profile.slug}))
        return str(spawner.batch_job(SOMEBODY).script)
    except GPUSpawnerError as error:
        raise ConfigError(f"the result has no batch script: {error}", where=f"profile {profile.slug}") from error
