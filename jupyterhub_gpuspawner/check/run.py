"""Runs the checks, and puts their findings into lines or a document."""

from __future__ import annotations

import asyncio
import json
import traceback
import warnings
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from inspect import ismodule
from operator import attrgetter
from pathlib import Path
from typing import Any

from jupyterhub.app import JupyterHub
from traitlets import TraitError

from jupyterhub_gpuspawner.check import clusters, hub, machine, profiles, requests, run_as, settings, slurm, submit
from jupyterhub_gpuspawner.check.finding import (
    CODES,
    DEFAULTS,
    NAME_NO_CLUSTER,
    Check,
    Code,
    Context,
    Finding,
    Judge,
    Options,
    Severity,
    Verdict,
    checks_in,
)
from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError, SlurmOutputError, SlurmUnavailable
from jupyterhub_gpuspawner.extension import FUNCTION, Extensions, Fault, Kind, load_each
from jupyterhub_gpuspawner.hub.extensions import CARRIED, HUB, TRAITS, chosen, names_for
from jupyterhub_gpuspawner.hub.spawners.offers import NO_PROFILE, OFFER_PROFILES
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.profiles.parsing import parse_profile
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.profiles.schema import dotted
from jupyterhub_gpuspawner.profiles.sections import FIELDS
from jupyterhub_gpuspawner.site.configuration import Site, read_config, site_of, spawner_class_of
from jupyterhub_gpuspawner.site.configured import settings_classes
from jupyterhub_gpuspawner.site.database import is_readable
from jupyterhub_gpuspawner.site.people import people_of, stored_slugs
from jupyterhub_gpuspawner.site.values import refusal, refused
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot

MODULES = (clusters, requests, profiles, settings, hub, slurm, machine, run_as, submit)
CHECKS = tuple(check for module in MODULES for check in checks_in(module))
"""In the order of their findings."""
EXTENSION = Code("extension", "An extension, or a part of one, cannot be used, so it is left out.")
REFERENCES = {
    "hub": HUB,
    "spawner_settings": TRAITS,
    "profile_fields": FIELDS,
    "option_fields": FIELDS,
    "checks": Kind("a module", ismodule),
    "judge": FUNCTION,
    "requests": FUNCTION,
    "launcher": CARRIED,
    "forget": FUNCTION,
}
"""What an extension may refer to, besides its commands."""


def _extensions_of(spawner: object) -> Extensions:
    return chosen(names_for(spawner))


def _unsaid(_fault: Fault) -> None:
    """A check of its own names whatever cannot be loaded."""


def checks_of(spawner: object) -> tuple[Check, ...]:
    """All checks for a hub with this spawner: ours, and those of its extensions."""
    extensions = _extensions_of(spawner)
    loaded = load_each(extensions, lambda extension: extension.checks, _unsaid, REFERENCES["checks"])
    brought = [check for _, module in loaded for check in checks_in(module)]

    def check_extensions(context: Context) -> Iterator[Finding]:
        faults = [*extensions.faults, *context.judge_faults]
        for name, kind in REFERENCES.items():
            tuple(load_each(extensions, attrgetter(name), faults.append, kind))
        for fault in faults:
            yield EXTENSION.error("c.GPUProfilesSpawner.extensions", str(fault), "")

    return (*CHECKS, *brought, check_extensions)


def _guarded(judge: Judge, name: str, faults: list[Fault]) -> Judge:
    """The judge of the extension ``name``, which knows nothing where it raises; that is one of ``faults`` then."""

    def guarded(resources: Resources, snapshot: ClusterSnapshot, now: float) -> Verdict | None:
        try:
            return judge(resources, snapshot, now)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - an extension's fault
            faults.append(Fault(name, f"its judge failed: {type(error).__name__}: {error}", error))
            return None

    return guarded


CONFIGURATION = Code("configuration", "The hub would not start with this configuration. Nothing else is checked.")
UNCONFIGURED = Code(
    "configuration-missing",
    "There is no configuration file, or it sets neither a spawner nor profiles; the fix has lines that can be written "
    "into it.",
)
FIRST_LINES = """\
c = get_config()

c.JupyterHub.spawner_class = "gpu-profiles"
c.JupyterHub.cleanup_servers = False  # servers keep running while the hub is restarted
c.Authenticator.allow_all = True  # everyone who has an account may sign in
c.GPUSlurmSpawner.exec_prefix = "runuser -u {username} --"  # for a hub that runs as root
c.GPUProfilesSpawner.profiles = [
    {"display_name": "Two cores", "slurm": {"cpus": 2, "memory": "4G", "time": "2:00:00"}},
    {"display_name": "One GPU", "slurm": {"partition": "gpu", "gpus": 1, "time": "2:00:00"}},
]
"""
"""A configuration of a hub that runs as root, in front of a cluster whose partition `gpu` has GPUs."""
INCOMPLETE = Code("check-incomplete", "One of the checks could not be finished; the others were made.")
DOCUMENT_VERSION = 1
ERRORS, SILENT = 1, 3
"""Exit codes."""
_OF_PREFIX = {run_as.FAILS.name, run_as.MISSING.name}
_STATES = {Severity.OK: "ok   ", Severity.WARNING: "warn ", Severity.ERROR: "WRONG"}


async def contexts_of(site: Site, options: Options = DEFAULTS) -> tuple[Context, ...]:
    """Read what the checks need of each cluster; raises ConfigError if the hub would not start."""
    names = [options.cluster] if options.cluster else [*site.spawner("nobody").clusters] or [""]
    contexts = await asyncio.gather(*(context_of(site, options, cluster=name) for name in names))
    snapshots = {context.cluster: context.snapshot for context in contexts}
    return tuple(replace(context, others=snapshots) for context in contexts)


async def context_of(site: Site, options: Options = DEFAULTS, *, cluster: str = "") -> Context:
    """Read what the checks need of one cluster, by default the first; raises ConfigError if the hub would not start."""
    spawner: Any = site.spawner("nobody", cluster=cluster)
    if isinstance(spawner, GPUProfilesSpawner) and (folder := spawner.source.folder) is not None:
        folder.remember(await asyncio.to_thread(stored_slugs, site.config))
    try:
        spawner.check()
    except TraitError as error:
        raise ConfigError(str(error)) from error
    for cls in settings_classes(names_for(spawner)):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # misspelt names are findings
                cls(config=site.config)
        except TraitError as error:
            raise refusal(site.config, cls, error) from error
    offered = spawner.offered() if isinstance(spawner, GPUProfilesSpawner) else ()
    if options.profile and all(profile.slug != options.profile for profile in offered):
        slugs = ", ".join(profile.slug for profile in offered) or "none"
        raise ConfigError(f"there is no profile {options.profile!r}.", hint=f"Profiles are {slugs}.")
    client = spawner.connection().client
    version, snapshot, slurm_error = "", None, None
    try:
        version, snapshot = await client.version(), await client.snapshot()
    except (SlurmUnavailable, SlurmOutputError) as error:
        slurm_error = error
    faults: list[Fault] = []
    judges = load_each(_extensions_of(spawner), lambda adds: adds.judge, _unsaid, FUNCTION)
    return Context(
        site=site,
        spawner=spawner,
        client=client,
        profiles=offered,
        defaults=spawner.defaults(),
        people=await asyncio.to_thread(people_of, site.config),
        now=datetime.now().astimezone(),
        version=version,
        snapshot=snapshot,
        slurm_error=slurm_error,
        options=options,
        judges=tuple(_guarded(judge, extension.name, faults) for extension, judge in judges),
        judge_faults=faults,
    )


async def findings_of_all(contexts: Sequence[Context], checks: Sequence[Check] | None = None) -> tuple[Finding, ...]:
    """The findings of all clusters of a hub, which are asked beside each other: first what is the same for all.

    They are those of :func:`checks_of` the hub, unless others are named.
    """
    checks = checks_of(contexts[0].spawner) if checks is None else checks
    async with submit.standing_in(contexts[0]):
        results = await asyncio.gather(*(findings(context, checks) for context in contexts))
    first = results[0]
    of_all = {finding for finding in first if all(finding in result for result in results)}
    of_all |= {finding for finding in first if CODES[finding.code].of_hub}
    shared = [finding for finding in first if not finding.cluster and finding in of_all]
    own = [
        replace(finding, cluster=context.cluster)
        for context, result in zip(contexts, results, strict=True)
        for finding in result
        if finding not in shared
    ]
    return (*shared, *own)


async def findings(context: Context, checks: Sequence[Check] | None = None) -> tuple[Finding, ...]:
    """The findings of all checks for one cluster, in their order, each once.

    They are those of :func:`checks_of` the hub, unless others are named.

    What keeps a check from being finished, such as an answer of Slurm's that cannot be read, is one finding, and the
    other checks are still made.
    """
    unique: dict[Finding, None] = {}
    for check in checks_of(context.spawner) if checks is None else checks:
        cluster = "" if check in NAME_NO_CLUSTER else context.cluster
        try:
            findings = check(context)
            async for finding in findings if isinstance(findings, AsyncIterator) else _each(findings):
                unique[replace(finding, cluster=cluster)] = None
        except (SlurmUnavailable, SlurmOutputError) as error:
            if context.slurm_error is None:
                unique[replace(slurm.unanswered(error), cluster=cluster)] = None
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a defect of one check, which must not hide what the others find
            unique[replace(_unfinished(check, error), cluster=cluster)] = None
    return tuple(_without_repetition(unique, context.setting(run_as.PREFIX)))


async def _each(findings: Iterator[Finding]) -> AsyncIterator[Finding]:
    for finding in findings:
        yield finding


def _unfinished(check: Check, error: BaseException) -> Finding:
    """The finding for a check that ended with an error."""
    if isinstance(error, GPUSpawnerError):
        return INCOMPLETE.of(error)
    line = traceback.extract_tb(error.__traceback__)[-1].lineno
    text = f"{type(error).__name__} in {check.__module__} (line {line}): {error}"
    return INCOMPLETE.error("check", text, "Please report this line to the project.")


def _without_repetition(findings: Iterable[Finding], prefix_at: str) -> Iterator[Finding]:
    """The findings without jobs that fail because of ``exec_prefix``, where its own check says the same and more."""
    findings = list(findings)
    has_cause = any(finding.code in _OF_PREFIX and finding.severity is Severity.ERROR for finding in findings)
    for finding in findings:
        if not (has_cause and CODES[finding.code].as_user and finding.where == prefix_at):
            yield finding


def exit_code(findings: Sequence[Finding]) -> int:
    """0 without errors, 3 if the only one is that Slurm does not answer, else 1."""
    errors = {finding.code for finding in findings if finding.severity is Severity.ERROR}
    return 0 if not errors else SILENT if errors == {slurm.SILENT.name} else ERRORS


def fatal(error: GPUSpawnerError, path: Path) -> tuple[Finding, ...]:
    """All faults of a configuration file with which the hub would not start: ``error``, and those behind it.

    What is misspelt comes first, since the error may be its consequence.
    """
    try:
        if not is_readable(path):
            text = "there is no such file. If the hub has its configuration elsewhere, name the file with --config."
            return (_unconfigured(path, text),)
        config = read_config(path)
    except ConfigError as fault:
        return (CONFIGURATION.of(fault),)
    is_set = "spawner_class" in config.JupyterHub
    try:
        spawner_class = spawner_class_of(config)
    except ConfigError:  # which is `error`; what else is missing is what this spawner needs
        spawner_class = GPUProfilesSpawner
        del config.JupyterHub.spawner_class
    site = site_of(path, config, spawner_class)
    misspelt = tuple(settings.misspelt(site))
    classes = (JupyterHub, site.spawner_class, *settings_classes())
    errors = [error, *(fault for cls in classes for fault in refused(site.config, cls)), *_of_profiles(site)]
    unique = {str(problem): problem for problem in errors}
    last: tuple[Finding, ...] = ()
    if not is_set and not misspelt and unique.pop(f"{NO_PROFILE} {OFFER_PROFILES}", None) is not None:
        text = "it sets no spawner_class and no profiles: the hub starts every server on its own machine."
        last = (_unconfigured(path, text),)
    elif not is_set:
        misspelt = (settings.default_spawner(), *misspelt)
    return (*misspelt, *(CONFIGURATION.of(problem) for problem in unique.values()), *last)


def _unconfigured(path: Path, text: str) -> Finding:
    commands = (command for extension in chosen(None) for command in extension.commands.values())
    known = [command.unconfigured for command in commands if command.unconfigured]
    fix = " ".join(
        [
            *known,
            f"{'Or write' if known else 'Write'} these lines into it, with a partition of yours that has GPUs, and run "
            "`gpuspawner check` again. `gpuspawner files DIR --profiles` writes a longer configuration, with example "
            f"profiles for c.GPUProfilesSpawner.profiles_dir.\n\n{FIRST_LINES}",
        ]
    )
    return UNCONFIGURED.error(str(path), text, fix)


def _of_profiles(site: Site) -> Iterator[ConfigError]:
    """The error of each profile in the configuration that is faulty, or that there is none."""
    try:
        spawner = site.spawner("nobody")
    except GPUSpawnerError:
        return
    if not isinstance(spawner, GPUProfilesSpawner):
        return
    source = spawner.source
    for position, item in enumerate(source.configured):
        try:
            parse_profile(item, lambda path, at=position: dotted((source.setting, at, *path)))  # type: ignore[misc]
        except ConfigError as error:
            yield error
    if not source.configured and source.folder is None:
        yield ConfigError(NO_PROFILE, hint=OFFER_PROFILES)


def sentence(finding: Finding) -> str:
    """A finding of :func:`fatal`, for people."""
    where = f"{finding.where}: " if finding.where else ""
    return f"{where}{finding.text} {finding.fix}".strip()


def line(finding: Finding) -> str:
    """A finding for people."""
    on = f" on {finding.cluster}" if finding.cluster else ""
    where = f"{finding.where}{on}: " if finding.where else ""
    text = f"{_STATES[finding.severity]} {where}{finding.text}"
    if finding.fix:
        text += f"{'' if text.endswith(('.', '?')) else '.'} {finding.fix}"
    return text if finding.severity is Severity.OK else f"{text} [{finding.code}]"


def document(findings: Sequence[Finding]) -> str:
    """The findings as JSON, for programs."""
    return json.dumps({"version": DOCUMENT_VERSION, "findings": [asdict(finding) for finding in findings]}, indent=2)
