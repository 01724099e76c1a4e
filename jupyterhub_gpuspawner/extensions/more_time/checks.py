"""Whether running servers can be extended, where a profile allows it."""

from __future__ import annotations

import ast
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from jupyterhub_gpuspawner.check.finding import Code, Context, Finding, names_no_cluster
from jupyterhub_gpuspawner.check.profiles import lengths_of
from jupyterhub_gpuspawner.check.run_as import assignments, is_of_here, of_scripts
from jupyterhub_gpuspawner.errors import GPUSpawnerError, SlurmUnavailable
from jupyterhub_gpuspawner.extensions.more_time import fields
from jupyterhub_gpuspawner.extensions.more_time.raising import EXTEND, may_raise, operator_prefix
from jupyterhub_gpuspawner.slurm.job import own_account
from jupyterhub_gpuspawner.slurm.messages import TimedOut

TOO_LONG = Code(
    "extend-too-long", "Servers of a profile that may be extended have the longest time limit of the partition already."
)
EXTENDING = Code("extend", "How the time limits of running servers are raised.")
CANNOT = Code("extend-fails", "A profile has `extend`, and time limits cannot be raised.")


@names_no_cluster
def check_lengths(context: Context) -> Iterator[Finding]:
    """Look at the time limit of each profile that has `extend`."""
    for profile in context.profiles:
        resources, snapshot = context.unchanged(profile), context.snapshot
        if fields.EXTEND.of(profile) is None or snapshot is None or resources is None:
            continue
        lengths = lengths_of(resources, snapshot)
        limits = {name: snapshot.partition_by_name[name].max_time for name in lengths}
        if lengths and all(limit is not None and lengths[name] >= limit for name, limit in limits.items()):
            where = f"partition {resources.partition}" if resources.partition else "the default partition"
            yield TOO_LONG.warning(
                context.location(profile, "extend"),
                f"no server can be extended: its time limit is already MaxTime of {where}.",
                "Set a shorter slurm.time, or take extend out of the profile.",
            )


@names_no_cluster
def check_script(context: Context) -> Iterator[Finding]:
    """Look at the script that raises time limits, as far as this account may."""
    yield from of_scripts(context, [EXTEND] if is_of_here(context.spawner.extend_prefix) else [])


async def check_extending(context: Context) -> AsyncIterator[Finding]:
    """Try the script that raises time limits, without a job."""
    if all(fields.EXTEND.of(profile) is None for profile in context.of_slurm()) or isinstance(
        context.slurm_error, TimedOut
    ):
        return
    extend_prefix, name = context.spawner.extend_prefix, own_account() or "this account"
    try:
        prefix = operator_prefix(extend_prefix)
        permitted = await may_raise(context.client, prefix)
    except SlurmUnavailable:
        raise
    except GPUSpawnerError as error:
        yield CANNOT.error("extend", error.message, error.hint)
        return
    hub_name, script = context.spawner.hub_name, Path(context.spawner.wrapper_dir, EXTEND)
    hub_of_script = _hub_of(script) if is_of_here(extend_prefix) else None
    if hub_of_script not in (None, hub_name):
        yield CANNOT.warning(
            "extend",
            f"{script} extends the servers of a hub named {hub_of_script!r}, and this one is named {hub_name!r}, so no "
            "server can be extended.",
            f"Write HUB = {hub_name!r} in the script.",
        )
    elif permitted:
        how = f"by `{extend_prefix}`" if prefix else f"by {name} itself"
        yield EXTENDING.ok("extend", f"time limits are raised {how}")
    else:
        yield CANNOT.warning(
            "extend",
            f"{name} is not a Slurm operator, so no server can be extended.",
            "`gpuspawner files /etc/jupyterhub --wrappers` writes the script `extend`; set "
            "c.GPUSlurmSpawner.extend_prefix, for example to sudo -n -u slurm, as the guide "
            '"Run the hub under its own account" says.',
        )


def _hub_of(script: Path) -> str | None:
    """The name of the hub whose servers the script ``extend`` extends; None if it cannot be read, or is computed.

    It refuses the jobs of other hubs, which does not show when it is tried without a job.
    """
    try:
        values = dict(assignments(script.read_text("utf-8")))
    except (OSError, ValueError):
        return None
    value = values["HUB"].value if "HUB" in values else None
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return value.value
    is_name_of_machine = value is not None and ast.unparse(value) == "socket.gethostname()"
    return socket.gethostname() if is_name_of_machine else None
