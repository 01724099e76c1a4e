"""A profile's resources in a few words each: GPUs, cores, memory, time; as ranges where the user may choose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jupyterhub_gpuspawner.cluster.gpu_model import gpu_model
from jupyterhub_gpuspawner.hub.text import choose
from jupyterhub_gpuspawner.words import cpus, in_unit, memory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jupyterhub_gpuspawner.profiles.profile import Profile
    from jupyterhub_gpuspawner.profiles.resolve import ResolvedResources


COUNTED = ("nodes", "gpus", "gpu_type", "shards", "cpus", "memory", "time")
"""The fields of ``slurm`` that are told."""


def what_a_job_gets(asked: ResolvedResources, *, gpu_type: str = "", cpus_per_core: int = 0) -> tuple[str, ...]:
    """The same for one job."""
    values = {name: [value] if (value := getattr(asked, name)) is not None else [] for name in COUNTED}
    return _told(values, gpu_type, cpus_per_core, time_unit=asked.time_unit)


def for_the_script(
    profile: Profile, asked: ResolvedResources, *, gpu_type: str = "", cpus_per_core: int = 0
) -> dict[str, Any]:
    """What the page's script needs to tell the same of other values: the job's fields, and the names of GPU types."""
    types = {each: str(gpu_model(each)) for each in (*_values(profile, "gpu_type"), asked.gpu_type, gpu_type) if each}
    return {
        "asks": {name: value for name in COUNTED if (value := getattr(asked, name)) is not None},
        "types": types | ({"": types[gpu_type]} if gpu_type else {}),
        "cpus_per_core": cpus_per_core,
    }


def what_you_get(
    profile: Profile, asked: ResolvedResources | None = None, *, gpu_type: str = "", cpus_per_core: int = 0
) -> tuple[str, ...]:
    """Such as ``("4 cores", "8 to 16 GiB memory", "1 h")``; what is not requested is left out.

    ``asked`` is what a job of the profile requests when no option is changed: it holds the site's defaults, too.
    ``gpu_type`` is the partition's type of GPU, for a job that requests any GPU. ``cpus_per_core`` is how many of
    Slurm's CPUs a core of its nodes has; 0: not known, or not the same on all of them.
    """

    def values(name: str) -> list[Any]:
        of_site = None if asked is None else getattr(asked, name)
        return _values(profile, name) or ([] if of_site is None else [of_site])

    return _told({name: values(name) for name in COUNTED}, gpu_type, cpus_per_core)


def _told(
    values: Mapping[str, list[Any]], gpu_type: str, cpus_per_core: int, *, time_unit: str = ""
) -> tuple[str, ...]:
    gpus = _span(values["gpus"] or [1] * bool(values["gpu_type"] and not values["shards"]))
    types = " or ".join(str(gpu_model(each)) for each in values["gpu_type"] or [gpu_type] if each)
    nodes = _span(values["nodes"])
    several = nodes not in ("", "1")
    on_a_node = (
        f"{gpus} \N{MULTIPLICATION SIGN} {types or 'GPU'}" if gpus else "",
        _counted(_span(values["shards"]), "GPU shard"),
        cpus(min(values["cpus"]), max(values["cpus"]), per_core=cpus_per_core) if values["cpus"] else "",
        _memory(values["memory"]),
    )
    parts = (
        _counted(nodes, "node") if several else "",
        *(f"{part}{choose.ON_EACH}" if several and part not in ("", choose.ALL_MEMORY) else part for part in on_a_node),
        _time(values["time"], time_unit),
    )
    return tuple(part for part in parts if part)


def _values(profile: Profile, name: str) -> list[Any]:
    """Every value that a job of this profile may have in a field of ``slurm``; of a range its two ends."""
    found: list[Any] = [getattr(profile.slurm, name)]
    for option in profile.profile_options.values():
        if option.range is not None and option.range.sets == f"slurm.{name}":
            found = [getattr(option.range.override(end).slurm, name) for end in (option.range.min, option.range.max)]
        said = [getattr(choice.slurm, name) for choice in option.choices.values()]
        if any(value is not None for value in said):
            found = [base if value is None else value for value in said for base in found]
    return list(dict.fromkeys(value for value in found if value is not None))


def _span(values: list[Any]) -> str:
    if not any(values):
        return ""
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"


def _counted(number: str, what: str) -> str:
    return number and (f"1 {what}" if number == "1" else f"{number} {what}s")


def _memory(values: list[Any]) -> str:
    if 0 in values:
        return choose.ALL_MEMORY
    return f"{_between([memory(mib) for mib in sorted(values)])} memory" if values else ""


def _time(values: list[Any], unit: str) -> str:
    if any(isinstance(value, str) for value in values):
        return choose.NO_LIMIT
    return _between([in_unit(seconds, unit) for seconds in sorted(values)])


def _between(words: list[str]) -> str:
    """``8 GiB``, ``16 to 64 GiB``, ``512 MiB to 2 GiB``: a unit that both ends share is said once."""
    if not words:
        return ""
    low, high = words[0], words[-1]
    if low == high:
        return low
    number, _, unit = low.rpartition(" ")
    same_unit = number.replace(".", "").isdigit() and high.count(" ") == 1 and high.endswith(f" {unit}")
    return f"{number if same_unit else low} to {high}"
