"""What a job requests from Slurm and sets up before the server starts, as an admin writes it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, PrivateAttr, ValidationInfo, field_validator, model_validator

from jupyterhub_gpuspawner.profiles.schema import (
    WORD,
    BadValue,
    Bind,
    Constraint,
    ExtraLine,
    Folder,
    Frozen,
    Guarded,
    Image,
    Lines,
    Memory,
    ModuleName,
    Name,
    Names,
    OneOrMany,
    OptionLines,
    PythonHome,
    ShellLine,
    Text,
    Time,
    merged,
    whole,
)
from jupyterhub_gpuspawner.slurm.sbatch_options import options_of
from jupyterhub_gpuspawner.units import GPU_GRES, Gres, format_walltime, parse_gres

# The reservation that a job uses on a given day; for courses it may change daily.

STRFTIME_CODES = "aAbBdGjmuUVwWyY"
"""strftime(3) codes allowed in a reservation's pattern: those whose value contains no blank."""

PATTERN_LIMIT = 255
"""Maximum length of a pattern, in characters."""


class ReservationRule(Frozen):
    """The reservation that a job uses on a given day: one name, a pattern with the date, or a table by date."""

    pattern: str | None = None
    """A name, or a pattern with strftime(3) codes such as ``ml-hpc-%u`` (1 is Monday)."""
    dates: dict[date, str] = Field(default_factory=dict)
    """The name on each day; empty: no reservation."""
    default: str | None = None
    """The name on every other day; empty: no reservation; not given: no job on such a day."""

    @field_validator("pattern", "default")
    @classmethod
    def _renders(cls, value: str | None, field: ValidationInfo) -> str | None:
        if value or (value is not None and field.field_name == "pattern"):
            _rendered(value, date(2000, 1, 1))
        return value

    @field_validator("dates")
    @classmethod
    def _all_render(cls, value: dict[date, str]) -> dict[date, str]:
        for day, pattern in value.items():
            if pattern:
                _rendered(pattern, day)
        return value

    @model_validator(mode="after")
    def _names_one(self) -> ReservationRule:
        if self.pattern is None and self.default is None and not self.dates:
            raise BadValue("must be a name, a pattern such as ml-hpc-%u, or a table such as {2024-05-31: ml-hpc-1}")
        return self

    def on(self, day: date) -> str | None:
        """The reservation's name on ``day``, None for no reservation; raises LookupError if the table has no entry."""
        if self.pattern is not None:
            return _rendered(self.pattern, day)
        if day in self.dates:
            return _rendered(self.dates[day], day) if self.dates[day] else None
        if self.default is None:
            raise LookupError(f"there is no reservation for {day.isoformat()}; days are {self.days()}")
        return _rendered(self.default, day) if self.default else None

    def days(self) -> str:
        """The days of the table as text."""
        return ", ".join(day.isoformat() for day in sorted(self.dates)) or "none"


def _rendered(pattern: str, day: date) -> str:
    if len(pattern) > PATTERN_LIMIT:
        raise BadValue(f"is longer than {PATTERN_LIMIT} characters", pattern)
    codes = re.findall("%(.?)", pattern)
    wrong = [code for code in codes if not code or code not in STRFTIME_CODES]
    if wrong:
        valid = f"%{', %'.join(STRFTIME_CODES)}"
        raise BadValue(
            f"contains a code that is not valid for a reservation: codes are {valid}",
            text=f"%{wrong[0]} in {pattern!r} is not a valid code for a reservation: codes are {valid}",
        )
    name = day.strftime(pattern)
    if re.fullmatch(rf"{WORD}(?:,{WORD})*", name, re.ASCII) is None:
        rule = "a reservation consists of letters, digits and . _ + -, without blanks"
        raise BadValue(rule, text=f"{pattern!r} gives {name!r}: {rule}")
    return name


def as_rule(value: object) -> object:
    """Normalise the input: a text is a pattern; a table has ISO dates and optionally ``default``."""
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        return {"pattern": str(value)}
    if not isinstance(value, dict) or set(value) <= {"pattern", "dates"}:
        return value
    dates: dict[object, object] = {}
    result: dict[str, object] = {"dates": dates}
    for key, name in value.items():
        text = "" if name is None else str(name)
        if key == "default":
            result["default"] = text
            continue
        day = key if isinstance(key, date) else _iso_day(key)
        dates[day] = text
    return result


def _iso_day(key: object) -> date:
    try:
        return date.fromisoformat(str(key))
    except ValueError:
        raise BadValue("is not a valid date: use 2024-05-31, or default", key) from None


@dataclass(frozen=True)
class SbatchOption:
    """Annotates a field whose value is passed to sbatch as it is; a template may leave the option out."""

    name: str
    """Without the hyphens."""


class Resources(Frozen):
    """What a job requests from Slurm. A field that is left out has the site's default; ``null`` removes the default.

    ``gpus``, ``gpu_type`` and ``shards`` form one request (``--gres``): a profile that sets one of them replaces all of
    the site's GPU defaults.
    """

    elsewhere: ClassVar[dict[str, str]] = {
        "gres": "no such field; did you mean gpus, with gpu_type? Other generic resources are a line of extra"
    }

    cluster: Name | None = None
    """The cluster, by its name in ``c.GPUSlurmSpawner.clusters``; left out: the first."""
    partition: Names | None = None
    """Partition, or several separated by commas."""
    nodes: Annotated[int, whole(1)] | None = None
    """Nodes; the server runs on the first. GPUs, CPUs and memory are per node."""
    gpus: Annotated[int, whole(0, 1024)] | None = None
    """Whole GPUs, or MIG devices if ``gpu_type`` names a MIG profile."""
    gpu_type: Name | None = None
    """Slurm's GPU type (``a100``), or a MIG profile (``1g.10gb``); without ``gpus`` it requests one."""
    shards: Annotated[int, whole(0)] | None = None
    """GPU shards (gres ``shard``)."""
    cpus: Annotated[int, whole(1, 65536)] | None = None
    """CPUs, as Slurm counts them (``--cpus-per-task``)."""
    memory: Memory | None = None
    """Memory in MiB, or with K, M, G or T; 0 requests all of the node's memory."""
    time: Time | None = None
    """Time limit in sbatch's formats (a bare number is minutes), or UNLIMITED. Kept in seconds."""
    account: Annotated[Name | None, SbatchOption("account")] = None
    """Account to charge."""
    qos: Annotated[Name | None, SbatchOption("qos")] = None
    """Quality of service."""
    reservation: Annotated[ReservationRule | None, BeforeValidator(as_rule), SbatchOption("reservation")] = None
    """A name, a pattern with strftime(3) codes such as ``ml-hpc-%u``, or a table by ISO date, with ``default``."""
    constraint: Annotated[Constraint | None, SbatchOption("constraint")] = None
    """Node features, in Slurm's syntax."""
    nice: Annotated[Annotated[int, whole(0, 2147483645)] | None, SbatchOption("nice")] = None
    """How far the job's priority in the queue is lowered; negative values are Slurm's operators' alone."""
    exclusive: bool | None = None
    """The whole node."""
    extra: Annotated[Annotated[tuple[ExtraLine, ...], OptionLines] | None, Guarded("extra")] = ()
    """Further sbatch options, one per line, such as ``--gres-flags=enforce-binding``; they follow the site's, which
    ``null`` removes."""
    _time_unit: str = PrivateAttr(default="")

    @field_validator("extra")
    @classmethod
    def _leaves_the_comment(cls, lines: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for line in lines or ():
            names = {name for name, _ in options_in_line(line)}
            if "comment" in names or ("" in names and "--com" in line):
                raise BadValue("must not contain --comment: by a job's comment the hub finds the job again", line)
        return lines

    @model_validator(mode="after")
    def _gpus_or_shards(self) -> Resources:
        if self.gpus and self.shards:
            raise BadValue("gpus and shards cannot be requested together: a shard is part of a GPU")
        return self

    @property
    def time_unit(self) -> str:
        """The unit in which the user gives the time: ``minutes``, ``hours``, ...; empty where the profile sets it."""
        return self._time_unit

    @property
    def node_count(self) -> int:
        """Nodes, one unless more are requested."""
        return self.nodes or 1

    @property
    def reservation_name(self) -> str:
        """The reservation of a job whose day is resolved; empty for none."""
        return (self.reservation.pattern or "") if self.reservation is not None else ""

    @property
    def plain_options(self) -> dict[str, Any]:
        """The values of the fields that are one option of sbatch each, by its name; None: not requested."""
        values = {name: getattr(self, field) for name, field in SBATCH_OPTIONS.items()}
        return {**values, "reservation": self.reservation_name or None}

    @property
    def gres(self) -> tuple[Gres, ...]:
        """The GPUs or shards to request with ``--gres``."""
        counts = (("gpu", self.gpus), ("shard", self.shards))
        return tuple(Gres(name, self.gpu_type, count) for name, count in counts if count)

    @property
    def gres_option(self) -> str:
        """The value of ``--gres``: GPUs or shards, and other generic resources that ``extra`` requests.

        They share one option, since sbatch uses only the last ``--gres``.
        """
        return ",".join([*map(str, self.gres), *filter(None, [self.other_gres])])

    @property
    def other_gres(self) -> str:
        """The generic resources that ``extra`` requests, beside the fields; empty for none."""
        return ",".join(value for line in self._lines_of_gres() for _, value in options_in_line(line))

    @property
    def time_option(self) -> str | None:
        """The value of ``--time``; None where no time limit is requested."""
        if self.time is None:
            return None
        return format_walltime(self.time if isinstance(self.time, int) else None)

    @property
    def extra_options(self) -> tuple[tuple[str, str], ...]:
        """The options of ``extra``, see :func:`options_in_line`."""
        return tuple(option for line in self.extra or () for option in options_in_line(line))

    @property
    def options(self) -> tuple[str, ...]:
        """The lines of ``extra`` that are not part of :attr:`gres_option`."""
        return tuple(line for line in self.extra or () if line not in self._lines_of_gres())

    def _lines_of_gres(self) -> list[str]:
        """Lines that request generic resources alone, and no GPUs in addition to those of the fields."""
        beside = GPU_GRES if self.gres else ()
        named = ((line, names_in_gres(line)) for line in self.extra or ())
        return [line for line, names in named if names and not set(names).intersection(beside)]


SBATCH_OPTIONS = {
    mark.name: name
    for name, field in Resources.model_fields.items()
    for mark in field.metadata
    if isinstance(mark, SbatchOption)
}
"""Options of sbatch, and the field whose value each has."""


NUMBER_FIELDS = ("nodes", "gpus", "shards", "cpus", "memory", "time", "nice")
"""Fields that a range may set: numbers, or texts that stand for one."""


@lru_cache(maxsize=1024)
def options_in_line(line: str) -> tuple[tuple[str, str], ...]:
    """The options of a line by their long names; a line with unbalanced quotes is one option without a name."""
    try:
        return tuple(options_of(line))
    except ValueError:
        return (("", line),)


def names_in_gres(line: str) -> tuple[str, ...]:
    """The generic resources that a line of sbatch options requests; empty if it contains any other option."""
    (name, value), *others = options_in_line(line) or (("", ""),)
    if name != "gres" or others:
        return ()
    try:
        return tuple(gres.name for gres in parse_gres(value))
    except ValueError:
        return ()


_GPUS = ("gpus", "gpu_type", "shards")


def over_defaults(own: Resources, defaults: Resources) -> Resources:
    """The site's defaults overridden by what profile and choice set.

    A field that is set, even to ``null``, replaces the default; lines of ``extra`` follow the site's. The GPU fields
    are replaced together, since a mixture of the site's and the profile's would be a request that neither meant; a line
    of the site's ``extra`` that requests GPUs is dropped with them.
    """
    if defaults.gpus is None and defaults.gpu_type and not defaults.shards:
        defaults = defaults.model_copy(update={"gpus": 1})
    resources = merged(defaults, own)
    mine = own.model_fields_set.intersection(_GPUS)
    if mine and resources.extra:
        theirs = [line for line in defaults.extra or () if not set(GPU_GRES).isdisjoint(names_in_gres(line))]
        resources = resources.model_copy(
            update={"extra": tuple(line for line in resources.extra if line not in theirs)}
        )
    if any(getattr(own, name) is not None for name in mine):
        resources = resources.model_copy(update={name: getattr(own, name) for name in _GPUS})
    elif mine and not resources.gpus and not resources.shards:  # the type belonged to the GPUs that null removed
        resources = resources.model_copy(update={"gpu_type": None})
    return resources


# What a job sets up before the server starts: modules, Python environment or container, variables, shell lines.

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_OWNED = {
    "CUDA_VISIBLE_DEVICES": "the launcher sets it to the GPUs that Slurm granted",
    "CUDA_DEVICE_ORDER": "the launcher sets it to PCI_BUS_ID",
}


class Container(Frozen):
    """The image that the server runs in; the launcher itself runs outside it."""

    image: Image
    """Path of an image file or folder, or an address such as ``docker://...``."""
    binds: Annotated[tuple[Bind, ...], OneOrMany] = ()
    """``SOURCE[:TARGET[:ro]]``, one each."""
    nv: bool | None = None
    """Make the node's NVIDIA driver available (``--nv``); default: if the job asks for a GPU."""
    runtime: Literal["apptainer", "singularity"] = "apptainer"
    """The command that runs it."""


def _as_container(value: Any) -> Any:
    return {"image": value} if isinstance(value, str) else value


class Environment(Frozen):
    """What is set up in the job, in this order, before the server starts."""

    login_shell: bool = True
    """Run the script with ``bash -l``, so that the site's profile, which defines ``module``, is read."""
    module_use: Annotated[tuple[Folder, ...], OneOrMany, Guarded("software")] = ()
    """Folders for ``module use``."""
    modules: Annotated[tuple[ModuleName, ...], OneOrMany] = ()
    """Names for ``module load``, in order; if one fails, the job ends with an error that names it."""
    conda: Annotated[PythonHome | None, Guarded("software", free="[A-Za-z0-9_][A-Za-z0-9_.+@-]*")] = None
    """A conda environment's name or path."""
    venv: Annotated[PythonHome | None, Guarded("software")] = None
    """A virtual environment's path."""
    container: Annotated[Container | None, BeforeValidator(_as_container), Guarded("software")] = None
    """An Apptainer image: its path alone, or a table."""
    variables: Annotated[dict[str, Text], Guarded("variables")] = Field(default_factory=dict)
    """Variables to export, each one line."""
    setup: Annotated[tuple[ShellLine, ...], Lines, Guarded("setup")] = ()
    """Shell lines of the admin, inserted into the script unchanged."""

    @field_validator("variables")
    @classmethod
    def _allowed(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if _VARIABLE.fullmatch(name) is None:
                raise BadValue("is not a valid variable name: use letters, digits and _, and no digit first", name)
            if name in _OWNED:
                raise BadValue(f"{name} cannot be set by a profile: {_OWNED[name]}")
            if name.startswith("JUPYTERHUB_"):
                rule = "cannot be set by a profile: the hub sets all variables that begin with JUPYTERHUB_"
                raise BadValue(rule, text=f"{name} {rule}")
        return value


# How the launcher places a server on its node, as set by a profile; the values are those of the launch plan.


class PlacementRules(Frozen):
    """Placement of a server on its node. A field that is left out has the site's setting."""

    policy: Literal["none", "best-effort", "restricted"] | None = None
    """How strictly GPUs, CPUs and memory must be near each other; ``restricted`` is requested from Slurm."""
    claim: Annotated[int, whole(1, 1024)] | None = None
    """GPUs that the server claims on its node; for clusters where Slurm allocates none or servers share them."""

    @field_validator("policy", mode="before")
    @classmethod
    def _not_the_kubelets_strictest(cls, value: object) -> object:
        if value == "single-numa-node":
            raise BadValue(
                "is the kubelet's: what Slurm has granted cannot be refused for being on several NUMA nodes. The "
                "strictest policy here is 'restricted': the GPUs wait until cores beside them are free",
                value,
            )
        return value
