"""Converts SlurmFormSpawner's form into profiles, one for each preset, whose options are the form's fields.

Fields with a lock are fixed in the profile.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jupyterhub_gpuspawner.migrate.forms import KNOWN, choice_option, number_option, text_option
from jupyterhub_gpuspawner.migrate.result import ConvertedProfile, Migration
from jupyterhub_gpuspawner.migrate.template import (
    DEFAULT_TEMPLATE,
    FORM_VARIABLES,
    BatchTemplate,
    old_options,
    read_template,
)
from jupyterhub_gpuspawner.profiles.tuples import slug_of, typed_fields
from jupyterhub_gpuspawner.units import format_walltime

_FORM = KNOWN["slurmformspawner"]
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
            self._options[field["sets"]] = choice_option(field["title"], listed, default)
        else:
            if unlisted:
                self._note(unlisted, name, was)
            self._options[field["sets"]] = text_option(title or field["title"], field["sets"], unset, request)

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
            self._options[sets] = number_option(title, sets, low, high, default=value, step=step, unit=unit)
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
            self._options["interface"] = choice_option("Interface", listed, default)
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
