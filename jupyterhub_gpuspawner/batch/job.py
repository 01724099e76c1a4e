"""Makes the batch job of a checked request from a spawner's settings, as ``gpuspawner show`` prints it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from jinja2 import TemplateError

from jupyterhub_gpuspawner.batch import script, template
from jupyterhub_gpuspawner.batch.carried import Carried, cargo_of
from jupyterhub_gpuspawner.batch.launcher import launcher_archive
from jupyterhub_gpuspawner.errors import ConfigError, RequestError
from jupyterhub_gpuspawner.profiles.parsing import parse_profile
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.resolve import JobRequest, resolve, resolved
from jupyterhub_gpuspawner.profiles.resources import SBATCH_OPTIONS, Resources, over_defaults
from jupyterhub_gpuspawner.profiles.schema import Written
from jupyterhub_gpuspawner.profiles.sections import ServerCommand, program_of
from jupyterhub_gpuspawner.profiles.tuples import TYPED, as_requests
from jupyterhub_gpuspawner.slurm import job as jobs
from jupyterhub_gpuspawner.slurm.job import Account, JobIdentity, job_owner, owner_number
from jupyterhub_gpuspawner.slurm.sbatch_options import Option
from jupyterhub_gpuspawner.wire.documents import LaunchPlan

SETTINGS = {ours: old for old, ours in TYPED.items()}
"""A profile's field, and batchspawner's name for it without ``req_``."""

ACCOUNT_VARIABLES = ("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "USER")
"""Environment variables that a job gets for the account that it runs as."""
LOG_FOLDER = ".local/share/gpuspawner/logs"
"""Below the home of a user: the default folder of logs, which jobs make themselves."""
OWN_LOG_DIR = f"{{homedir}}/{LOG_FOLDER}"
"""``log_dir`` for that folder."""
OBSERVE_SECONDS = 3.0
"""Time limit for reading a node's hardware."""
_NOT_REQUESTED = ("req_cluster", "req_keepvars_extra")
"""Settings that are no default of a field: the first says how Slurm's commands reach the cluster."""


@dataclass(frozen=True)
class JobSettings:
    """The settings from which a job is made, read from a spawner; see the reference of ``c.GPUSlurmSpawner``."""

    args: tuple[str, ...]
    """The arguments of the server's command."""
    batch_script: str
    cmd: tuple[str, ...]
    exec_prefix: str
    gpus_option: str
    hub_name: str
    job_name: str
    log_dir: str
    memory_policy: str
    placement_policy: str
    port_range: str
    req_epilogue: str
    req_homedir: str
    req_prologue: str
    topology_file: str
    requests: Mapping[str, Any]
    """The ``req_*`` settings by name, without those that batchspawner takes from the account database."""
    locations: Mapping[str, str]
    """Each of these as the admin wrote it, such as ``c.GPUSlurmSpawner.req_partition``."""
    carried: tuple[Carried, ...]
    """What the hub's extensions add to the launcher."""
    of_extensions: Mapping[str, Any]
    """The settings that these read, by their names."""
    of_command: tuple[Option, ...]
    """Options of batchspawner's command line, which win over those of the script."""
    variables: frozenset[str]
    """Names of the job's variables beside the account's; empty without a ``batch_script``, and for no server."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """What a form of the site's has sent and its ``batch_script`` names, see :func:`with_options`."""


@dataclass(frozen=True)
class BatchJob:
    """A job ready to be submitted."""

    script: str
    notes: tuple[str, ...]
    """What was corrected in the admin's own template, one sentence each."""
    tag: str
    """The job's comment: it names hub, user and server, and this one start."""
    identity: JobIdentity
    """What tells it from every other job, beside the id that it will get."""


def site_profile(settings: JobSettings) -> Profile:
    """The site's defaults, from the ``req_*`` settings, as a profile; raises ConfigError naming the setting.

    A setting that is empty requests nothing.
    """
    traits = {name: value for name, value in settings.requests.items() if value and name not in _NOT_REQUESTED}

    def where(path: Sequence[str | int]) -> str:
        names = [f"req_{SETTINGS.get(str(part), part)}" for part in reversed(path)]
        name = next((name for name in (*names, "req_gres") if name in traits), (*names, "req_*")[0])
        return settings.locations.get(name, f"c.GPUSlurmSpawner.{name}")

    return parse_profile(("The site's defaults", "default", "GPUSlurmSpawner", traits), where)


def site_defaults(settings: JobSettings) -> Resources:
    """What a job requests where neither profile nor user does; raises ConfigError."""
    return site_profile(settings).slurm


def requested_instead(resources: Resources, requests: Mapping[str, Any]) -> Resources:
    """The request with these ``req_*`` values in place of its own; raises ConfigError, ``where`` is the value's name.

    An empty value requests nothing. ``req_options`` and ``req_gres`` are whole, as :func:`in_batchspawners_names` has
    them.
    """
    requests = {name: value for name, value in requests.items() if name not in _NOT_REQUESTED}

    def where(path: Sequence[str | int]) -> str:
        names = (f"req_{SETTINGS.get(str(part), part)}" for part in path)
        return next((name for name in names if name in requests), "req_gres")

    own = parse_profile(("A hook's requests", "hook", "GPUSlurmSpawner", requests), where).slurm
    if not own.model_fields_set:
        return resources
    changed = {name: getattr(own, name) for name in own.model_fields_set}
    if "req_gres" in requests:
        changed |= {name: getattr(own, name) for name in ("gpus", "gpu_type", "shards")}
    elif changed.get("gpus"):
        changed["shards"] = None
    if "extra" in changed or "req_gres" in requests:
        extra = own.extra or ()
        extra = extra if "req_options" in requests else (*resources.options, *extra)
        others = () if "req_gres" in requests or not resources.other_gres else (f"--gres={resources.other_gres}",)
        changed["extra"] = (*extra, *others)
    return resolved(
        resources.model_copy(update=changed), datetime.now().astimezone().date(), time_unit=resources.time_unit
    )


def plain_request(settings: JobSettings, *, username: str, server_name: str) -> JobRequest:
    """The request of a hub without profiles: the site's defaults alone."""
    return resolve(
        (site_profile(settings),),
        {},
        username=username,
        groups=(),
        server_name=server_name,
        now=datetime.now().astimezone(),
    )


def with_options(settings: JobSettings, options: Mapping[str, Any]) -> JobSettings:
    """The settings of a job with what a form of the site's has sent, as for batchspawner; raises RequestError.

    Each is the template's variable of its name, in place of a setting's; without a template it is what the setting
    requests. Nobody has checked a value, which a program can send as well, so one that the template names must be one
    word to a shell, or words in a list, and none replaces the command or shell lines. What the template names and
    neither a setting nor this choice has is empty.
    """
    if refused := sorted(_NOT_OF_A_FORM.intersection(options)):
        raise RequestError(f"{refused[0]!r} is not an option here.", field=refused[0])
    try:
        names = template.names_in(settings.batch_script)
    except (TemplateError, ValueError):  # no job can be made of it, whose error says so
        names = frozenset()
    named = names.intersection(options)
    read = {f"req_{name}": _as_text(options[name]) for name in (named if settings.batch_script else options)}
    requests = {name: value for name, value in read.items() if name in settings.requests}
    try:
        site_profile(replace(settings, requests=requests, locations={name: name[4:] for name in requests}))
    except ConfigError as error:
        raise RequestError(f"{error}", field=error.where) from error
    for name in sorted(named):
        if not template.is_safe(options[name]):
            raise RequestError(
                f"{name}: {str(options[name])[:80]!r} is not allowed.",
                field=name,
                hint="Use letters, digits and . : / , + = @ % _ - without blanks.",
            )
    chosen = dict.fromkeys(names - {name[4:] for name in settings.requests} - _NOT_OF_A_FORM, "")
    chosen |= {name: value for name, value in options.items() if name in named}
    return replace(settings, requests={**settings.requests, **requests}, options=chosen)


_NOT_OF_A_FORM = frozenset(
    ["cmd", "tag", "username", "homedir", "keepvars", "keepvars_extra", "cluster", "srun", *template.SHELL]
)


def _as_text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else "" if value is None else str(value)


def as_commanded(request: JobRequest, options: Sequence[Option]) -> JobRequest:
    """The request with what the options of batchspawner's command line say instead; raises ConfigError."""
    traits = as_requests(options)
    traits.pop("req_cluster", None)  # it is no field of a hub that names no clusters
    if not traits or request.profile.kind != "slurm":
        return request
    own = parse_profile(("", "command", "GPUSlurmSpawner", traits), lambda _: "batch_submit_cmd").slurm
    resources = over_defaults(own, request.resources)
    lines = tuple(dict.fromkeys(reversed(resources.extra or ())))
    return replace(request, resources=resources.model_copy(update={"extra": lines[::-1]}))


def with_lines(template: str, options: Sequence[Option]) -> str:
    """An admin's own template with these options below its ``#SBATCH`` lines, of which the last of a kind counts."""
    if not options:
        return template
    lines = template.split("\n")
    head = (at for at, line in enumerate(lines) if line.strip() and not line.lstrip().startswith(("#", "{%", "{#")))
    at = next(head, len(lines))
    return "\n".join([*lines[:at], *(f"#SBATCH {option}" for option in options), *lines[at:]])


def server_command(request: JobRequest | None, cmd: Sequence[str], args: Sequence[str]) -> ServerCommand:
    """The server's command: a program's own, or the profile's, or ``cmd``, with JupyterHub's arguments."""
    program = program_of(request.profile) if request is not None else None
    if program is not None:
        return program.launched(cmd[0])
    return ServerCommand((*((request.command if request is not None else None) or cmd), *args))


def batch_job(settings: JobSettings, request: JobRequest, account: Account, *, start_id: str) -> BatchJob:
    """The job of ``request``; ``start_id`` is empty for a trial. Raises ConfigError or RequestError."""
    tag = jobs.tag(settings.hub_name, request.username, request.server_name)
    if start_id:
        tag = f"{tag}#{start_id}"
    request = as_commanded(request, settings.of_command)
    command = server_command(request, settings.cmd, settings.args)
    cargo = cargo_of(request, settings.carried, settings.of_extensions)
    launcher, plan = launcher_archive(cargo.carried), cargo.on(launch_plan(settings, request))
    name = jobs.job_name(settings.job_name, start_id)
    if settings.batch_script:
        rendered = template.render_template(
            with_lines(settings.batch_script, settings.of_command),
            template_variables(settings, request, account),
            options=settings.options,
            launcher=launcher,
            plan=plan,
            before_server=cargo.lines,
            command=command,
            tag=tag,
            environment=request.environment,
            job_name=name if start_id else "",
        )
    else:
        try:
            text = script.render(
                request,
                launcher=launcher,
                plan=plan,
                before_server=cargo.lines,
                command=command,
                tag=tag,
                log_path=f"{slurms_log_dir(settings.log_dir, account)}/jupyterhub-%j.log",
                log_folder=f"{account.home}/{LOG_FOLDER}" if settings.log_dir == OWN_LOG_DIR else "",
                job_name=name,
                chdir=account.home,
                prologue=settings.req_prologue,
                epilogue=settings.req_epilogue,
                gpus_option=settings.gpus_option,
            )
        except ValueError as error:  # the settings have been checked: the account's home
            raise ConfigError(
                f"{error}.", where=f"the account {account.name}", hint="Set c.GPUSlurmSpawner.req_homedir."
            ) from error
        rendered = template.Rendered(text)
    has_name = start_id and start_id in name and f"#SBATCH {script.option('job-name', name)}\n" in rendered.script
    identity = JobIdentity(
        owner=job_owner(settings.exec_prefix, account.name),
        uid=owner_number(settings.exec_prefix, account),
        tag=tag,
        name=name if has_name else "",
    )
    return BatchJob(rendered.script, rendered.notes, tag, identity)


def slurms_log_dir(log_dir: str, account: Account) -> str:
    """The folder in which Slurm opens a log, which must exist; jobs move it to the default folder, and make that."""
    text = "{homedir}" if log_dir == OWN_LOG_DIR else log_dir
    return text.replace("{homedir}", account.home).replace("{username}", account.name)


def launch_plan(settings: JobSettings, request: JobRequest) -> LaunchPlan:
    """The plan for the launcher on the node, without what extensions add."""
    first_last = settings.port_range.split("-") if settings.port_range else None
    return LaunchPlan(
        gpus=request.placement.claim or request.resources.gpus,
        gpu_type=request.resources.gpu_type,
        cpus=request.resources.cpus,
        policy=request.placement.policy or settings.placement_policy,
        memory_policy=settings.memory_policy,
        port_range=request.profile.port_range or (first_last and (int(first_last[0]), int(first_last[1]))) or None,
        topology_file=settings.topology_file or None,
        deadline=OBSERVE_SECONDS,
    )


def template_variables(settings: JobSettings, request: JobRequest, account: Account) -> dict[str, Any]:
    """The variables of an admin's own template, by batchspawner's names.

    They are the ``req_*`` settings as set, which a site's class may have of any type, and what the job requests of
    Slurm, as the admin wrote it. The request includes the site's defaults, so what it does not ask for is empty
    whatever a setting says.
    """
    variables: dict[str, Any] = {name.removeprefix("req_"): value for name, value in settings.requests.items()}
    variables.update(in_batchspawners_names(request.resources, settings.batch_script))
    variables.update(username=account.name, homedir=account.home)
    names = [*sorted({*settings.variables, *ACCOUNT_VARIABLES}), settings.requests["req_keepvars_extra"]]
    variables["keepvars"] = ",".join(filter(None, names))
    return variables


_GPU_VARIABLES = re.compile(r"\{[^{}]*\b(gres|ngpus)\b")


def in_batchspawners_names(resources: Resources, text: str = "") -> dict[str, str]:
    """What a job requests, as batchspawner's variables of a template with this text; empty for what it does not."""
    plain = resources.plain_options
    gpus, gres = str(resources.gpus or ""), resources.gres_option
    if isinstance(resources.gpus, Written) and len({*_GPU_VARIABLES.findall(text)}) == 2:  # one of them was set
        gpus, gres = (gpus, resources.other_gres) if resources.gpus.text.isdigit() else ("", gres)
    return {
        "partition": resources.partition or "",
        "nprocs": str(resources.cpus or ""),
        "ngpus": gpus,
        "nnodes": str(resources.node_count),
        "memory": template.memory_variable(text, resources.memory) if resources.memory is not None else "",
        "runtime": template.runtime_variable(text, resources.time) if resources.time is not None else "",
        **{field: "" if plain[name] is None else str(plain[name]) for name, field in SBATCH_OPTIONS.items()},
        "gres": gres,
        "options": " ".join(resources.options),
    }
