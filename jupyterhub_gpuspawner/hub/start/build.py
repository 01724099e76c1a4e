"""From a spawner's settings and a checked request to the batch job, as ``gpuspawner show`` prints it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from jupyterhub_gpuspawner.batch import script, template
from jupyterhub_gpuspawner.batch.launcher import launcher_archive
from jupyterhub_gpuspawner.hub.site.account import job_owner, owner_number
from jupyterhub_gpuspawner.hub.spawners.child import configured_as
from jupyterhub_gpuspawner.jobs import comment
from jupyterhub_gpuspawner.jobs.identity import JobIdentity
from jupyterhub_gpuspawner.profiles.profile import Profile, parse_profile
from jupyterhub_gpuspawner.profiles.resolve import JobRequest, resolve
from jupyterhub_gpuspawner.profiles.schema import as_time_text
from jupyterhub_gpuspawner.profiles.wrapspawner import TYPED
from jupyterhub_gpuspawner.units import format_memory
from jupyterhub_gpuspawner.wire.documents import LaunchPlan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jupyterhub_gpuspawner.hub.site.account import Account
    from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
    from jupyterhub_gpuspawner.profiles.resolve import ResolvedResources
    from jupyterhub_gpuspawner.profiles.resources import Resources

OF_THE_ACCOUNT = ("req_username", "req_homedir", "req_keepvars")
SETTINGS = {ours: old for old, ours in TYPED.items()}
"""A profile's field, and batchspawner's name for it without ``req_``."""
NOT_DEFAULTS = (*OF_THE_ACCOUNT, "req_keepvars_extra")


@dataclass(frozen=True)
class BatchJob:
    """A job ready to be submitted."""

    script: str
    notes: tuple[str, ...]
    """What was mended in the admin's own template, one sentence each."""
    tag: str
    """The job's comment; it names hub, user and server, and this one start."""
    identity: JobIdentity
    """What tells it from every other job, beside the number that it will get."""


def site_profile(spawner: GPUSlurmSpawner) -> Profile:
    """The site's defaults, from the ``req_*`` settings, as a profile; raises ConfigError naming the setting.

    A setting that is empty asks for nothing.
    """
    traits = {
        name: value
        for name in spawner.trait_names()
        if name.startswith("req_") and name not in NOT_DEFAULTS and (value := getattr(spawner, name))
    }

    def where(path: Sequence[str | int]) -> str:
        field = str(path[-1]) if path else "*"
        return configured_as(spawner, f"req_{SETTINGS.get(field, field)}")

    return parse_profile(("The site's defaults", "default", "GPUSlurmSpawner", traits), where)


def site_defaults(spawner: GPUSlurmSpawner) -> Resources:
    """What a job asks of Slurm where neither profile nor choice says anything; raises ConfigError."""
    return site_profile(spawner).slurm


def plain_request(spawner: GPUSlurmSpawner) -> JobRequest:
    """The request of a hub without profiles: the site's defaults alone."""
    return resolve(
        (site_profile(spawner),),
        {},
        username=spawner.user.name,
        groups=(),
        server_name=spawner.name,
        now=datetime.now().astimezone(),
    )


def batch_job(spawner: GPUSlurmSpawner, request: JobRequest, account: Account, *, start_id: str) -> BatchJob:
    """The job of ``request`` under the spawner's settings; raises ConfigError or RequestError."""
    tag = comment.tag(spawner.hub_name, request.username, request.server_name)
    if start_id:
        tag = f"{tag}#{start_id}"
    identity = JobIdentity(
        owner=job_owner(spawner.exec_prefix, account.name),
        uid=owner_number(spawner.exec_prefix, account),
        tag=tag,
    )
    command = [*(request.command or spawner.cmd), *spawner.get_args()]
    log_dir = spawner.log_dir.replace("{homedir}", account.home).replace("{username}", account.name)
    log_path = f"{log_dir}/jupyterhub-%j.log"
    name = comment.job_name(spawner.job_name, start_id)
    if spawner.batch_script:
        rendered = template.render_template(
            spawner.batch_script,
            template_variables(spawner, request, account),
            launcher=launcher_archive(),
            plan=launch_plan(spawner, request),
            command=command,
            tag=tag,
            environment=request.environment,
            job_name=name if start_id else "",
        )
        named = replace(identity, name=name) if f"#SBATCH --job-name={name}\n" in rendered.script else identity
        return BatchJob(rendered.script, rendered.notes, tag, named if start_id in name else identity)
    text = script.render(
        request,
        launcher=launcher_archive(),
        plan=launch_plan(spawner, request),
        command=command,
        tag=tag,
        log_path=log_path,
        job_name=name,
        chdir=account.home,
        prologue=spawner.req_prologue,
        epilogue=spawner.req_epilogue,
    )
    if start_id and start_id in name:
        identity = replace(identity, name=name)
    return BatchJob(text, (), tag, identity)


def launch_plan(spawner: GPUSlurmSpawner, request: JobRequest) -> LaunchPlan:
    """What the launcher on the node is told."""
    first_last = spawner.port_range.split("-") if spawner.port_range else None
    return LaunchPlan(
        gpus=request.placement.claim or request.resources.gpus,
        cpus=request.resources.cpus,
        policy=request.placement.policy or spawner.placement_policy,
        memory_policy=request.placement.memory_policy or spawner.memory_policy,
        port_range=request.port_range or (first_last and (int(first_last[0]), int(first_last[1]))) or None,
        topology_file=spawner.topology_file or None,
        deadline=spawner.observe_timeout,
        claim=spawner.claim_folder if request.placement.claim else None,
    )


def template_variables(spawner: GPUSlurmSpawner, request: JobRequest, account: Account) -> dict[str, str]:
    """batchspawner's names for an admin's own template: ``req_*`` as set; what is asked of Slurm, as the request says.

    The request holds the site's defaults, so what it does not ask for is empty whatever a setting says.
    """
    variables: dict[str, Any] = {
        name.removeprefix("req_"): getattr(spawner, name)
        for name in spawner.trait_names()
        if name.startswith("req_") and name not in OF_THE_ACCOUNT  # batchspawner asks the account database for these
    }
    variables.update(_in_batchspawners_words(request.resources))
    variables.update(username=account.name, homedir=account.home)
    names = sorted(spawner.job_environment(account))
    variables["keepvars"] = ",".join([*names, *filter(None, [spawner.req_keepvars_extra])])
    return {key: str(value) for key, value in variables.items()}


def _in_batchspawners_words(resources: ResolvedResources) -> dict[str, str]:
    return {
        "partition": resources.partition or "",
        "nprocs": str(resources.cpus or ""),
        "ngpus": str(resources.gpus or ""),
        "nnodes": str(resources.nodes),
        "memory": format_memory(resources.memory) if resources.memory is not None else "",
        "runtime": as_time_text(resources.time) if resources.time is not None else "",
        "account": resources.account or "",
        "qos": resources.qos or "",
        "reservation": resources.reservation or "",
        "constraint": resources.constraint or "",
        "gres": resources.gres_option,
        "options": " ".join(resources.options),
    }
