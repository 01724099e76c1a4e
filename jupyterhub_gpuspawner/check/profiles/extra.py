"""Options of ``extra`` for which a profile has a field of its own, or the hub a setting.

They follow those that the hub writes, and of two equal options sbatch takes the last. So the job is another one than
the form shows: what users choose has no effect, and whether it can start is judged by the field.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.batch.script import options_of
from jupyterhub_gpuspawner.check.finding import Code
from jupyterhub_gpuspawner.check.profiles.cases import cases_of
from jupyterhub_gpuspawner.check.profiles.judgement import request_of
from jupyterhub_gpuspawner.check.profiles.locations import Locations
from jupyterhub_gpuspawner.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyterhub_gpuspawner.check.context import Context
    from jupyterhub_gpuspawner.check.finding import Finding
    from jupyterhub_gpuspawner.profiles.resolve import ResolvedResources

FIELD = Code("extra-field", "`extra` has an option of sbatch for which profiles have a field, which it overrides.")
SETTING = Code("extra-setting", "`extra` has an option of sbatch that the hub sets itself for every job.")
NO_TOKEN = Code("extra-export", "`extra` keeps the hub's variables from jobs, so no server can sign in to the hub.")
FIELDS = {
    "account": "account",
    "constraint": "constraint",
    "cpus-per-task": "cpus",
    "exclusive": "exclusive",
    "gpus": "gpus",
    "gpus-per-node": "gpus",
    "gres": "gpus",
    "mem": "memory",
    "nodes": "nodes",
    "partition": "partition",
    "qos": "qos",
    "reservation": "reservation",
    "time": "time",
}
"""Fields of ``slurm`` by the options of sbatch that they stand for."""
BESIDE = {"cpus-per-gpu": "cpus", "gpus-per-task": "gpus", "mem-per-cpu": "memory", "mem-per-gpu": "memory"}
"""Fields that an option contradicts where they are set; without them it is the only way to say what it says."""
SETTINGS = {
    "chdir": "req_homedir",
    "job-name": "job_name",
    "output": "log_dir",
}
"""Settings by the options of sbatch that they stand for."""


async def check_extra(context: Context) -> list[Finding]:
    """Look at the options of each profile's job, and of each value of its options; those of a site once."""
    locations = Locations(context)
    found: dict[Finding, None] = {}
    for profile in context.profiles:
        seen = set[str]()
        for case in cases_of(profile) if profile.kind == "slurm" else ():
            try:
                resources = request_of(profile, case.options, context).resources
            except RequestError:
                continue
            for line in resources.options:
                if line in seen:
                    continue
                seen.add(line)
                where = locations.of_fault(profile, case, "extra")
                if line in (context.defaults.extra or ()) and line not in (profile.slurm.extra or ()):
                    where = context.slurm_site.configured_as("req_options")
                found.update(dict.fromkeys(_of_line(where, line, resources, context)))
    return [*found]


def _of_line(where: str, line: str, resources: ResolvedResources, context: Context) -> Iterator[Finding]:
    try:
        options = [*options_of(line)]
    except ValueError:  # sbatch says so
        return
    for name, value in options:
        said = f"--{name}={value}" if value else f"--{name}"
        field = FIELDS.get(name)
        if (name == "exclusive" and value) or (name == "gres" and not _asks_for_gpus(value)):
            field = None  # of one user or of other devices, for which there is no field
        if field is not None:
            yield FIELD.warning(where, f"{said} overrides slurm.{field}, {_SHOWN}", f"Set slurm.{field} instead.")
        elif name in BESIDE and getattr(resources, BESIDE[name]) is not None:
            beside = BESIDE[name]
            yield FIELD.warning(
                where, f"{said} contradicts slurm.{beside}, which is set as well.", f"Remove it, or slurm.{beside}."
            )
        elif name == "export" and value.split(",")[0] != "ALL":
            yield NO_TOKEN.error(
                where, f"{said} keeps the hub's variables from the job, so the server cannot sign in.", "Remove it."
            )
        elif name in SETTINGS:
            setting = context.slurm_site.configured_as(SETTINGS[name])
            yield SETTING.warning(where, f"{said} overrides {setting}.", f"Remove it, and set {setting} instead.")


def _asks_for_gpus(gres: str) -> bool:
    return any(each.partition(":")[0] in ("gpu", "shard") for each in gres.split(","))


_SHOWN = "which the form shows and by which it judges whether a job can start."
