"""wrapspawner's tuples, and the pairs of older hubs, as documents of the profile schema.

``(display name, key, class, traits)`` or ``(display name, traits)``. batchspawner's ``req_*`` traits become typed
fields, in pairs also without the prefix. Traits without a typed field are kept as traits.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jupyterhub_gpuspawner.profiles.resources import SBATCH_OPTIONS, Resources
from jupyterhub_gpuspawner.profiles.schema import Replacing, Written
from jupyterhub_gpuspawner.slurm.sbatch_options import Option
from jupyterhub_gpuspawner.units import GPU_GRES, parse_gres, parse_walltime

TYPED = {
    "cluster": "cluster",
    "partition": "partition",
    "nprocs": "cpus",
    "memory": "memory",
    "runtime": "time",
    "ngpus": "gpus",
    "nnodes": "nodes",
    **{name: name for name in SBATCH_OPTIONS.values()},
    "options": "extra",
}
"""The name of a site's default, without ``req_``, and of its field; where batchspawner has a name, it is that."""
OPTIONS = {
    **SBATCH_OPTIONS,
    "clusters": "cluster",
    "cpus-per-task": "nprocs",
    "gpus": "ngpus",
    "gpus-per-node": "ngpus",
    "gres": "gres",
    "mem": "memory",
    "nodes": "nnodes",
    "partition": "partition",
    "time": "runtime",
}
"""sbatch's option, and the setting for it, without ``req_``; where batchspawner has a variable, it is that."""
_ITS_OWN = ("start_timeout", "queue_timeout", "default_url")
_LOCAL = ("LocalProcessSpawner", "SimpleLocalProcessSpawner")
_SLURM = ("SlurmSpawner", "GPUSlurmSpawner", "MOSlurmSpawner")
_THEIRS = ("jupyterhub", "batchspawner", "jupyterhub_gpuspawner", "jupyterhub_moss")
"""The packages of these classes; a class of another one may have the same name."""
_SCHEMA = ("slurm", "placement", "allow", "profile_options", "display_name", "slug")


def as_document(item: Sequence[Any]) -> dict[str, Any]:
    """The document; raises ValueError that says what a tuple must contain."""
    match tuple(item):
        case (display_name, key, spawner_class, traits):
            pass
        case (display_name, traits):
            key, spawner_class = None, "GPUSlurmSpawner"
        case _:
            raise ValueError(
                f"a tuple of {len(item)} is not a profile: use (display name, key, class, traits), "
                "(display name, traits), or a dict"
            )
    _check(display_name, traits)
    class_name = _class_name(spawner_class)
    document: dict[str, Any] = {"display_name": display_name, "kind": _kind(class_name)}
    if document["kind"] == "other":
        document["spawner_class"] = class_name
    if key is not None:
        usable = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", str(key), re.ASCII)
        document["slug"] = str(key) if usable else slug_of(str(key))
    rest = dict(traits)
    for name in _ITS_OWN:
        if name in rest:
            document[name] = rest.pop(name)
    if "cmd" in rest:
        document["command"] = rest.pop("cmd")
    if document["kind"] == "slurm":
        document["slurm"] = typed_fields(rest, bare=key is None)
    document["traits"] = rest
    return document


def _check(display_name: object, traits: object) -> None:
    if not isinstance(display_name, str) or not isinstance(traits, Mapping):
        raise ValueError("a profile's tuple begins with its display name (text) and ends with its traits (a dict)")
    ours = sorted(set(traits) & set(_SCHEMA))
    if ours:
        raise ValueError(f"{ours[0]!r} is not a trait: write the whole profile as a dict with display_name, slurm, ...")


def _class_name(spawner_class: object) -> str:
    if isinstance(spawner_class, str):
        return spawner_class
    if isinstance(spawner_class, type):
        return f"{spawner_class.__module__}.{spawner_class.__qualname__}"
    raise ValueError(f"{spawner_class!r} is not a spawner class: give the class or its dotted name")


def _kind(class_name: str) -> str:
    """Of a class as it is named; what a site's own class is derived from is looked at before."""
    package, name = class_name.partition(".")[0], class_name.rpartition(".")[2]
    if package not in (*_THEIRS, name):
        return "other"
    if name in _SLURM:
        return "slurm"
    return "local" if name in _LOCAL else "other"


def typed_fields(rest: dict[str, Any], *, bare: bool = False) -> dict[str, Any]:
    """Remove the settings that have a typed field from ``rest`` and return them; ``bare``: also without ``req_``.

    An empty text becomes null, which removes the site's default, as in wrapspawner, where a profile's value replaces
    that of the class; so do its options. Blanks around a text mean nothing in a script.
    """
    fields: dict[str, Any] = {}
    own_options = bool(rest.get("req_options") or (bare and rest.get("options")))
    for old, ours in TYPED.items():
        for name in (f"req_{old}", *((old,) if bare else ())):
            if name in rest:
                value = rest.pop(name)
                value = value.strip() if isinstance(value, str) else value
                fields[ours] = None if value == "" else value
    if fields.get("time") is not None:
        fields["time"] = _limit(fields["time"])
    count = fields.get("gpus")
    if count is not None and str(count).isdigit():
        fields["gpus"] = Written.of(int(count), count)
    for name in ("req_gres", *(("gres",) if bare else ())):
        if name in rest:
            for ours, value in _gres(rest.pop(name)).items():
                if ours == "extra" and fields.get("extra"):
                    fields[ours] = f"{fields[ours]}\n{value}"
                elif value is not None or ours not in fields:
                    fields[ours] = int(value) if ours == "gpus" and count is not None else value  # it is both
    return {**fields, "extra": Replacing(fields["extra"])} if own_options and fields.get("extra") else fields


def _limit(value: Any) -> Any:
    """A time as sbatch reads it, to which zero is no limit."""
    try:
        return "UNLIMITED" if parse_walltime(value) == 0 else value
    except ValueError:  # said where the profile is read
        return value


def _gres(text: Any) -> dict[str, Any]:
    """GPUs of one type and shards become fields; other generic resources are passed to Slurm unchanged."""
    if text in (None, ""):
        return {"gpus": None, "shards": None}
    gres = parse_gres(str(text))
    ours = [request for request in gres if request.name == "gpu" or (request.name == "shard" and request.type is None)]
    others = [request for request in gres if request not in ours]
    if len(ours) != 1 or any(gres.name in GPU_GRES for gres in others):
        return {"extra": f"--gres={text}"}
    (own_gres,) = ours
    name = "gpus" if own_gres.name == "gpu" else "shards"
    fields: dict[str, Any] = {name: Written.of(own_gres.count, own_gres)}
    if own_gres.type:
        fields["gpu_type"] = own_gres.type
    if others:
        fields["extra"] = f"--gres={','.join(map(str, others))}"
    return fields


def slug_of(display_name: str) -> str:
    """``Furiosa GPU node - 40 cores`` -> ``furiosa-gpu-node-40-cores``."""
    plain = unicodedata.normalize("NFKD", display_name).encode("ascii", "ignore").decode().lower()
    return re.sub("[^a-z0-9]+", "-", plain).strip("-")[:63].rstrip("-")


def as_variable(name: str, value: str) -> dict[str, str]:
    """The setting, without ``req_``, that expresses an option, and its value; empty where no field can hold that."""
    if name in ("gpus", "gpus-per-node"):  # on one node they are the same
        name, value = "gres", f"gpu:{value}"
    if name not in OPTIONS or not value:
        return {}
    variable = OPTIONS[name]
    try:
        if variable != "cluster":  # of several, the admin decides
            Resources.model_validate(typed_fields({f"req_{variable}": value}))
    except ValueError:
        return {}
    return {variable: value}


def as_requests(options: Iterable[Option]) -> dict[str, str]:
    """The settings ``req_*`` that request what these options of one command line do; the last of a kind counts."""
    requests: dict[str, str] = {}
    lines: dict[str, str] = {}
    for option in options:
        own = as_variable(option.name, option.value)
        requests |= {f"req_{variable}": value for variable, value in own.items()}
        if not own:
            lines[option.name] = str(option)
    return requests | ({"req_options": "\n".join(lines.values())} if lines else {})
