"""Converts one configuration: the settings and profiles of the new hub, and every difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from batchspawner import SlurmSpawner
from jupyterhub.spawner import Spawner

from jupyterhub_gpuspawner.batch.template import names_in
from jupyterhub_gpuspawner.check.inherited_settings import Effect, is_old_launcher
from jupyterhub_gpuspawner.hub.spawners.classes import (
    PLAIN,
    class_named,
    is_own,
    of_a_profile,
    submits_to_slurm,
    with_variables,
)
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.migrate.classes import setting_of
from jupyterhub_gpuspawner.migrate.forms import KNOWN
from jupyterhub_gpuspawner.migrate.moss import convert_moss
from jupyterhub_gpuspawner.migrate.new_hub import compare_options
from jupyterhub_gpuspawner.migrate.notes import note_class, note_code, note_gpus, note_spawner
from jupyterhub_gpuspawner.migrate.old_hub import CODE, OF_ALL_SERVERS, OldHub, System, read_old_hub
from jupyterhub_gpuspawner.migrate.old_script import OldProfile, OldScript, somebodys_script
from jupyterhub_gpuspawner.migrate.result import ConvertedProfile, Migration
from jupyterhub_gpuspawner.migrate.settings import (
    INHERITED,
    add_ineffective,
    between,
    command_of,
    convert_settings,
    fields_in_options,
    profiles_have_options,
    requests_as_defaults,
    shell_lines,
    source_of,
    take_submit_command,
    variables_in,
    with_values,
)
from jupyterhub_gpuspawner.migrate.slurmformspawner import convert_form, form_template
from jupyterhub_gpuspawner.migrate.template import DEFAULT_TEMPLATE, BatchTemplate, read_template
from jupyterhub_gpuspawner.migrate.values import REQUESTS, leave_out_refused, valid_requests, with_units
from jupyterhub_gpuspawner.profiles.files import ALLOWANCES, TRAITS, allowances_of
from jupyterhub_gpuspawner.profiles.parsing import parse_profile
from jupyterhub_gpuspawner.profiles.resources import NUMBER_FIELDS
from jupyterhub_gpuspawner.profiles.schema import dotted
from jupyterhub_gpuspawner.profiles.tuples import TYPED, as_document, slug_of, typed_fields


def migrate(path: Path) -> Migration:
    """Convert a configuration file; raises ConfigError if it cannot be read or is of another spawner."""
    old = read_old_hub(path)
    script = old.settings().get("batch_script")
    text = str(script.value) if script is not None else DEFAULT_TEMPLATE
    migration = Migration(old, _template(old, text))
    if old.system is System.SLURMFORMSPAWNER:
        migration.template = form_template(migration)
    take_submit_command(migration)
    if old.system is System.BATCHSPAWNER:
        convert_settings(migration)
        if not old.own_form:
            migration.requests = with_units(migration.requests, migration.settings.get("batch_script", ""))
        of_hub = migration.requests.pop("req_cluster", "")
        (_convert_own_form if old.own_form else _convert_one)(migration)
    else:
        converters = {System.MOSS: convert_moss, System.SLURMFORMSPAWNER: convert_form}
        converter = converters.get(old.system)
        convert_settings(migration, converter(migration) if converter else ())
        of_hub = migration.requests.pop("req_cluster", "")
        if all("batch_script" not in own for own in map(_settings_of, migration.old.profiles.items)):
            migration.requests = with_units(migration.requests, migration.settings.get("batch_script", ""))
        requests_as_defaults(migration)
        if converter is None:
            _convert_profiles(migration)
    _convert_clusters(migration, str(of_hub or ""))
    _without_unset(migration)
    _tidy(migration.profiles)
    note_code(migration)
    _convert_commands(migration)
    leave_out_refused(migration)
    note_gpus(migration)
    note_spawner(migration)
    compare_options(migration)
    _tidy(migration.profiles)
    _write_profiles(migration)
    if not migration.profiles and not old.own_form:
        migration.add("no_profiles", "c.GPUProfilesSpawner.profiles")
    return migration


def _template(old: OldHub, text: str) -> BatchTemplate:
    """A template of the old hub; it is kept where it has variables of a class of the site's own."""
    own = old.variables()
    template = read_template(text, old.declared() | ({"output"} if old.system is System.MOSS else set()))
    if template.typed and own & names_in(text):
        template.reasons.append("it uses variables of the site's own spawner class")
    if template.own and old.own_form:
        template.reasons.append("the site's own form gives its variables other values")
    return template


def _convert_one(migration: Migration) -> None:
    """A hub of batchspawner alone becomes a hub with one profile.

    It requests nothing where groups have settings of their own, since what a profile requests counts before these.
    """
    template = migration.template
    groups = [migration.old.section(name).get("group_overrides") for name in ("Spawner", *migration.old.sections)]
    of_hub = any(groups) and "gpu_type" not in template.constants
    fields = typed_fields({} if of_hub else dict(migration.requests))
    slurm = _with_gpu_type({name: value for name, value in fields.items() if value is not None}, template)
    document = {"display_name": "Notebook server", "slug": "server", "slurm": slurm}
    was = somebodys_script(migration.old, None, migration.command)
    unset = _unset_gpus(template, was)
    migration.profiles.append(ConvertedProfile(document, was.options if was else None, unset=unset))
    of_all, own = migration.old.section("Spawner").get("environment"), migration.old.settings().get("environment")
    if of_all and own is not None and (added := set(of_all) - set(own.value)):
        migration.add("environment_of_all", "c.Spawner.environment", ", ".join(sorted(added)), winner=own)
    if of_hub:
        requests_as_defaults(migration)
        return
    for name, value in sorted(migration.requests.items()):
        now = f"profile server: {', '.join(f'slurm.{field}' for field in typed_fields({name: value}))}"
        migration.moved(source_of(migration, name), value, now)


def _convert_own_form(migration: Migration) -> None:
    """A hub with a form of its own has no profiles: what it requested stays where form and hooks replace it."""
    was = somebodys_script(migration.old, None, migration.command)
    migration.plain = ConvertedProfile({"slug": "default"}, was.options if was else None)
    requests_as_defaults(migration)


def _settings_of(item: Any) -> Mapping[str, Any]:
    """The settings of one of them; none for what is no profile."""
    settings = item[-1] if isinstance(item, (list, tuple)) and item else None
    return settings if isinstance(settings, dict) else {}


def _convert_profiles(migration: Migration) -> None:
    """wrapspawner's profiles; or the one class that a WrapSpawner without them has its servers started by."""
    setting, profiles = migration.old.profiles.where, migration.old.profiles.items
    if migration.old.profiles.of_each_user:
        migration.add("profiles_of_each_user", setting)
    child: dict[str, tuple[str, Any]] = {}
    own = (name for name in migration.old.config if "child_class" in migration.old.section(name))
    for section in dict.fromkeys([*reversed(migration.old.wrapper_sections), *own]):
        for name, value in sorted(migration.old.section(section).items()):
            where = f"c.{section}.{name}"
            if name in ("child_class", "child_config"):
                child[name] = where, value
            elif name != "profiles" and name not in CODE:
                migration.add(KNOWN["wrapspawner"].get(name, "wrapper_setting"), where, value)
    every = (migration.old.of_profile(key) for key in migration.old.classes)
    variables = sorted({name[4:] for own in every for name in own.values if is_own(name)})
    if used := [name for name in variables if name in variables_in(migration.template)]:
        migration.settings["template_variables"] = dict.fromkeys(used, "")
    if "DockerProfilesSpawner" in (migration.old.spawner, *migration.old.config):
        migration.add("docker_profiles", "DockerProfilesSpawner")
    if profiles:
        for where, value in child.values():
            migration.add("wrapper_child", where, value)
    elif child:
        (where, config), (_, child_class) = (child.get(name, ("", None)) for name in ("child_config", "child_class"))
        where = where or child["child_class"][0]
        _convert_profile(migration, where, ("Notebook server", "server", child_class or _LOCAL, config or {}))
    for at, item in enumerate(profiles):
        _convert_profile(migration, f"{setting}[{at}]", item)


def _unset_gpus(template: BatchTemplate, was: OldScript | None) -> str:
    """The variable that a script was rendered without where its template, which is kept, has two for GPUs.

    Fields do not tell which of them was set, and both have a value then.
    """
    if was is None or template.typed or not names_in(template.text) >= _GPU_VARIABLES:
        return ""
    unset = [name for name in sorted(_GPU_VARIABLES) if not was.variables.get(name)]
    return unset[0] if len(unset) == 1 else ""


_GPU_VARIABLES = frozenset({"gres", "ngpus"})


def _without_unset(migration: Migration) -> None:
    """Have kept templates without these variables: that of the hub where all its profiles agree, or those of each."""
    of_hub = migration.settings.get("batch_script", "")
    jobs = [profile for profile in migration.profiles if profile.document.get("kind", "slurm") == "slurm"]
    sharing = [profile for profile in jobs if "batch_script" not in profile.document.get("traits", {})]
    asking = [profile.unset for profile in sharing if profile.document.get("slurm", {}).get("gpus")]
    shared = asking[0] if of_hub and len({*asking}) == 1 else ""
    if shared:
        migration.settings["batch_script"] = with_values(of_hub, [(shared, '""')])
    for profile in jobs:
        if profile.unset and not (profile in sharing and profile.unset == shared):
            traits = profile.document.setdefault("traits", {})
            traits["batch_script"] = with_values(traits.get("batch_script", of_hub), [(profile.unset, '""')])


_LOCAL = "jupyterhub.spawner.LocalProcessSpawner"
"""What a WrapSpawner starts that is not told otherwise."""


def _convert_profile(migration: Migration, where: str, item: Any) -> None:
    old_profile = _old_profile(item)
    item = _with_class(migration, where, item)
    item = _with_valid_requests(migration, where, item)
    try:
        item = _with_sites_options(migration, item)
        document = as_document(_with_fields(item))
    except (ValueError, TypeError) as error:
        shown = item[0] if isinstance(item, (tuple, list)) and item else item
        migration.add("profile_refused", where, shown, fault=str(error).rstrip("."))
        return
    document.setdefault("slug", slug_of(document["display_name"]))
    spawner_class = document.get("spawner_class", "")
    if spawner_class and isinstance(class_named(spawner_class), str):
        of_file = not isinstance(item[2], str)
        migration.add(
            "class_of_the_file" if of_file else "class_not_found",
            where,
            f"{document['display_name']} ({spawner_class})",
        )
        return
    was, unset = None, ""
    if document["kind"] == "slurm":
        every = [migration.old.section(name).get("environment") for name in ("Spawner", *migration.old.sections)]
        if any(every) and isinstance(item[-1].get("environment"), dict):
            migration.add("environment_added", f"{where}: environment", ", ".join(map(str, item[-1]["environment"])))
        own_script, template = document["traits"].get("batch_script"), migration.template
        if isinstance(own_script, str):
            of_command = {name: template.constants[name] for name in template.of_command}
            template = _template(migration.old, own_script)
            template.constants |= of_command
        was = somebodys_script(migration.old, old_profile, migration.command) if old_profile else None
        unset = _unset_gpus(template, was)
        slurm = document["slurm"]
        document["slurm"] = _without_constants(slurm, template)
        if isinstance(own_script, str):
            _convert_own_template(migration, document, where, template)
        document["slurm"] = _without_needless(document["slurm"], migration)
        for name in sorted(set(slurm) - set(document["slurm"])):
            if slurm[name] is not None:
                migration.add("fixed_for_profile", f"{where}: {name}", slurm[name])
        _convert_traits(migration, document, where, template)
        del document["kind"]  # the default
    document = {name: value for name, value in document.items() if value not in ({}, None)}
    options = was.options if was else None
    migration.profiles.append(ConvertedProfile(document, options, where=where, old=old_profile, unset=unset))
    migration.moved(where, document["display_name"], f"profile {document['slug']}")


def _with_class(migration: Migration, where: str, item: Any) -> Any:
    """The profile as a job of ours, with what a class of the site's own sets."""
    if not (isinstance(item, (list, tuple)) and len(item) == 4 and isinstance(item[3], dict)):
        return item
    display_name, key, _, traits = item
    cls = migration.old.classes.get(key) if isinstance(key, str) else None
    if cls is None:
        named = class_named(item[2])
        return (display_name, key, PLAIN, traits) if submits_to_slurm(named) else item
    own, config = migration.old.of_profile(key), migration.old.config
    note_class(migration, cls, own)
    values = of_a_profile(own.values, cls)
    for name in sorted(own.values.keys() - values.keys()):
        if name in Spawner.class_traits(config=True):
            migration.add("replaced_by_wrapper", setting_of(cls, name, config), own.values[name])
    settings = migration.old.settings()
    for name in OF_ALL_SERVERS:
        value = values.pop(name, None)
        if value is not None and (name not in settings or settings[name].value != value):
            migration.add("same_for_all_servers", f"{where}: {setting_of(cls, name, config)}", value, name=name)
    for name, value in sorted(values.items()):
        if name not in traits:
            of_own = ": its template_variables" if is_own(name) else ""
            migration.moved(setting_of(cls, name, config), value, f"profile {key}{of_own}")
    return display_name, key, PLAIN, with_variables({**values, **traits}, cls)


def _convert_own_template(migration: Migration, document: dict[str, Any], where: str, template: BatchTemplate) -> None:
    """A profile's own script in place of the hub's: its options become fields, and its lines the profile's settings."""
    traits, slurm = document["traits"], document["slurm"]
    of_hub = migration.template
    for variable in of_hub.constants.keys() - of_hub.of_command if of_hub.typed else ():
        slurm.setdefault(TYPED.get(variable, variable), None)
    if not template.typed:
        reasons = "; ".join(dict.fromkeys(template.reasons))
        migration.add("template_kept", f"{where}: batch_script", template.text, reasons=reasons)
        return
    del traits["batch_script"]
    if not of_hub.typed:
        traits["batch_script"] = ""  # that of the hub is kept
    fixed = {f"req_{name}": value for name, value in template.constants.items() if name != "gpu_type"}
    slurm.update(typed_fields({name: value for name, value in fixed.items() if (name, value) != ("req_nnodes", "1")}))
    if template.extra:
        slurm["extra"] = "\n".join(filter(None, [slurm.get("extra"), *template.extra]))
    for name in ("req_prologue", "req_epilogue"):
        site = migration.old.settings().get(name) if shell_lines(template, name)[1] is not None else None
        traits.setdefault(name, "" if site is None else str(site.value))
    if template.dropped:
        migration.add("shell_options", f"{where}: batch_script", "; ".join(dict.fromkeys(template.dropped)))
    if template.step:
        migration.add("job_step", f"{where}: batch_script", template.step)
    migration.moved(f"{where}: batch_script", template.text, f"profile {document['slug']}")


def _without_needless(slurm: dict[str, Any], migration: Migration) -> dict[str, Any]:
    """The typed request, without the fields that remove a default that there is not."""
    defaults = typed_fields(dict(migration.requests))
    return {name: value for name, value in slurm.items() if value is not None or name in (*defaults, "cluster")}


def _with_sites_options(migration: Migration, item: Any) -> Any:
    """The profile with the site's ``req_options`` if it has none, and others have."""
    site = migration.old.settings().get("req_options")
    if site is None or not profiles_have_options(migration) or as_document(item)["kind"] != "slurm":
        return item
    return (*item[:-1], {"req_options": site.value, **item[-1]})


def _old_profile(item: Any) -> OldProfile | None:
    """Key, class and settings of a profile as wrapspawner has it; None for one that it could not have."""
    match item:
        case (str(), key, spawner_class, dict() as settings):
            return str(key), spawner_class, settings
        case (str() as name, dict() as settings):
            return name, SlurmSpawner, _full_names(settings)
    return None


def _full_names(traits: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a pair, whose names may omit ``req_``."""
    return {f"req_{name}" if f"req_{name}" in SlurmSpawner.class_traits() else name: traits[name] for name in traits}


def _with_valid_requests(migration: Migration, where: str, item: Any) -> Any:
    """The profile without the requests that no field takes."""
    match item:
        case (*names, dict() as traits) if len(names) in (1, 3):
            if len(names) == 1:
                traits = _full_names(traits)
            script = str(traits.get("batch_script", migration.settings.get("batch_script", "")))
            return (*names, with_units(valid_requests(migration, traits, f"{where}: "), script))
    return item


def _with_fields(item: Any) -> Any:
    """The profile with settings in place of the options in its ``req_options`` that they express."""
    traits = item[-1] if isinstance(item, tuple | list) and item else None
    if not isinstance(traits, dict) or not isinstance(traits.get("req_options"), str):
        return item
    fields, rest = fields_in_options(traits["req_options"], traits)
    return (*item[:-1], {**traits, **fields, "req_options": rest}) if fields else item


def _without_constants(slurm: dict[str, Any], template: BatchTemplate) -> dict[str, Any]:
    """The typed request, without what a template fixes, and with the type of GPU that it names."""
    if not template.typed:
        return slurm
    fixed = {TYPED.get(name, name) for name in template.constants}
    if "gres" in fixed:
        fixed |= {"gpus", "gpu_type", "shards"}
    return _with_gpu_type({name: value for name, value in slurm.items() if name not in fixed}, template)


def _with_gpu_type(slurm: dict[str, Any], template: BatchTemplate) -> dict[str, Any]:
    """The typed request, with the type of GPU that a template names."""
    if template.typed and "gpu_type" in template.constants and slurm.get("gpus"):
        return {**slurm, "gpu_type": template.constants["gpu_type"]}
    return slurm


def _convert_traits(migration: Migration, document: dict[str, Any], where: str, template: BatchTemplate) -> None:
    """Remove the traits that have no effect, and make shell lines the environment's."""
    traits = document["traits"]
    used = variables_in(template)
    for name, value in [*traits.get("template_variables", {}).items()]:
        if name in used:
            migration.moved(f"{where}: req_{name}", value, f"{name} in its setting template_variables")
        else:
            del traits["template_variables"][name]
            migration.add("own_setting", f"{where}: req_{name}", value)
    if not traits.get("template_variables", True):
        del traits["template_variables"]
    ineffective = (Effect.NONE, Effect.TEMPLATE) if template.typed else (Effect.NONE,)
    for name in sorted(traits):
        row = INHERITED.get(name)
        if name in ("req_prologue", "req_epilogue"):
            _convert_shell_lines(migration, document, where, name, template)
        elif name == "batch_submit_cmd":
            migration.add(
                "submit_command", f"{where}: {name}", traits.pop(name), fault="it is the same for all servers"
            )
        elif name == "req_host":
            _convert_host(migration, traits.pop(name), where)
        elif row is not None and name not in REQUESTS and row.effect in ineffective:
            add_ineffective(migration, f"{where}: {name}", traits.pop(name), row)
        elif name not in GPUSlurmSpawner.class_traits():
            migration.add("dropped_by_wrapspawner", f"{where}: {name}", traits.pop(name))


def _convert_shell_lines(
    migration: Migration, document: dict[str, Any], where: str, name: str, template: BatchTemplate
) -> None:
    """A profile's lines replace those of the hub; they are the profile's environment where that runs them first."""
    traits, of_profile = document["traits"], template is not migration.template
    own = str(traits.pop(name)).strip("\n")
    lines, at = shell_lines(template, name)
    if template.typed and at is None:
        if own:
            migration.add("never_ran", f"{where}: {name}", own, variable=name.removeprefix("req_"))
        if not of_profile:
            return
        own = ""
    if name == "req_prologue" and at == 0 and own and not lines and name not in migration.old.settings():
        strict = [*template.shell_options, *own.split("\n"), "set +euo pipefail"]
        document.setdefault("environment", {})["setup"] = strict if template.shell_options else own.split("\n")
        migration.moved(f"{where}: {name}", document["environment"]["setup"], "environment.setup")
        return
    text = between(lines, at, own)
    if text or not of_profile or name in migration.settings:
        traits[name] = template.under_its_options(text) if name == "req_prologue" and template.own else text
    if not of_profile:
        migration.moved(f"{where}: {name}", own, f"its setting {name}, with the template's lines around them")


def _convert_host(migration: Migration, host: Any, where: str) -> None:
    """A profile of another cluster."""
    of_hub = migration.old.settings().get("req_host")
    if of_hub is not None and of_hub.value == host:
        add_ineffective(migration, f"{where}: req_host", host, INHERITED["req_host"])
    else:
        migration.add("other_host", f"{where}: req_host", host)


HERE = "local"
"""The name of the cluster whose slurm.conf the hub has, where profiles are for others, too."""
_COMMANDS = ("batch_submit_cmd", "batch_query_cmd", "batch_cancel_cmd")


def _convert_clusters(migration: Migration, of_hub: str) -> None:
    """Name the clusters of the profiles: one setting where all have the same one, else one of `clusters` for each.

    ``of_hub`` is the hub's own ``req_cluster``, empty for that of its slurm.conf.
    """
    settings = migration.old.settings()
    where = str(settings.get("req_cluster", "req_cluster"))
    by_command = any("{cluster}" in str(settings[name].value) for name in _COMMANDS if name in settings)
    jobs, names = migration.jobs, []
    for profile in jobs:
        name = _own_cluster(profile, of_hub)
        if name and by_command and profile.old_options is not None:
            profile.old_options = {**profile.old_options, "clusters": name}
        if name and "clusters" not in (profile.old_options or {"clusters": name}):
            migration.add("cluster_ineffective", where, name)
            name = ""
        elif "," in name:
            migration.add("cluster_list", where, name)
            name = ""
        names.append(name)
    if not any(names):
        return
    first = of_hub if of_hub in names else names[0]
    if set(names) == {first}:
        migration.settings["req_cluster"] = first
        migration.moved(where, first, "c.GPUSlurmSpawner.req_cluster")
        return
    ordered = dict.fromkeys([first, *names])
    migration.settings["clusters"] = {name or HERE: {"req_cluster": name} if name else {} for name in ordered}
    for profile, name in zip(jobs, names, strict=True):
        if name != first:
            profile.document["slurm"] = {"cluster": name or HERE, **profile.document.get("slurm", {})}
    migration.add("clusters", where, ", ".join(name or "(none)" for name in ordered))


def _own_cluster(profile: ConvertedProfile, of_hub: str) -> str:
    """The cluster that a profile names, or else the hub's; what its document says of it is removed."""
    slurm = profile.document.get("slurm", {})
    return str(slurm.pop("cluster", of_hub) or "")


def _tidy(profiles: Sequence[ConvertedProfile]) -> None:
    """The first profile stays the default; names first and counts as numbers, as people write them."""
    for at, profile in enumerate(profiles):
        rest = profile.document
        rest.pop("default", None)
        names: dict[str, Any] = {
            name: rest.pop(name) for name in ("display_name", "slug", "description") if name in rest
        }
        profile.document = {**names, **({"default": True} if at == 0 else {}), **rest}
        slurm = rest.get("slurm", {})
        for name in NUMBER_FIELDS:
            if str(slurm.get(name, "")).isdigit():
                slurm[name] = int(slurm[name])


def _convert_commands(migration: Migration) -> None:
    """Commands that begin with batchspawner's program, which told the hub the server's port."""
    for profile in migration.profiles:
        if "command" not in profile.document:
            continue
        was = profile.document["command"]
        lines, command = command_of(was)
        profile.document["command"] = command
        if lines:
            environment = profile.document.setdefault("environment", {})
            environment["setup"] = [*environment.get("setup", ()), *lines]
            migration.add("command_lines", f"profile {profile.slug}: command", was, "environment.setup, and command")
        if isinstance(command, list) and is_old_launcher(command):
            profile.document["command"] = command[1:]
            migration.add("old_launcher", f"profile {profile.slug}: command", command, str(command[1:]))
    command = migration.settings.get("cmd")
    if isinstance(command, list) and is_old_launcher(command):
        migration.settings["cmd"] = command[1:]
        migration.add("old_launcher", "c.GPUSlurmSpawner.cmd", command, str(command[1:]))
    of_all = migration.old.section("Spawner").get("cmd")
    if isinstance(of_all, list) and is_old_launcher(of_all):
        migration.add("old_launcher_of_all", "c.Spawner.cmd", of_all, command=of_all[1:])


def _write_profiles(migration: Migration) -> None:
    """Decide which profiles are for files, and what files must be allowed."""
    allows, classes = set[str](), set[str]()
    for converted in migration.profiles:
        profile = parse_profile(converted.document, lambda path, slug=converted.slug: f"profile {slug}: {dotted(path)}")  # type: ignore[misc]
        traits = sorted(set(profile.traits) - set(TRAITS))
        if traits:
            converted.in_file = False
            migration.add("not_in_file", f"profile {profile.slug}", ", ".join(traits))
            continue
        classes |= {profile.spawner_class} if profile.spawner_class else set()
        allows |= {word for _, word in allowances_of(profile)}
    migration.allows = tuple(word for word in ALLOWANCES if word in allows)
    migration.classes = tuple(sorted(classes))
