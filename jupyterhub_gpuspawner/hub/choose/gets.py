"""What a job gets of a cluster, in words: one job, or all that a profile allows. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jupyterhub_gpuspawner.hub.choose import words
from jupyterhub_gpuspawner.hub.extension import Hardware
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.gpu_model import GpuModel, gpu_model
from jupyterhub_gpuspawner.words import cpus, in_unit, memory


@dataclass(frozen=True)
class Gets:
    """What a job gets, in words; empty where it does not request that, or it is not known."""

    nodes: str = ""
    """Such as ``2 nodes``, of several."""
    gpus: tuple[str, ...] = ()
    """Such as ``4 \N{MULTIPLICATION SIGN} K80, 12 GB``, or ``2 GPU shards``; several where it gets a mixed node."""
    cpus: str = ""
    memory: str = ""
    """Such as ``8 GiB``."""
    time: str = ""
    risk: str = ""
    """What may happen to the job, as a clause."""
    models: tuple[str, ...] = ()
    """Of its GPUs, such as ``K80``, ``A100 slice``; ``GPU`` of one that is not known."""

    @property
    def parts(self) -> tuple[str, ...]:
        """Such as ``("4 cores", "8 GiB memory", "1 h")``; of several nodes, what it gets on each."""
        per_node = words.PER_NODE if self.nodes else ""
        memory = self.memory and f"{self.memory}{'' if self.memory == words.ALL_MEMORY else f' memory{per_node}'}"
        on_a_node = (f"{part}{per_node}" for part in (*self.gpus, self.cpus) if part)
        return tuple(part for part in (self.nodes, *on_a_node, memory, self.time, self.risk) if part)


COUNTED = ("nodes", "gpus", "gpu_type", "shards", "cpus", "memory", "time")
"""The fields of ``slurm`` of which the form speaks."""


def what_a_job_gets(resources: Resources, hardware: Hardware) -> Gets:
    """What a job with these resources gets, such as 4 cores: what Slurm gives it, if known."""
    requested = {name: getattr(resources, name) for name in COUNTED}
    values = {name: [] if value is None else [value] for name, value in requested.items()}
    return _gets(values, hardware, time_unit=resources.time_unit)


def resources_in_words(
    profile: Profile, resources: Resources | None, hardware: Callable[[Resources], Hardware] = lambda _: Hardware()
) -> Gets:
    """What the jobs of a profile get, whatever is chosen, such as 8 to 16 GiB memory.

    ``resources`` are what a job of the profile requests when no option is changed: with the site's defaults, too.
    ``hardware`` tells that of the nodes where a job may run.
    """

    def values(name: str) -> list[Any]:
        of_site = None if resources is None else getattr(resources, name)
        return _values(profile, name) or ([] if of_site is None else [of_site])

    counted = {name: values(name) for name in COUNTED}
    if resources is None:
        return _gets(counted, Hardware())
    nodes: dict[str, Any] = {
        "partition": ",".join(values("partition")) or None,
        "gpu_type": counted["gpu_type"][0] if len(counted["gpu_type"]) == 1 else None,
    }
    cpus, memory, gpus = set[int](), set[int](), dict[str, tuple[int, ...]]()
    for end in (min, max):  # Slurm gives no less to a job that requests more
        requested = {name: end(counted[name]) for name in _AMOUNTS if counted[name]}
        job = hardware(resources.model_copy(update=requested | nodes))
        cpus.update(job.cpus or filter(None, [requested.get("cpus")]))
        memory.update(job.memory or filter(None, [requested.get("memory")]))
        gpus.update({kind: (*gpus.get(kind, ()), *numbers) for kind, numbers in job.gpus.items()})
    return _gets(counted, replace(hardware(resources), cpus=tuple(cpus), memory=tuple(memory), gpus=gpus))


_AMOUNTS = ("gpus", "shards", "cpus", "memory")


def _gets(values: Mapping[str, list[Any]], hardware: Hardware, *, time_unit: str = "") -> Gets:
    def models(*types: str) -> list[GpuModel]:
        return [gpu_model(kind, hardware.types_beside.get(kind, ())) for kind in types if kind]

    gpus = _span(values["gpus"] or [1] * bool(values["gpu_type"] and not values["shards"]))
    requested = models(*(values["gpu_type"] or [hardware.gpu_type])) if gpus else []
    counted = [(gpus, " or ".join(map(str, requested)) or "GPU")] if gpus else []
    if hardware.gpus:  # all of a node
        requested = models(*hardware.gpus)
        counted = [(_span(numbers), str(*models(kind)) or "GPU") for kind, numbers in hardware.gpus.items()]
    shards = _counted(_span(values["shards"]), "GPU shard")
    nodes = _span(values["nodes"])
    numbers = hardware.cpus or values["cpus"]
    return Gets(
        nodes=_counted(nodes, "node") if nodes not in ("", "1") else "",
        gpus=tuple(f"{number} \N{MULTIPLICATION SIGN} {kind}" for number, kind in counted if number)
        + ((shards,) if shards else ()),
        cpus=cpus(min(numbers), max(numbers), per_core=hardware.cpus_per_core) if numbers else "",
        memory=_memory(hardware.memory or values["memory"]),
        time=_time(values["time"], time_unit),
        risk=hardware.risk,
        models=tuple(model.name for model in requested) or ("GPU",) * bool(counted or shards),
    )


def _values(profile: Profile, name: str) -> list[Any]:
    """Every value that a job of this profile may have in a field of ``slurm``; of a range its two ends."""
    values: list[Any] = [getattr(profile.slurm, name)]
    for option in profile.profile_options.values():
        if option.range is not None and option.range.sets == f"slurm.{name}":
            values = [getattr(option.range.override(end).slurm, name) for end in (option.range.min, option.range.max)]
        chosen_values = [getattr(choice.slurm, name) for choice in option.choices.values()]
        if any(value is not None for value in chosen_values):
            unchanged = values if None in chosen_values else []
            values = list(dict.fromkeys((*chosen_values, *unchanged)))
    return list(dict.fromkeys(value for value in values if value is not None))


def _span(values: Sequence[Any]) -> str:
    if not any(values):
        return ""
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"


def _counted(number: str, what: str) -> str:
    return number and (f"1 {what}" if number == "1" else f"{number} {what}s")


def _memory(values: Sequence[int]) -> str:
    if 0 in values:
        return words.ALL_MEMORY
    return _between([memory(mib) for mib in sorted(values)])


def _time(values: list[Any], unit: str) -> str:
    if any(isinstance(value, str) for value in values):
        return words.NO_LIMIT
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
