"""Converts moss's partitions: each becomes a profile whose options are the fields of moss's form."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.migrate.difference import Kind
from jupyterhub_gpuspawner.migrate.draft import SOMEBODY, Draft, Offer
from jupyterhub_gpuspawner.migrate.forms.form_options import choice_option, number_option, text_option
from jupyterhub_gpuspawner.migrate.site_settings import old_options
from jupyterhub_gpuspawner.profiles.profile import SLUG, slug_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jupyterhub_gpuspawner.migrate.batch_template import BatchTemplate
    from jupyterhub_gpuspawner.migrate.configuration.old_hub import OldHub

_FORM = frozenset(["partition", "runtime", "nprocs", "memory", "reservation", "ngpus", "options", "gres"])
"""``req_*`` settings that moss's form replaces, even by an empty value."""
_DROPPED = {
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
    for name in (*_DROPPED, *(f"req_{each}" for each in _FORM)):
        if name in settings:
            why = _DROPPED.get(name, "moss's form replaced it")
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
    return frozenset({"partitions", "singularity_cmd", *_DROPPED, *(f"req_{each}" for each in _FORM)})


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
        key: _environment(f"{where}: {key}", each, runtime, draft)
        for key, each in about.get("jupyter_environments", {}).items()
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
    said = [f"Architecture: {about['architecture']}."] if about.get("architecture") else []
    document: dict[str, Any] = {
        "display_name": about.get("description") or name,
        "slug": slug,
        "description": " ".join(said),
        "slurm": {"partition": name, **({"gpus": 0, "gpu_type": gpu_type} if gpu_type else {})},
        "profile_options": options,
    }
    if not document["description"]:
        del document["description"]
    draft.offers.append(Offer(document, _was(name, template)))
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
