"""Converts the forms of moss and SlurmFormSpawner into profiles, whose options are the forms' fields.

Each partition of moss and each preset of SlurmFormSpawner becomes a profile; fields with a lock are fixed in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.migrate.draft import SOMEBODY, ConvertedProfile, Draft, Kind
from jupyterhub_gpuspawner.migrate.old_hub import OldHub
from jupyterhub_gpuspawner.migrate.settings import old_options
from jupyterhub_gpuspawner.migrate.template import (
    DEFAULT_TEMPLATE,
    FORM_VARIABLES,
    BatchTemplate,
    option_of_time,
    read_template,
)
from jupyterhub_gpuspawner.profiles.profile import SLUG, slug_of
from jupyterhub_gpuspawner.profiles.wrapspawner import typed_fields

TIME = r"([0-9]+-)?[0-9]{1,2}:[0-9]{2}(:[0-9]{2})?"
MEMORY = r"[0-9]{1,9}[KMGT]?"
COUNT = r"[0-9]{1,4}"
NAME = r"[A-Za-z0-9_][A-Za-z0-9_.+-]*"
FEATURES = r"[A-Za-z0-9_][A-Za-z0-9_.&|-]*"
TEXTS = {
    "slurm.account": (NAME, "an account's name"),
    "slurm.constraint": (FEATURES, "features of nodes, joined by &"),
    "slurm.cpus": (COUNT, "a number of CPUs"),
    "slurm.gpus": (COUNT, "a number of GPUs"),
    "slurm.memory": (MEMORY, "MiB, or with a unit, such as 16G"),
    "slurm.partition": (NAME, "a partition's name"),
    "slurm.reservation": (NAME, "a reservation's name"),
    "slurm.time": (TIME, "hours and minutes, such as 4:00:00"),
}
"""Fields that a text may set, with their expression, and what is expected in words."""


def number_option(
    title: str, sets: str, low: float, high: float, *, default: float, step: float = 1, unit: str | None = None
) -> dict[str, Any]:
    """A number between two bounds."""
    bounds: dict[str, Any] = {"min": low, "max": high, "step": step, "default": default, "sets": sets}
    if step == 1:
        del bounds["step"]
    if unit:
        bounds["unit"] = unit
    return {"display_name": title, "range": bounds}


def text_option(title: str, sets: str, unset: str, first: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A text; ``unset`` is the choice of those who enter none, and ``first`` what it sets."""
    expression, message = TEXTS[sets]
    return {
        "display_name": title,
        "choices": {"default": {"display_name": unset, **(first or {}), "default": True}},
        "unlisted_choice": {"validation_regex": expression, "validation_message": message, "sets": sets},
    }


def choice_option(title: str, choices: Mapping[str, Mapping[str, Any]], default: str = "") -> dict[str, Any]:
    """A list of choices."""
    marked = {key: {**choice, **({"default": True} if key == default else {})} for key, choice in choices.items()}
    return {"display_name": title, "choices": marked}


_FORM = frozenset(["partition", "runtime", "nprocs", "memory", "reservation", "ngpus", "options", "gres"])
"""``req_*`` settings that moss's form replaces, even by an empty value."""
_MOSS_DROPPED = {
    "slurm_info_cmd": "one sinfo and one scontrol answer for all users, and their form is fixed",
    "slurm_info_resources": "one sinfo and one scontrol answer for all users, and their form is fixed",
}
_NOT_OFFERED = (
    ("options", "further options of sbatch", "a text of a user's could ask for anything; profiles have slurm.extra"),
    ("environment_path", "a Python environment of the user's own", "it reached the script as a shell line"),
    ("environment_modules", "modules that the user names", "they reached the script as a shell line"),
    ("output", "whether the job has a log", "every job has one, since it says why a server did not start"),
    ("root_dir", "the root folder of the server", "it is one for all: c.Spawner.notebook_dir"),
)
"""Fields of the form that have no counterpart."""


def convert_moss(hub: OldHub, template: BatchTemplate, draft: Draft) -> frozenset[str]:
    """Add the profiles; returns the names of the settings that were read. Raises ConfigError."""
    settings = hub.settings()
    partitions = settings.get("partitions")
    if partitions is None or not isinstance(partitions.value, dict):
        raise ConfigError("moss needs a table of partitions.", where="c.MOSlurmSpawner.partitions")
    for name in (*_MOSS_DROPPED, *(f"req_{name}" for name in _FORM)):
        if name in settings:
            why = _MOSS_DROPPED.get(name, "moss's form replaced it")
            draft.note(Kind.DROPPED, settings[name], settings[name].value, "", why)
    singularity = settings.get("singularity_cmd")
    runtime = "apptainer"
    if singularity is not None:
        runtime = "singularity" if "singularity" in str(singularity.value[:1]) else "apptainer"
        draft.note(
            Kind.DECIDE,
            singularity,
            singularity.value,
            f"environment.container, runtime: {runtime}",
            "the container's command is made from typed fields",
            "Give the containers their binds in environment.container.",
        )
    for name, about in partitions.value.items():
        _partition(str(partitions), name, about, runtime=runtime, template=template, draft=draft)
    if not any(about.get("simple", True) for about in partitions.value.values()):
        draft.note(Kind.DROPPED, partitions, "no simple partition", "", "there is one form for all")
    for field, was, why in _NOT_OFFERED:
        draft.note(Kind.CHANGED, f"moss's form: {field}", was, "not offered", why)
    return frozenset({"partitions", "singularity_cmd", *_MOSS_DROPPED, *(f"req_{name}" for name in _FORM)})


def _partition(
    setting: str, name: str, about: Mapping[str, Any], *, runtime: str, template: BatchTemplate, draft: Draft
) -> None:
    slug = name if re.fullmatch(SLUG, name, re.ASCII) else slug_of(name)
    where = f"{setting}[{name!r}]"
    options: dict[str, Any] = {}
    most = about.get("max_nprocs")
    if most:
        options["cpus"] = number_option("CPUs", "slurm.cpus", 1, most, default=1)
    else:
        options["cpus"] = text_option("CPUs", "slurm.cpus", "1", {"slurm": {"cpus": 1}})
        _unbounded(setting, "max_nprocs", slug, draft)
    gpu_type = _gpus(setting, slug, about, options, draft)
    options["memory"] = text_option("Memory", "slurm.memory", "The partition's default")
    limit = about.get("max_runtime")
    if limit:
        unit, seconds = ("hours", 3600) if limit >= 3600 else ("minutes", 60)
        options["time"] = number_option(unit.title(), "slurm.time", 1, limit // seconds, default=1, unit=unit)
        if limit % seconds:
            draft.note(Kind.CHANGED, f"{where}: max_runtime", f"{limit} s", f"{limit // seconds} {unit}", "full hours")
    else:
        options["time"] = text_option("Time", "slurm.time", "1 hour", {"slurm": {"time": "1:00:00"}})
        _unbounded(setting, "max_runtime", slug, draft)
    environments = {
        key: _environment(f"{where}: {key}", environment, runtime, draft)
        for key, environment in about.get("jupyter_environments", {}).items()
    }
    if environments:
        options["environment"] = choice_option("Environment", environments, next(iter(environments)))
    options["interface"] = choice_option(
        "Interface",
        {
            "lab": {"display_name": "JupyterLab", "default_url": "/lab"},
            "notebook": {"display_name": "Jupyter Notebook", "default_url": "/tree"},
        },
        "lab",
    )
    options["reservation"] = text_option("Reservation", "slurm.reservation", "None")
    description = [f"Architecture: {about['architecture']}."] if about.get("architecture") else []
    document: dict[str, Any] = {
        "display_name": about.get("description") or name,
        "slug": slug,
        "description": " ".join(description),
        "slurm": {"partition": name, **({"gpus": 0, "gpu_type": gpu_type} if gpu_type else {})},
        "profile_options": options,
    }
    if not document["description"]:
        del document["description"]
    draft.profiles.append(ConvertedProfile(document, _was(name, template)))
    draft.moved(where, about.get("description") or name, f"profile {slug}")
    if not about.get("simple", True):
        draft.note(
            Kind.CHANGED, f"{setting}: simple", "False", "like the others", "there is one form for all", profile=slug
        )
    if most:
        draft.note(
            Kind.CHANGED,
            f"{setting}: --exclusive",
            f"added for {most} CPUs or memory 0",
            "not added",
            "a profile says itself whether it takes whole nodes",
            "Write slurm: {exclusive: true} for a profile of whole nodes.",
            profile=slug,
        )


def _gpus(setting: str, slug: str, about: Mapping[str, Any], options: dict[str, Any], draft: Draft) -> str:
    """The option for GPUs; returns their type, empty without one."""
    gres, most = about.get("gpu"), about.get("max_ngpus")
    if gres == "" or most == 0:
        return ""
    match = re.fullmatch(r"gpu(?::([\w.+-]+))?:\{\}", gres or "")
    kind = (match[1] or "") if match else ""
    if gres and match is None:
        draft.decide(
            f"{setting}: gpu",
            gres,
            "GPUs of any type",
            "only gpu:{} and gpu:TYPE:{} are typed",
            "Set slurm.gpu_type.",
            profile=slug,
        )
    if most:
        options["gpus"] = number_option("GPUs", "slurm.gpus", 0, most, default=0)
        return kind
    _unbounded(setting, "max_ngpus", slug, draft)
    options["gpus"] = text_option("GPUs", "slurm.gpus", "None", {"slurm": {"gpus": 0}})
    return kind


def _unbounded(setting: str, name: str, slug: str, draft: Draft) -> None:
    draft.decide(
        f"{setting}: {name}",
        "taken from sinfo for each form",
        "a text without an upper bound",
        "the files of profiles do not depend on the cluster; Slurm refuses what is too much, and the form says so",
        "Replace the text by a range with the partition's real maximum.",
        profile=slug,
    )


def _environment(where: str, about: Mapping[str, Any], runtime: str, draft: Draft) -> dict[str, Any]:
    """One of moss's environments as a choice."""
    environment: dict[str, Any] = {}
    choice: dict[str, Any] = {"display_name": about.get("description", "")}
    setup = [line for line in about.get("prologue", "").strip().split("\n") if line]
    modules = about.get("modules", "").split()
    path = about.get("path", "").rstrip("/")
    if modules:
        environment["modules"] = modules
        if setup:
            draft.note(
                Kind.CHANGED,
                f"{where}: prologue",
                "before the modules",
                "after the modules",
                "modules are loaded first",
            )
    if path.endswith(".sif"):
        environment["container"] = {"image": path, "runtime": runtime}
    elif path:
        choice["command"] = [f"{path}/jupyterhub-singleuser"]
        if about.get("add_to_path", True):
            setup.append(f'export PATH="{path}:$PATH"')
    if setup:
        environment["setup"] = setup
    if environment:
        choice["environment"] = environment
    return choice


def _was(partition: str, template: BatchTemplate) -> dict[str, str] | None:
    """The options of moss's job with one CPU, one hour, and nothing else chosen."""
    chosen = {"partition": partition, "nprocs": "1", "runtime": "1:00:00", "output": "/dev/null", "prologue": ""}
    if template.own:
        return old_options(template, {f"req_{name}": value for name, value in chosen.items()})
    return {
        "job-name": "spawner-jupyterhub",
        "chdir": SOMEBODY[1],
        "export": "(names)",
        "get-user-env": "",
        "output": "/dev/null",
        "partition": partition,
        "time": "1:00:00",
        "cpus-per-task": "1",
    }


SECTION = "SlurmFormSpawner"
FORM = "SbatchForm"
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
_INTERFACES = {
    "notebook": {"name": "Jupyter Notebook", "url": "/tree"},
    "lab": {"name": "JupyterLab"},
    "terminal": {"name": "Terminal", "url": "/terminals/1"},
}
_FIELDS = {
    "account": ("Account", "slurm.account"),
    "feature": ("Features of the node", "slurm.constraint"),
    "memory": ("Memory", "slurm.memory"),
    "nprocs": ("CPUs", "slurm.cpus"),
    "partition": ("Partition", "slurm.partition"),
    "reservation": ("Reservation", "slurm.reservation"),
    "runtime": ("Hours", "slurm.time"),
}
_DROPPED = {
    "error_template_path": "where Slurm does not answer, the form says so itself",
    "form_template_path": "the profiles make the form",
    "disable_form": "a profile without options has no fields",
    "batch_submit_cmd": "SlurmFormSpawner ignored it, too",
    "batch_cancel_cmd": "SlurmFormSpawner ignored it, too",
}


def form_template(hub: OldHub, draft: Draft) -> BatchTemplate:
    """The template of the jobs, if the site has its own."""
    setting = hub.settings().get("submit_template_path")
    if setting is not None:
        try:
            template = read_template(Path(setting.value).read_text("utf-8"), FORM_VARIABLES)
        except (OSError, UnicodeDecodeError) as error:
            draft.decide(
                setting,
                setting.value,
                "left out",
                f"the file cannot be read here ({type(error).__name__})",
                "Run the command again where the file is.",
            )
        else:
            draft.moved(setting, setting.value, "c.GPUSlurmSpawner, as the other lines say")
            return template
    else:
        draft.decide(
            "SlurmFormSpawner's submit.sh",
            "shell lines for the software of the Digital Research Alliance of Canada",
            "left out",
            "they are the package's and not the site's; they activate /opt/ipython-kernel and set PIP_PREFIX",
            "If your nodes have that software, copy the lines to c.GPUSlurmSpawner.req_prologue.",
        )
    return BatchTemplate(DEFAULT_TEMPLATE, own=False)


def convert_form(hub: OldHub, template: BatchTemplate, draft: Draft) -> frozenset[str]:
    """Add the profiles; returns the names of the settings that were read."""
    settings = hub.settings()
    form = hub.section(FORM)
    widgets = {name: {**widget, **(form.get(name) or {})} for name, widget in _WIDGETS.items()}
    locked = bool(settings["disable_form"].value) if "disable_form" in settings else False
    for name in sorted(form):
        where = f"c.{FORM}.{name}"
        if name in _DROPPED:
            draft.note(Kind.DROPPED, where, form[name], "", _DROPPED[name])
        else:
            draft.moved(where, form[name], "the profiles' fields and options")
    for name, value in sorted(hub.section("SlurmAPI").items()):
        draft.note(Kind.DROPPED, f"c.SlurmAPI.{name}", value, "", "Slurm's answers are shared and kept by themselves")
    for name in sorted(_DROPPED):
        if name in settings:
            draft.note(Kind.DROPPED, settings[name], settings[name].value, "", _DROPPED[name])
    if "slurm_bin_path" in settings:
        draft.settings["slurm_bin_dir"] = settings["slurm_bin_path"].value
        draft.moved(settings["slurm_bin_path"], settings["slurm_bin_path"].value, "c.GPUSlurmSpawner.slurm_bin_dir")
    else:
        draft.settings["slurm_bin_dir"] = "/opt/slurm/bin"
        draft.moved("SlurmFormSpawner's slurm_bin_path", "/opt/slurm/bin", "c.GPUSlurmSpawner.slurm_bin_dir")
    interfaces = settings["ui_args"].value if "ui_args" in settings else _INTERFACES
    presets: dict[str, Any] = {"default": {"name": "Default", "params": {}}}
    if "profile_args" in settings:
        presets |= settings["profile_args"].value
        draft.moved(settings["profile_args"], list(presets), "profiles")
    if "ui_args" in settings:
        draft.moved(settings["ui_args"], list(interfaces), "the option interface of each profile")
    listed = widgets["profile"].get("choices")
    for key in listed if isinstance(listed, (list, dict)) else presets:
        converter = _Preset(widgets, presets[key].get("params", {}), interfaces, draft, all_locked=locked)
        document = {"display_name": presets[key]["name"], "slug": slug_of(key), **converter.document()}
        draft.profiles.append(ConvertedProfile(document, converter.was(template)))
    return frozenset({"ui_args", "profile_args", "slurm_bin_path", "submit_template_path", *_DROPPED})


class _Preset:
    """One profile of the form."""

    def __init__(
        self,
        widgets: Mapping[str, Mapping[str, Any]],
        params: Mapping[str, Any],
        interfaces: Mapping[str, Mapping[str, Any]],
        draft: Draft,
        *,
        all_locked: bool,
    ) -> None:
        self._widgets, self._params, self._draft = widgets, params, draft
        self._interfaces, self._all_locked = interfaces, all_locked
        self._slurm: dict[str, Any] = {}
        self._options: dict[str, Any] = {}
        self._rest: dict[str, Any] = {}

    def document(self) -> dict[str, Any]:
        """Its fields and options."""
        for name in ("nprocs", "memory", "runtime"):
            self._number(name)
        self._gpus()
        for name in ("partition", "account", "reservation", "feature"):
            self._text(name)
        if self._value("oversubscribe"):
            self._slurm["extra"] = ["--oversubscribe"]
        if not self._locked("oversubscribe"):
            self._say("oversubscribe", "the user's choice", f"{bool(self._value('oversubscribe'))}", "it is fixed now")
        self._interface()
        document = {**self._rest, "slurm": self._slurm, "profile_options": self._options}
        return {name: value for name, value in document.items() if value}

    def was(self, template: BatchTemplate) -> dict[str, str] | None:
        """The options of its job, if nothing is changed in the form."""
        hours = float(self._value("runtime") or 1)
        chosen: dict[str, Any] = {
            "account": self._value("account") or "",
            "runtime": str(int(hours * 60)),
            "memory": str(self._value("memory") or self._widgets["memory"]["min"]),
            "nprocs": str(self._value("nprocs")),
            "gpus": self._value("gpus"),
            "reservation": self._value("reservation") or "",
            "partition": self._value("partition") or "",
            "constraint": "&".join(self._value("feature") or ()),
            "oversubscribe": self._value("oversubscribe"),
            "modules": [],
        }
        if template.own:
            return old_options(template, {f"req_{name}": value for name, value in chosen.items()})
        options = {
            "account": chosen["account"],
            "time": option_of_time(chosen["runtime"]),
            "output": f"{SOMEBODY[1]}/.jupyterhub_slurmspawner_%j.log",
            "job-name": "spawner-jupyterhub",
            "chdir": SOMEBODY[1],
            "mem": f"{chosen['memory']}M",
            "cpus-per-task": chosen["nprocs"],
            "export": "(names)",
            "reservation": chosen["reservation"],
            "gres": chosen["gpus"],
            "partition": chosen["partition"],
            "constraint": chosen["constraint"],
        }
        flag = {"oversubscribe": ""} if chosen["oversubscribe"] else {}
        return {name: value for name, value in options.items() if value} | flag

    def _value(self, name: str) -> Any:
        """The value with which the form opens; None where a function of the site's computes it."""
        value = self._params.get(name, self._widgets[name].get("def"))
        return None if callable(value) else value

    def _locked(self, name: str) -> bool:
        lock = self._widgets[name].get("lock", False)
        return self._all_locked or lock is True or (isinstance(lock, str) and bool(lock))

    def _say(self, name: str, was: str, now: str, why: str, todo: str = "") -> None:
        self._draft.note(Kind.DECIDE if todo else Kind.CHANGED, f"c.{FORM}.{name}", was, now, why, todo)

    def _number(self, name: str) -> None:
        title, sets = _FIELDS[name]
        field, widget = sets.partition(".")[2], self._widgets[name]
        value = self._value(name)
        if value is None:
            value = widget["min"]
            self._say(
                name, "a default computed from the cluster", str(value), "a profile has a fixed one", "Set the default."
            )
        if self._locked(name):
            self._slurm[field] = _spelled(name, value)
            return
        high = widget.get("max")
        if high is None or callable(high):
            self._say(
                name,
                "a maximum taken from the cluster" if name != "runtime" or high else "no maximum",
                "a text without an upper bound",
                "profiles do not depend on the cluster; Slurm refuses what is too much, and the form says so",
                "Replace the text by a range with the real maximum.",
            )
            first = {"slurm": {field: _spelled(name, value)}}
            self._options[field] = text_option(
                title if name != "runtime" else "Time", sets, str(_spelled(name, value)), first
            )
            return
        unit = {"runtime": "hours", "memory": "M"}.get(name)
        low, step = widget.get("min", 0), widget.get("step", 1)
        self._options[field] = number_option(title, sets, low, high, default=value, step=step, unit=unit)

    def _gpus(self) -> None:
        value, choices = str(self._value("gpus") or "gpu:0"), self._widgets["gpus"].get("choices")
        if self._locked("gpus"):
            self._slurm |= _request(value)
        elif isinstance(choices, (list, dict)):
            listed = choices if isinstance(choices, dict) else {gres: _title(gres) for gres in choices}
            self._options["gpus"] = choice_option(
                "GPUs",
                {key: {"display_name": str(text), "slurm": _request(key)} for key, text in listed.items()},
                value,
            )
        else:
            self._say(
                "gpus",
                "each kind of GPU that a node has",
                "a number of GPUs of any type",
                "profiles do not depend on the cluster",
                "Give the option gpus a choice for each type, with slurm.gpu_type.",
            )
            self._options["gpus"] = text_option("GPUs", "slurm.gpus", _title(value), {"slurm": _request(value)})

    def _text(self, name: str) -> None:
        title, sets = _FIELDS[name]
        field, value = sets.partition(".")[2], self._value(name)
        value = "&".join(value) if isinstance(value, (list, tuple)) else value
        choices = self._widgets[name].get("choices")
        if self._locked(name):
            if value:
                self._slurm[field] = value
        elif isinstance(choices, (list, dict)) and choices and name != "feature":
            names = [str(name) for name in choices]
            listed = {name: {"display_name": name, "slurm": {field: name}} for name in names}
            self._options[field] = choice_option(title, listed, value if value in names else names[0])
        else:
            if name != "feature":
                self._say(name, "a list of the user's", "a text", "what it may be is Slurm's to say")
            first = {"slurm": {field: value}} if value else None
            self._options[field] = text_option(title, sets, value or "None", first)

    def _interface(self) -> None:
        value, choices = self._value("ui"), self._widgets["ui"].get("choices")
        keys = (
            [value] if self._locked("ui") else list(choices if isinstance(choices, (list, dict)) else self._interfaces)
        )
        listed = {key: _interface(self._interfaces[key]) for key in keys if key in self._interfaces}
        if len(listed) == 1:
            (only,) = listed.values()
            self._rest |= {name: part for name, part in only.items() if name != "display_name"}
        elif listed:
            self._options["interface"] = choice_option(
                "Interface", listed, value if value in listed else next(iter(listed))
            )


def _interface(about: Mapping[str, Any]) -> dict[str, Any]:
    choice: dict[str, Any] = {"display_name": about["name"], "default_url": about.get("url", "/lab")}
    if about.get("modules"):
        choice["environment"] = {"modules": list(about["modules"])}
    if about.get("args"):
        choice["command"] = ["jupyterhub-singleuser", *about["args"]]
    return choice


def _request(gres: str) -> dict[str, Any]:
    """The typed request of a gres."""
    count = re.fullmatch(r"gpu:0", gres)
    fields = {"gpus": 0} if count else typed_fields({"req_gres": gres})
    return {name: value for name, value in fields.items() if value is not None}


def _title(gres: str) -> str:
    if gres in ("", "gpu:0"):
        return "None"
    *names, count = gres.split(":")
    return f"{count} x {' '.join(names[1:]).upper() or names[0].upper()}" if count.isdigit() else gres


def _spelled(name: str, value: Any) -> Any:
    return option_of_time(str(int(float(value) * 60))) if name == "runtime" else value
