"""Converts the forms of moss and SlurmFormSpawner into profiles, whose options are the forms' fields.

Each partition of moss and each preset of SlurmFormSpawner becomes a profile; fields with a lock are fixed in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.migrate.result import ConvertedProfile, Migration
from jupyterhub_gpuspawner.migrate.template import (
    DEFAULT_TEMPLATE,
    FORM_VARIABLES,
    BatchTemplate,
    old_options,
    read_template,
    sbatch_options,
)
from jupyterhub_gpuspawner.profiles.profile import SLUG
from jupyterhub_gpuspawner.profiles.tuples import slug_of, typed_fields
from jupyterhub_gpuspawner.units import format_walltime

_KNOWN = yaml.safe_load(Path(__file__).with_name("forms.yaml").read_text("utf-8"))
_MOSS, _FORM = _KNOWN["moss"], _KNOWN["slurmformspawner"]
WRAPSPAWNER: Mapping[str, str] = _KNOWN["wrapspawner"]
"""Settings of wrapspawner's form that are not needed, with the codes of their differences."""


def _number_option(
    title: str, field: str, low: float, high: float, *, default: float, step: float = 1, unit: str | None = None
) -> dict[str, Any]:
    """A number between two bounds."""
    bounds = {"min": low, "max": high, **({"step": step} if step != 1 else {})}
    named_unit = {"unit": unit} if unit else {}
    return {"display_name": title, "range": {**bounds, "default": default, "sets": f"slurm.{field}", **named_unit}}


def _text_option(title: str, field: str, unset: str, first: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A text; ``unset`` is the choice of those who enter none, and ``first`` what it sets below ``slurm``."""
    expression, message = _KNOWN["texts"][field]
    default = {"display_name": unset, **({"slurm": dict(first)} if first else {}), "default": True}
    unlisted = {"validation_regex": expression, "validation_message": message, "sets": f"slurm.{field}"}
    return {"display_name": title, "choices": {"default": default}, "unlisted_choice": unlisted}


def _choice_option(title: str, choices: Mapping[str, Mapping[str, Any]], default: str) -> dict[str, Any]:
    """A list of choices."""
    marked = {key: {**choice, **({"default": True} if key == default else {})} for key, choice in choices.items()}
    return {"display_name": title, "choices": marked}


# jupyterhub_moss


def convert_moss(migration: Migration) -> tuple[str, ...]:
    """Add the profiles; returns the names of the settings that were read. Raises ConfigError."""
    settings = migration.old.settings()
    partitions = settings.get("partitions")
    if partitions is None or not isinstance(partitions.value, dict):
        raise ConfigError("moss needs a table of partitions.", where="c.MOSlurmSpawner.partitions")
    for name, code in _MOSS["dropped"].items():
        if name in settings:
            migration.add(code, settings[name], settings[name].value)
    runtime = "apptainer"
    singularity = settings.get("singularity_cmd")
    if singularity is not None:
        runtime = "singularity" if "singularity" in str(singularity.value[:1]) else "apptainer"
        migration.add("moss_container", singularity, singularity.value, runtime=runtime)
    for name, fields in partitions.value.items():
        _convert_partition(migration, str(partitions), name, fields, runtime)
    if not any(fields.get("simple", True) for fields in partitions.value.values()):
        migration.add("moss_no_simple", partitions)
    for field in _MOSS["not_offered"]:
        migration.add(f"moss_form_{field}", f"moss's form: {field}")
    return ("partitions", "singularity_cmd", *_MOSS["dropped"])


def _convert_partition(migration: Migration, setting: str, name: str, fields: Mapping[str, Any], runtime: str) -> None:
    slug = name if re.fullmatch(SLUG, name, re.ASCII) else slug_of(name)
    where, title = f"{setting}[{name!r}]", fields.get("description") or name
    options: dict[str, Any] = {}
    most = fields.get("max_nprocs")
    if most:
        options["cpus"] = _number_option("CPUs", "cpus", 1, most, default=1)
    else:
        options["cpus"] = _text_option("CPUs", "cpus", "1", {"cpus": 1})
        migration.add("moss_unbounded", f"{setting}: max_nprocs", profile=slug)
    slurm: dict[str, Any] = {"partition": name}
    gpu_type = _gpus_of_partition(migration, setting, slug, fields, options)
    if gpu_type:
        slurm |= {"gpus": 0, "gpu_type": gpu_type}
    options["memory"] = _text_option("Memory", "memory", "The partition's default")
    limit = fields.get("max_runtime")
    if limit:
        unit, seconds = ("hours", 3600) if limit >= 3600 else ("minutes", 60)
        options["time"] = _number_option(unit.title(), "time", 1, limit // seconds, default=1, unit=unit)
        if limit % seconds:
            migration.add("moss_full_hours", f"{where}: max_runtime", f"{limit} s", f"{limit // seconds} {unit}")
    else:
        options["time"] = _text_option("Time", "time", "1 hour", {"time": "1:00:00"})
        migration.add("moss_unbounded", f"{setting}: max_runtime", profile=slug)
    environments = {
        key: _environment(migration, f"{where}: {key}", environment, runtime)
        for key, environment in fields.get("jupyter_environments", {}).items()
    }
    if environments:
        options["environment"] = _choice_option("Environment", environments, next(iter(environments)))
    options["interface"] = _choice_option("Interface", _MOSS["interfaces"], "lab")
    options["reservation"] = _text_option("Reservation", "reservation", "None")
    document: dict[str, Any] = {"display_name": title, "slug": slug}
    if fields.get("architecture"):
        document["description"] = f"Architecture: {fields['architecture']}."
    document |= {"slurm": slurm, "profile_options": options}
    migration.profiles.append(ConvertedProfile(document, _options_of_moss(migration.template, name)))
    migration.moved(where, title, f"profile {slug}")
    if not fields.get("simple", True):
        migration.add("moss_simple", f"{setting}: simple", profile=slug)
    if most:
        migration.add("moss_exclusive", f"{setting}: --exclusive", profile=slug, most=most)


def _gpus_of_partition(
    migration: Migration, setting: str, slug: str, fields: Mapping[str, Any], options: dict[str, Any]
) -> str:
    """Add the option for GPUs; returns their type, empty without one."""
    gres, most = fields.get("gpu"), fields.get("max_ngpus")
    if gres == "" or most == 0:
        return ""
    match = re.fullmatch(r"gpu(?::([\w.+-]+))?:\{\}", gres or "")
    if gres and match is None:
        migration.add("moss_gpu_type", f"{setting}: gpu", gres, profile=slug)
    if most:
        options["gpus"] = _number_option("GPUs", "gpus", 0, most, default=0)
    else:
        migration.add("moss_unbounded", f"{setting}: max_ngpus", profile=slug)
        options["gpus"] = _text_option("GPUs", "gpus", "None", {"gpus": 0})
    return (match[1] or "") if match else ""


def _environment(migration: Migration, where: str, fields: Mapping[str, Any], runtime: str) -> dict[str, Any]:
    """One of moss's environments as a choice."""
    environment: dict[str, Any] = {}
    choice: dict[str, Any] = {"display_name": fields.get("description", "")}
    setup = [line for line in fields.get("prologue", "").strip().split("\n") if line]
    modules = fields.get("modules", "").split()
    path = fields.get("path", "").rstrip("/")
    if modules:
        environment["modules"] = modules
        if setup:
            migration.add("moss_prologue", f"{where}: prologue")
    if path.endswith(".sif"):
        environment["container"] = {"image": path, "runtime": runtime}
    elif path:
        choice["command"] = [f"{path}/jupyterhub-singleuser"]
        if fields.get("add_to_path", True):
            setup.append(f'export PATH="{path}:$PATH"')
    if setup:
        environment["setup"] = setup
    return {**choice, "environment": environment} if environment else choice


def _options_of_moss(template: BatchTemplate, partition: str) -> dict[str, str] | None:
    if not template.own:
        return sbatch_options(_MOSS["script"].format(partition=partition))
    chosen = {"partition": partition, "nprocs": "1", "runtime": "1:00:00", "output": "/dev/null", "prologue": ""}
    return old_options(template, chosen)


# SlurmFormSpawner

_SECTION = "SbatchForm"


def form_template(migration: Migration) -> BatchTemplate:
    """The template of the jobs, if the site has its own."""
    setting = migration.old.settings().get("submit_template_path")
    if setting is None:
        migration.add("form_submit_script", "SlurmFormSpawner's submit.sh")
        return BatchTemplate(DEFAULT_TEMPLATE)
    try:
        template = read_template(Path(setting.value).read_text("utf-8"), FORM_VARIABLES)
    except (OSError, UnicodeDecodeError) as error:
        migration.add("form_unreadable", setting, setting.value, error=type(error).__name__)
        return BatchTemplate(DEFAULT_TEMPLATE)
    migration.moved(setting, setting.value, "c.GPUSlurmSpawner, as the other lines say")
    return template


def convert_form(migration: Migration) -> tuple[str, ...]:
    """Add the profiles; returns the names of the settings that were read."""
    settings, form, dropped = migration.old.settings(), migration.old.section(_SECTION), _FORM["dropped"]
    for name in sorted(form):
        if name in dropped:
            migration.add(dropped[name], f"c.{_SECTION}.{name}", form[name])
        else:
            migration.moved(f"c.{_SECTION}.{name}", form[name], "the profiles' fields and options")
    for name, value in sorted(migration.old.section("SlurmAPI").items()):
        migration.add("form_api", f"c.SlurmAPI.{name}", value)
    for name in sorted(settings.keys() & dropped):
        migration.add(dropped[name], settings[name], settings[name].value)
    own_folder = settings.get("slurm_bin_path")
    folder = own_folder.value if own_folder else "/opt/slurm/bin"
    migration.settings["slurm_bin_dir"] = folder
    migration.moved(own_folder or "SlurmFormSpawner's slurm_bin_path", folder, "c.GPUSlurmSpawner.slurm_bin_dir")
    _convert_presets(migration, form)
    return ("ui_args", "profile_args", "slurm_bin_path", "submit_template_path", *dropped)


def _convert_presets(migration: Migration, form: Mapping[str, Any]) -> None:
    settings = migration.old.settings()
    presets: dict[str, Any] = {"default": {"name": "Default", "params": {}}}
    if "profile_args" in settings:
        presets |= settings["profile_args"].value
        migration.moved(settings["profile_args"], list(presets), "profiles")
    interfaces = settings["ui_args"].value if "ui_args" in settings else _FORM["interfaces"]
    if "ui_args" in settings:
        migration.moved(settings["ui_args"], list(interfaces), "the option interface of each profile")
    widgets = {name: {**field["widget"], **(form.get(name) or {})} for name, field in _FORM["fields"].items()}
    if "disable_form" in settings and settings["disable_form"].value:
        widgets = {name: {**widget, "lock": True} for name, widget in widgets.items()}
    listed = widgets["profile"].get("choices")
    for key in listed if isinstance(listed, (list, dict)) else presets:
        preset = _Preset(migration, widgets, presets[key].get("params", {}), interfaces)
        document = {"display_name": presets[key]["name"], "slug": slug_of(key), **preset.document()}
        migration.profiles.append(ConvertedProfile(document, preset.old_options()))


class _Preset:
    """One profile of the form."""

    def __init__(
        self,
        migration: Migration,
        widgets: Mapping[str, Mapping[str, Any]],
        params: Mapping[str, Any],
        interfaces: Mapping[str, Mapping[str, Any]],
    ) -> None:
        self._migration, self._widgets, self._interfaces = migration, widgets, interfaces
        values = {name: params.get(name, widget.get("def")) for name, widget in widgets.items()}
        self._values: dict[str, Any] = {name: None if callable(value) else value for name, value in values.items()}
        """The values with which the form opens; None where a function of the site's computes one."""
        self._slurm: dict[str, Any] = {}
        self._options: dict[str, Any] = {}

    def document(self) -> dict[str, Any]:
        """Its fields and options."""
        for name in ("nprocs", "memory", "runtime"):
            self._add_number(name)
        self._add_gpus()
        for name in ("partition", "account", "reservation", "feature"):
            self._add_text(name)
        shared = bool(self._values["oversubscribe"])
        if shared:
            self._slurm["extra"] = ["--oversubscribe"]
        if not self._is_locked("oversubscribe"):
            self._note("form_fixed", "oversubscribe", now=str(shared))
        document = {**self._interface(), "slurm": self._slurm, "profile_options": self._options}
        return {name: value for name, value in document.items() if value}

    def old_options(self) -> dict[str, str] | None:
        """The options of its job, if nothing is changed in the form."""
        values = self._values
        template = self._migration.template
        names = ("account", "reservation", "partition")
        chosen: dict[str, Any] = {
            **{name: values[name] or "" for name in names},
            "runtime": str(int(float(values["runtime"] or 1) * 60)),
            "memory": str(values["memory"] or self._widgets["memory"]["min"]),
            "nprocs": str(values["nprocs"]),
            "gpus": values["gpus"],
            "constraint": "&".join(values["feature"] or ()),
            "oversubscribe": values["oversubscribe"],
            "modules": [],
        }
        return old_options(template if template.own else BatchTemplate(_FORM["script"]), chosen)

    def _is_locked(self, name: str) -> bool:
        lock = self._widgets[name].get("lock", False)
        return lock is True or (isinstance(lock, str) and bool(lock))

    def _note(self, code: str, name: str, was: str | None = None, now: str | None = None) -> None:
        self._migration.add(code, f"c.{_SECTION}.{name}", was, now)

    def _add(
        self,
        name: str,
        request: Mapping[str, Any],
        *,
        listed: Mapping[str, Mapping[str, Any]],
        default: str,
        unset: str,
        unlisted: str = "",
        was: str | None = None,
        title: str = "",
    ) -> None:
        """A field that is locked, listed or free text; ``unlisted`` is the code of the difference for the last."""
        field = _FORM["fields"][name]
        if self._is_locked(name):
            self._slurm |= request
        elif listed:
            self._options[field["sets"]] = _choice_option(field["title"], listed, default)
        else:
            if unlisted:
                self._note(unlisted, name, was)
            self._options[field["sets"]] = _text_option(title or field["title"], field["sets"], unset, request)

    def _choices(self, name: str) -> Mapping[str, str]:
        """The titles of the choices that the site lists; none where a function of the site's computes them."""
        choices = self._widgets[name].get("choices")
        if isinstance(choices, dict):
            return choices
        return {str(choice): "" for choice in choices} if isinstance(choices, list) else {}

    def _add_number(self, name: str) -> None:
        field = _FORM["fields"][name]
        title, sets, unit = field["title"], field["sets"], field.get("unit")
        widget, value = self._widgets[name], self._values[name]
        if value is None:
            value = widget["min"]
            self._note("form_default", name, now=str(value))
        high = widget.get("max")
        if not self._is_locked(name) and high is not None and not callable(high):
            low, step = widget.get("min", 0), widget.get("step", 1)
            self._options[sets] = _number_option(title, sets, low, high, default=value, step=step, unit=unit)
            return
        text = format_walltime(int(float(value) * 60) * 60) if name == "runtime" else value
        self._add(
            name,
            {sets: text},
            listed={},
            default="",
            unset=str(text),
            unlisted="form_unbounded",
            was="a maximum taken from the cluster" if name != "runtime" or high else "no maximum",
            title="Time" if name == "runtime" else "",
        )

    def _add_gpus(self) -> None:
        value = str(self._values["gpus"] or "gpu:0")
        listed = {
            gres: {"display_name": str(title or _title_of(gres)), "slurm": _request_of(gres)}
            for gres, title in self._choices("gpus").items()
        }
        request, unset = _request_of(value), _title_of(value)
        self._add("gpus", request, listed=listed, default=value, unset=unset, unlisted="form_gpus")

    def _add_text(self, name: str) -> None:
        value, sets = self._values[name], _FORM["fields"][name]["sets"]
        value = "&".join(value) if isinstance(value, (list, tuple)) else value
        names = () if name == "feature" else tuple(self._choices(name))
        self._add(
            name,
            {sets: value} if value else {},
            listed={choice: {"display_name": choice, "slurm": {sets: choice}} for choice in names},
            default=value if value in names else next(iter(names), ""),
            unset=value or "None",
            unlisted="form_text" if name != "feature" else "",
        )

    def _interface(self) -> dict[str, Any]:
        """What the only interface sets; several are an option."""
        value, choices = self._values["ui"], self._widgets["ui"].get("choices")
        keys = list(choices if isinstance(choices, (list, dict)) else self._interfaces)
        listed: dict[str, dict[str, Any]] = {}
        for key in [value] if self._is_locked("ui") else keys:
            if key in self._interfaces:
                interface = self._interfaces[key]
                listed[key] = {"display_name": interface["name"], "default_url": interface.get("url", "/lab")}
                if interface.get("modules"):
                    listed[key]["environment"] = {"modules": list(interface["modules"])}
                if interface.get("args"):
                    listed[key]["command"] = ["jupyterhub-singleuser", *interface["args"]]
        if len(listed) > 1:
            default = value if value in listed else next(iter(listed))
            self._options["interface"] = _choice_option("Interface", listed, default)
            return {}
        return {name: part for only in listed.values() for name, part in only.items() if name != "display_name"}


def _request_of(gres: str) -> dict[str, Any]:
    """The typed request of a gres."""
    fields = {"gpus": 0} if gres == "gpu:0" else typed_fields({"req_gres": gres})
    return {name: value for name, value in fields.items() if value is not None}


def _title_of(gres: str) -> str:
    if gres in ("", "gpu:0"):
        return "None"
    *names, count = gres.split(":")
    return f"{count} x {' '.join(names[1:]).upper() or names[0].upper()}" if count.isdigit() else gres
