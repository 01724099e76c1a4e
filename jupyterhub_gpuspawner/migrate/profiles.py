"""Converts batchspawner's one kind of server, and wrapspawner's profiles, into documents of the profile schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from traitlets.utils.importstring import import_item

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.spawners.inherited_settings import BATCHSPAWNER, Effect
from jupyterhub_gpuspawner.migrate.draft import ConvertedProfile, Draft, Kind
from jupyterhub_gpuspawner.migrate.old_hub import OldHub
from jupyterhub_gpuspawner.migrate.settings import REQUESTS, SiteSettings, old_options, plain
from jupyterhub_gpuspawner.migrate.template import BatchTemplate
from jupyterhub_gpuspawner.profiles.profile import slug_of
from jupyterhub_gpuspawner.profiles.wrapspawner import TYPED, as_document, typed_fields

SERVER = "Notebook server"
_TABLE = {setting.name: setting for setting in BATCHSPAWNER}
_WRAPPER = {
    "form_template": "the form is this package's",
    "first_template": "the form is this package's",
    "input_template": "the form is this package's",
    "child_class": "each profile says which spawner starts its server",
    "child_config": "each profile says which spawner starts its server",
}


def convert_one(site: SiteSettings, values: Mapping[str, Any], template: BatchTemplate, draft: Draft) -> None:
    """A hub of batchspawner alone becomes a hub with one profile."""
    rest = dict(site.requests)
    slurm = {name: value for name, value in typed_fields(rest).items() if value is not None}
    document = {"display_name": SERVER, "slug": "server", "slurm": _typed(slurm, template)}
    draft.profiles.append(ConvertedProfile(document, old_options(template, values)))
    for name, value in sorted(site.requests.items()):
        draft.moved(site.where(name), value, f"profile server: slurm.{TYPED.get(name[4:], 'gpus')}")


def convert_profiles(hub: OldHub, values: Mapping[str, Any], template: BatchTemplate, draft: Draft) -> None:
    """wrapspawner's profiles; raises ConfigError for one that is no tuple of its."""
    profiles: Sequence[Any] = ()
    for section in ("WrapSpawner", "OptionsFormSpawner", "ProfilesSpawner", "DockerProfilesSpawner"):
        for name, value in sorted(hub.section(section).items()):
            if name == "profiles":
                profiles = value
            elif name in _WRAPPER:
                draft.note(Kind.DROPPED, f"c.{section}.{name}", value, "", _WRAPPER[name])
            else:
                draft.decide(
                    f"c.{section}.{name}", value, "left out", "profiles do not read it", "Look what depends on it."
                )
    if "DockerProfilesSpawner" in (hub.spawner, *hub.config):
        draft.note(
            Kind.DROPPED,
            "DockerProfilesSpawner",
            "a list of Docker images",
            "",
            "it needs nvidia-docker-plugin, which is no longer developed; containers of a Slurm job are Apptainer's",
        )
    for at, item in enumerate(profiles):
        _profile(at, item, values, template, draft)


def _profile(at: int, item: Any, values: Mapping[str, Any], template: BatchTemplate, draft: Draft) -> None:
    where = f"c.ProfilesSpawner.profiles[{at}]"
    try:
        document = as_document(item, slug_of)
    except ValueError as error:
        raise ConfigError(str(error), where=where) from error
    document.setdefault("slug", slug_of(document["display_name"]))
    named = document.get("spawner_class", "")
    if named and not _can_be_imported(named):
        draft.decide(
            where,
            f"{document['display_name']} ({named})",
            "left out",
            "the class cannot be imported here, and a hub does not start with a profile whose class it does not find",
            "Install it, and write a profile of kind: other; the class goes into "
            "c.GPUProfilesSpawner.profiles_dir_classes.",
        )
        return
    *_, traits = item
    pair = len(item) == 2
    was = None
    if document["kind"] == "slurm":
        own = {name if name.startswith("req_") or not pair else f"req_{name}": value for name, value in traits.items()}
        was = old_options(template, {**values, **own})
        slurm = document["slurm"]
        document["slurm"] = _typed(slurm, template)
        for name in sorted(set(slurm) - set(document["slurm"])):
            why = "the template fixes the option, so the profile's value had no effect"
            draft.note(Kind.DROPPED, f"{where}: {name}", slurm[name], "", why)
        _without_effect(document, where, template, draft)
        del document["kind"]  # the default
    draft.profiles.append(
        ConvertedProfile({name: value for name, value in document.items() if value not in ({}, None)}, was)
    )
    draft.moved(where, document["display_name"], f"profile {document['slug']}")


def _can_be_imported(dotted_name: str) -> bool:
    try:
        import_item(dotted_name)
    except ImportError:
        return False
    return True


def _typed(slurm: dict[str, Any], template: BatchTemplate) -> dict[str, Any]:
    """The typed request, without what a template fixes, and with the type of GPU that it names."""
    fixed = {TYPED.get(name, name) for name in template.constants} if template.typed else set()
    fields = {name: value for name, value in slurm.items() if name not in fixed}
    if template.typed and "gpu_type" in template.constants and fields.get("gpus"):
        fields["gpu_type"] = template.constants["gpu_type"]
    return fields


def _without_effect(document: dict[str, Any], where: str, template: BatchTemplate, draft: Draft) -> None:
    """Remove the traits that have no effect, and make shell lines the environment's."""
    traits = document["traits"]
    for name in sorted(traits):
        row = _TABLE.get(name)
        if name == "req_prologue":
            document.setdefault("environment", {})["setup"] = traits.pop(name).strip("\n").split("\n")
            draft.moved(f"{where}: {name}", document["environment"]["setup"], "environment.setup")
        elif row is not None and name not in REQUESTS and row.effect is not Effect.KEPT:
            if row.effect is Effect.TEMPLATE and not template.typed:
                continue
            value = traits.pop(name)
            draft.note(Kind.DROPPED, f"{where}: {name}", value, "", plain(row.remark))
