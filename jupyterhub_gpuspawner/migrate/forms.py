"""Converts the forms of moss and SlurmFormSpawner into profiles, whose options are the forms' fields.

Each partition of moss and each preset of SlurmFormSpawner becomes a profile; fields with a lock are fixed in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.migrate.result import ConvertedProfile, Kind, Migration
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

_TEXTS = {
    "account": (r"[A-Za-z0-9_][A-Za-z0-9_.+-]*", "an account's name"),
    "constraint": (r"[A-Za-z0-9_][A-Za-z0-9_.&|-]*", "features of nodes, joined by &"),
    "cpus": (r"[0-9]{1,4}", "a number of CPUs"),
    "gpus": (r"[0-9]{1,4}", "a number of GPUs"),
    "memory": (r"[0-9]{1,9}[KMGT]?", "MiB, or with a unit, such as 16G"),
    "partition": (r"[A-Za-z0-9_][A-Za-z0-9_.+-]*", "a partition's name"),
    "reservation": (r"[A-Za-z0-9_][A-Za-z0-9_.+-]*", "a reservation's name"),
    "time": (r"([0-9]+-)?[0-9]{1,2}:[0-9]{2}(:[0-9]{2})?", "hours and minutes, such as 4:00:00"),
}
"""Fields below ``slurm`` that a text may set, with their expression, and what is expected in words."""


def _number_option(
    title: str, field: str, low: float, high: float, *, default: float, step: float = 1, unit: str | None = None
) -> dict[str, Any]:
    """A number between two bounds."""
    bounds = {"min": low, "max": high, **({"step": step} if step != 1 else {})}
    named_unit = {"unit": unit} if unit else {}
    return {"display_name": title, "range": {**bounds, "default": default, "sets": f"slurm.{field}", **named_unit}}


def _text_option(title: str, field: str, unset: str, first: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A text; ``unset`` is the choice of those who enter none, and ``first`` what it sets below ``slurm``."""
    expression, message = _TEXTS[field]
    default = {"display_name": unset, **({"slurm": dict(first)} if first else {}), "default": True}
    unlisted = {"validation_regex": expression, "validation_message": message, "sets": f"slurm.{field}"}
    return {"display_name": title, "choices": {"default": default}, "unlisted_choice": unlisted}


def _choice_option(title: str, choices: Mapping[str, Mapping[str, Any]], default: str) -> dict[str, Any]:
    """A list of choices."""
    marked = {key: {**choice, **({"default": True} if key == default else {})} for key, choice in choices.items()}
    return {"display_name": title, "choices": marked}


# jupyterhub_moss

_REPLACED = tuple(
    f"req_{name}" for name in ("partition", "runtime", "nprocs", "memory", "reservation", "ngpus", "options", "gres")
)
"""Settings that moss's form replaces, even by an empty value."""
_COMMANDS = ("slurm_info_cmd", "slurm_info_resources")
_NOT_OFFERED = (
    ("options", "further options of sbatch", "a text of a user's could ask for anything; profiles have slurm.extra"),
    ("environment_path", "a Python environment of the user's own", "it reached the script as a shell line"),
    ("environment_modules", "modules that the user names", "they reached the script as a shell line"),
    ("output", "whether the job has a log", "every job has one, since it says why a server did not start"),
    ("root_dir", "the root folder of the server", "it is one for all: c.Spawner.notebook_dir"),
)
"""Fields of the form that have no counterpart."""
_INTERFACES = {
    "lab": {"display_name": "JupyterLab", "default_url": "/lab"},
    "notebook": {"display_name": "Jupyter Notebook", "default_url": "/tree"},
}
_MOSS_SCRIPT = """\
#SBATCH --job-name=spawner-jupyterhub --chdir=/home/somebody --export=NAMES --get-user-env= --output=/dev/null
#SBATCH --partition={partition} --time=1:00:00 --cpus-per-task=1
"""
"""moss's own job with one CPU, one hour, and nothing else chosen."""


def convert_moss(migration: Migration) -> tuple[str, ...]:
    """Add the profiles; returns the names of the settings that were read. Raises ConfigError."""
    settings = migration.old.settings()
    partitions = settings.get("partitions")
    if partitions is None or not isinstance(partitions.value, dict):
        raise ConfigError("moss needs a table of partitions.", where="c.MOSlurmSpawner.partitions")
    for name in (*_COMMANDS, *_REPLACED):
        if name in settings:
            command = "one sinfo and one scontrol answer for all users, and their form is fixed"
            why = command if name in _COMMANDS else "moss's form replaced it"
            migration.dropped(settings[name], settings[name].value, why)
    runtime = "apptainer"
    singularity = settings.get("singularity_cmd")
    if singularity is not None:
        runtime = "singularity" if "singularity" in str(singularity.value[:1]) else "apptainer"
        now, why = f"environment.container, runtime: {runtime}", "the container's command is made from typed fields"
        todo = "Give the containers their binds in environment.container."
        migration.decide(singularity, singularity.value, now, why, todo)
    for name, fields in partitions.value.items():
        _convert_partition(migration, str(partitions), name, fields, runtime)
    if not any(fields.get("simple", True) for fields in partitions.value.values()):
        migration.dropped(partitions, "no simple partition", "there is one form for all")
    for field, was, why in _NOT_OFFERED:
        migration.note(Kind.CHANGED, f"moss's form: {field}", was, "not offered", why)
    return ("partitions", "singularity_cmd", *_COMMANDS, *_REPLACED)


def _convert_partition(migration: Migration, setting: str, name: str, fields: Mapping[str, Any], runtime: str) -> None:
    slug = name if re.fullmatch(SLUG, name, re.ASCII) else slug_of(name)
    where, title = f"{setting}[{name!r}]", fields.get("description") or name
    options: dict[str, Any] = {}
    most = fields.get("max_nprocs")
    if most:
        options["cpus"] = _number_option("CPUs", "cpus", 1, most, default=1)
    else:
        options["cpus"] = _text_option("CPUs", "cpus", "1", {"cpus": 1})
        _unbounded(migration, f"{setting}: max_nprocs", slug)
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
            now = f"{limit // seconds} {unit}"
            migration.note(Kind.CHANGED, f"{where}: max_runtime", f"{limit} s", now, "full hours")
    else:
        options["time"] = _text_option("Time", "time", "1 hour", {"time": "1:00:00"})
        _unbounded(migration, f"{setting}: max_runtime", slug)
    environments = {
        key: _environment(migration, f"{where}: {key}", environment, runtime)
        for key, environment in fields.get("jupyter_environments", {}).items()
    }
    if environments:
        options["environment"] = _choice_option("Environment", environments, next(iter(environments)))
    options["interface"] = _choice_option("Interface", _INTERFACES, "lab")
    options["reservation"] = _text_option("Reservation", "reservation", "None")
    document: dict[str, Any] = {"display_name": title, "slug": slug}
    if fields.get("architecture"):
        document["description"] = f"Architecture: {fields['architecture']}."
    document |= {"slurm": slurm, "profile_options": options}
    migration.profiles.append(ConvertedProfile(document, _options_of_moss(migration.template, name)))
    migration.moved(where, title, f"profile {slug}")
    if not fields.get("simple", True):
        why = "there is one form for all"
        migration.note(Kind.CHANGED, f"{setting}: simple", "False", "like the others", why, profile=slug)
    if most:
        migration.note(
            Kind.CHANGED,
            f"{setting}: --exclusive",
            f"added for {most} CPUs or memory 0",
            "not added",
            "a profile says itself whether it takes whole nodes",
            "Write slurm: {exclusive: true} for a profile of whole nodes.",
            profile=slug,
        )


def _gpus_of_partition(
    migration: Migration, setting: str, slug: str, fields: Mapping[str, Any], options: dict[str, Any]
) -> str:
    """Add the option for GPUs; returns their type, empty without one."""
    gres, most = fields.get("gpu"), fields.get("max_ngpus")
    if gres == "" or most == 0:
        return ""
    match = re.fullmatch(r"gpu(?::([\w.+-]+))?:\{\}", gres or "")
    if gres and match is None:
        why = "only gpu:{} and gpu:TYPE:{} are typed"
        migration.decide(f"{setting}: gpu", gres, "GPUs of any type", why, "Set slurm.gpu_type.", profile=slug)
    if most:
        options["gpus"] = _number_option("GPUs", "gpus", 0, most, default=0)
    else:
        _unbounded(migration, f"{setting}: max_ngpus", slug)
        options["gpus"] = _text_option("GPUs", "gpus", "None", {"gpus": 0})
    return (match[1] or "") if match else ""


def _unbounded(migration: Migration, where: str, slug: str) -> None:
    migration.decide(
        where,
        "taken from sinfo for each form",
        "a text without an upper bound",
        "the files of profiles do not depend on the cluster; Slurm refuses what is too much, and the form says so",
        "Replace the text by a range with the partition's real maximum.",
        profile=slug,
    )


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
            was, now = "before the modules", "after the modules"
            migration.note(Kind.CHANGED, f"{where}: prologue", was, now, "modules are loaded first")
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
        return sbatch_options(_MOSS_SCRIPT.format(partition=partition))
    chosen = {"partition": partition, "nprocs": "1", "runtime": "1:00:00", "output": "/dev/null", "prologue": ""}
    return old_options(template, chosen)


# SlurmFormSpawner

_FORM = "SbatchForm"
_WIDGETS: dict[str, dict[str, Any]] = {
    "account": {},
    "feature": {"def": []},
    "gpus": {"def": "gpu:0"},
    "memory": {"min": 1024, "step": 1},
    "nprocs": {"min": 1, "def": 1, "step": 1},
    "oversubscribe": {"def": False, "lock": True},
    "partition": {"def": "", "lock": True},
    "profile": {"def": "default"},
    "reservation": {"def": ""},
    "runtime": {"min": 0.25, "def": 1.0, "step": 0.25},
    "ui": {"def": "lab", "choices": ["notebook", "lab", "terminal"]},
}
"""SlurmFormSpawner's defaults, where they are values."""
_UI = {
    "notebook": {"name": "Jupyter Notebook", "url": "/tree"},
    "lab": {"name": "JupyterLab"},
    "terminal": {"name": "Terminal", "url": "/terminals/1"},
}
_FIELDS = {
    "account": ("Account", "account"),
    "feature": ("Features of the node", "constraint"),
    "memory": ("Memory", "memory"),
    "nprocs": ("CPUs", "cpus"),
    "partition": ("Partition", "partition"),
    "reservation": ("Reservation", "reservation"),
    "runtime": ("Hours", "time"),
}
"""Title of each field of the form, and its name below ``slurm``."""
_DROPPED = {
    "batch_cancel_cmd": "SlurmFormSpawner ignored it, too",
    "batch_submit_cmd": "SlurmFormSpawner ignored it, too",
    "disable_form": "a profile without options has no fields",
    "error_template_path": "where Slurm does not answer, the form says so itself",
    "form_template_path": "the profiles make the form",
}
_SUBMIT = """\
{% if account %}#SBATCH --account={{account}}{% endif %}
#SBATCH --time={{runtime}} --mem={{memory}}M --cpus-per-task={{nprocs}} --export=NAMES --chdir={{homedir}}
#SBATCH --output={{homedir}}/.jupyterhub_slurmspawner_%j.log --job-name=spawner-jupyterhub
{% if reservation %}#SBATCH --reservation={{reservation}}{% endif %}
{% if gpus %}#SBATCH --gres={{gpus}}{% endif %}
{% if partition %}#SBATCH --partition={{partition}}{% endif %}
{% if constraint %}#SBATCH --constraint={{constraint}}{% endif %}
{% if oversubscribe %}#SBATCH --oversubscribe{% endif %}
"""
"""The options of SlurmFormSpawner's own submit.sh."""


def form_template(migration: Migration) -> BatchTemplate:
    """The template of the jobs, if the site has its own."""
    setting = migration.old.settings().get("submit_template_path")
    if setting is None:
        migration.decide(
            "SlurmFormSpawner's submit.sh",
            "shell lines for the software of the Digital Research Alliance of Canada",
            "left out",
            "they are the package's and not the site's; they activate /opt/ipython-kernel and set PIP_PREFIX",
            "If your nodes have that software, copy the lines to c.GPUSlurmSpawner.req_prologue.",
        )
        return BatchTemplate(DEFAULT_TEMPLATE)
    try:
        template = read_template(Path(setting.value).read_text("utf-8"), FORM_VARIABLES)
    except (OSError, UnicodeDecodeError) as error:
        why = f"the file cannot be read here ({type(error).__name__})"
        migration.decide(setting, setting.value, "left out", why, "Run the command again where the file is.")
        return BatchTemplate(DEFAULT_TEMPLATE)
    migration.moved(setting, setting.value, "c.GPUSlurmSpawner, as the other lines say")
    return template


def convert_form(migration: Migration) -> tuple[str, ...]:
    """Add the profiles; returns the names of the settings that were read."""
    settings, form = migration.old.settings(), migration.old.section(_FORM)
    for name in sorted(form):
        if name in _DROPPED:
            migration.dropped(f"c.{_FORM}.{name}", form[name], _DROPPED[name])
        else:
            migration.moved(f"c.{_FORM}.{name}", form[name], "the profiles' fields and options")
    for name, value in sorted(migration.old.section("SlurmAPI").items()):
        migration.dropped(f"c.SlurmAPI.{name}", value, "Slurm's answers are shared and kept by themselves")
    for name in sorted(_DROPPED.keys() & settings):
        migration.dropped(settings[name], settings[name].value, _DROPPED[name])
    own_folder = settings.get("slurm_bin_path")
    folder = own_folder.value if own_folder else "/opt/slurm/bin"
    migration.settings["slurm_bin_dir"] = folder
    migration.moved(own_folder or "SlurmFormSpawner's slurm_bin_path", folder, "c.GPUSlurmSpawner.slurm_bin_dir")
    _convert_presets(migration, form)
    return ("ui_args", "profile_args", "slurm_bin_path", "submit_template_path", *_DROPPED)


def _convert_presets(migration: Migration, form: Mapping[str, Any]) -> None:
    settings = migration.old.settings()
    presets: dict[str, Any] = {"default": {"name": "Default", "params": {}}}
    if "profile_args" in settings:
        presets |= settings["profile_args"].value
        migration.moved(settings["profile_args"], list(presets), "profiles")
    interfaces = settings["ui_args"].value if "ui_args" in settings else _UI
    if "ui_args" in settings:
        migration.moved(settings["ui_args"], list(interfaces), "the option interface of each profile")
    widgets = {name: {**widget, **(form.get(name) or {})} for name, widget in _WIDGETS.items()}
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
            self._note("oversubscribe", "the user's choice", str(shared), "it is fixed now")
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
        return old_options(template if template.own else BatchTemplate(_SUBMIT), chosen)

    def _is_locked(self, name: str) -> bool:
        lock = self._widgets[name].get("lock", False)
        return lock is True or (isinstance(lock, str) and bool(lock))

    def _note(self, name: str, was: str, now: str, why: str, todo: str = "") -> None:
        self._migration.note(Kind.DECIDE if todo else Kind.CHANGED, f"c.{_FORM}.{name}", was, now, why, todo)

    def _add_number(self, name: str) -> None:
        title, field = _FIELDS[name]
        widget, value = self._widgets[name], self._values[name]
        if value is None:
            value, was = widget["min"], "a default computed from the cluster"
            self._note(name, was, str(value), "a profile has a fixed one", "Set the default.")
        text = format_walltime(int(float(value) * 60) * 60) if name == "runtime" else value
        high = widget.get("max")
        if self._is_locked(name):
            self._slurm[field] = text
        elif high is None or callable(high):
            self._note(
                name,
                "a maximum taken from the cluster" if name != "runtime" or high else "no maximum",
                "a text without an upper bound",
                "profiles do not depend on the cluster; Slurm refuses what is too much, and the form says so",
                "Replace the text by a range with the real maximum.",
            )
            title = "Time" if name == "runtime" else title
            self._options[field] = _text_option(title, field, str(text), {field: text})
        else:
            unit = {"runtime": "hours", "memory": "M"}.get(name)
            low, step = widget.get("min", 0), widget.get("step", 1)
            self._options[field] = _number_option(title, field, low, high, default=value, step=step, unit=unit)

    def _add_gpus(self) -> None:
        value, choices = str(self._values["gpus"] or "gpu:0"), self._widgets["gpus"].get("choices")
        if self._is_locked("gpus"):
            self._slurm |= _request_of(value)
        elif isinstance(choices, (list, dict)):
            titles = choices if isinstance(choices, dict) else {gres: _title_of(gres) for gres in choices}
            listed = {gres: {"display_name": str(title), "slurm": _request_of(gres)} for gres, title in titles.items()}
            self._options["gpus"] = _choice_option("GPUs", listed, value)
        else:
            was, now = "each kind of GPU that a node has", "a number of GPUs of any type"
            todo = "Give the option gpus a choice for each type, with slurm.gpu_type."
            self._note("gpus", was, now, "profiles do not depend on the cluster", todo)
            self._options["gpus"] = _text_option("GPUs", "gpus", _title_of(value), _request_of(value))

    def _add_text(self, name: str) -> None:
        (title, field), value = _FIELDS[name], self._values[name]
        value = "&".join(value) if isinstance(value, (list, tuple)) else value
        choices = self._widgets[name].get("choices")
        if self._is_locked(name):
            if value:
                self._slurm[field] = value
        elif isinstance(choices, (list, dict)) and choices and name != "feature":
            names = [str(choice) for choice in choices]
            listed = {choice: {"display_name": choice, "slurm": {field: choice}} for choice in names}
            self._options[field] = _choice_option(title, listed, value if value in names else names[0])
        else:
            if name != "feature":
                self._note(name, "a list of the user's", "a text", "what it may be is Slurm's to say")
            self._options[field] = _text_option(title, field, value or "None", {field: value} if value else None)

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
