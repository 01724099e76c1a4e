"""Which fields a profile in a file may use, and which of them the admin has to allow first.

People other than the admin may write profile files. By default a file may use typed Slurm requests, modules of the
site, texts, times and options. Fields that name code or a path, and so decide what runs as the person who chooses the
profile, have to be allowed by the admin's setting. Nothing that would run as the hub's account, or be read by it, can
be allowed: of the spawner's settings a file may set those in :data:`TRAITS` only. A list of forbidden settings would be
outdated by the next release of JupyterHub, batchspawner or Slurm: ``ip`` sends people's requests to any address,
``env_keep`` reveals the hub's secrets, ``consecutive_failure_limit`` stops the hub, and ``server_token_scopes`` gives a
server's token administrator rights.

A profile in the hub's configuration may use every field, since its author has the hub's account anyway.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.profiles.option import Override
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.resources import Environment

SETTING = "c.GPUProfilesSpawner.profiles_dir_allows"
CLASSES_SETTING = "c.GPUProfilesSpawner.profiles_dir_classes"
ALLOWANCES = {
    "software": "`environment.container`, `venv`, `module_use`, and `conda` with a path",
    "variables": "`environment.variables`",
    "command": "`command`",
    "setup": "`environment.setup`",
    "extra": "`slurm.extra`",
    "local": "`kind: local`, a server on the hub's machine",
    "traits": "`traits`, limited to a few",
}
"""What each word in the setting allows in files."""
TRAITS = ("cpu_guarantee", "cpu_limit", "disable_user_config", "mem_guarantee", "mem_limit")
"""Spawner settings that a file may set where ``traits`` is allowed: no paths, addresses, code or rights.

Other useful settings have fields of their own, with their own rules."""
_TRAITS_HINT = f"Files may set {', '.join(TRAITS)}; a profile in jupyterhub_config.py may set any."
_CONDA_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@-]*")
_SETS = {
    "environment.container": "software",
    "environment.conda": "software",
    "environment.venv": "software",
}
"""The word that must be allowed for a free text that sets such a field."""

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Rights:
    """What the admin allows in the files of a folder."""

    allowed: frozenset[str] = frozenset()
    """Words of :data:`ALLOWANCES`."""
    classes: frozenset[str] = field(default_factory=frozenset)
    """Dotted names of spawner classes for ``kind: other``."""


NOTHING = Rights()
EVERYTHING = Rights(frozenset(ALLOWANCES))
"""Everything that the one setting can allow; classes are not included."""


@dataclass(frozen=True)
class Claim:
    """A field that a file may use only if ``allowance`` is given; if it is empty, never."""

    path: Path
    allowance: str = ""
    hint: str = ""


def require_traits(document: object, where: Callable[[Sequence[str | int]], str]) -> None:
    """Raise ConfigError for the first of a file's ``traits`` that no setting allows, before any is read as a field."""
    traits = document.get("traits") if isinstance(document, dict) else None
    for name in sorted(map(str, traits)) if isinstance(traits, dict) else ():
        if name not in TRAITS:
            raise _refusal(Claim(("traits", name), hint=_TRAITS_HINT), where)


def require(profile: Profile, rights: Rights, where: Callable[[Sequence[str | int]], str]) -> None:
    """Raise ConfigError for the first field of a file's profile that ``rights`` do not allow."""
    for claim in _claims(profile, rights):
        if claim.allowance in rights.allowed and claim.allowance:
            continue
        raise _refusal(claim, where)


def _refusal(claim: Claim, where: Callable[[Sequence[str | int]], str]) -> ConfigError:
    hint = claim.hint or f'"{claim.allowance}" in {SETTING} would allow it.'
    return ConfigError("this field is not allowed in a profile file.", where=where(claim.path), hint=hint)


def _claims(profile: Profile, rights: Rights) -> Iterator[Claim]:
    if profile.kind == "local":
        yield Claim(("kind",), "local")
    if profile.spawner_class is not None and profile.spawner_class not in rights.classes:
        yield Claim(("spawner_class",), hint=f"The class in {CLASSES_SETTING} would allow it.")
    for name in sorted(profile.traits):
        if name not in TRAITS:
            yield Claim(("traits", name), hint=_TRAITS_HINT)
        yield Claim(("traits", name), "traits")
    if profile.app is not None:
        yield Claim(("app",), "command")
    yield from _of_override(profile.as_override(), ())
    for name, option in profile.profile_options.items():
        here: Path = ("profile_options", name)
        for key, choice in option.choices.items():
            yield from _of_override(choice, (*here, "choices", key))
        if option.unlisted_choice is not None:
            sets = option.unlisted_choice.sets
            allowance = "variables" if sets.startswith("environment.variables.") else _SETS.get(sets)
            if allowance is not None:
                yield Claim((*here, "unlisted_choice", "sets"), allowance)


def _of_override(settings: Override, at: Path) -> Iterator[Claim]:
    if settings.command:
        yield Claim((*at, "command"), "command")
    if settings.slurm.extra:
        yield Claim((*at, "slurm", "extra"), "extra")
    yield from _of_environment(settings.environment, (*at, "environment"))


def _of_environment(environment: Environment, at: Path) -> Iterator[Claim]:
    if environment.setup:
        yield Claim((*at, "setup"), "setup")
    if environment.variables:
        yield Claim((*at, "variables"), "variables")
    for name in ("container", "venv", "module_use"):
        if getattr(environment, name):
            yield Claim((*at, name), "software")
    if environment.conda and _CONDA_NAME.fullmatch(environment.conda) is None:
        yield Claim((*at, "conda"), "software")
