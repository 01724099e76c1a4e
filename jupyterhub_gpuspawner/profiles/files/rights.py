"""What a profile that stands in a file may say, and what of it the admin must have allowed first.

Whoever may write to the folder of profiles need not be the admin. So a file is held to typed requests of Slurm,
modules of the site, texts, times and options. What names code or a path, and so decides what runs as the person who
picks the profile, needs a word in the admin's setting. What would run as the hub's account, or be read by it, no
setting allows: of the spawner's settings a file may give those of :data:`TRAITS` alone. A list of what is forbidden
would be out of date with the next release of JupyterHub, batchspawner, or Slurm: ``ip`` sends people's requests
to any address, ``env_keep`` gives out the hub's secrets, ``consecutive_failure_limit`` ends the hub, and
``server_token_scopes`` makes a server's token an administrator's.

A profile of the configuration may say everything: who writes there has the hub's account.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from jupyterhub_gpuspawner.profiles.environment import Environment
    from jupyterhub_gpuspawner.profiles.option import Override
    from jupyterhub_gpuspawner.profiles.profile import Profile

SETTING = "c.GPUProfilesSpawner.profiles_dir_allows"
CLASSES_SETTING = "c.GPUProfilesSpawner.profiles_dir_classes"
ALLOWANCES = {
    "software": "`environment.container`, `venv`, `module_use`, and `conda` with a path",
    "variables": "`environment.variables`",
    "command": "`command`",
    "setup": "`environment.setup`",
    "extra": "`slurm.extra`",
    "local": "`kind: local`, a server on the hub's machine",
    "traits": "`traits`, of which a file may set but a few",
}
"""What a file may say where the setting has the word."""
TRAITS = ("cpu_guarantee", "cpu_limit", "disable_user_config", "mem_guarantee", "mem_limit")
"""The spawner's settings that a file may give where ``traits`` is allowed: none is a path, an address, code or a right.

What else one could want has a field of its own, with its own rule."""
_TRAITS_HINT = f"Allowed can be {', '.join(TRAITS)}; a profile of jupyterhub_config.py may set any."
_CONDA_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@-]*")
_SETS = {
    "environment.container": "software",
    "environment.conda": "software",
    "environment.venv": "software",
}
"""What must be allowed for a text of the user's own that sets such a field."""

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Rights:
    """What the admin lets the files of a folder say."""

    allowed: frozenset[str] = frozenset()
    """Words of :data:`ALLOWANCES`."""
    classes: frozenset[str] = field(default_factory=frozenset)
    """Dotted names of spawner classes for ``kind: other``."""


NOTHING = Rights()
EVERYTHING = Rights(frozenset(ALLOWANCES))
"""All that the one setting can allow; classes are not among it."""


@dataclass(frozen=True)
class Claim:
    """A field that a file may not say unless ``allowance`` is given; without one, never."""

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
    return ConfigError("a file of profiles may not say this.", where=where(claim.path), hint=hint)


def _claims(profile: Profile, rights: Rights) -> Iterator[Claim]:
    if profile.kind == "local":
        yield Claim(("kind",), "local")
    if profile.spawner_class is not None and profile.spawner_class not in rights.classes:
        yield Claim(("spawner_class",), hint=f"The class in {CLASSES_SETTING} would allow it.")
    for name in sorted(profile.traits):
        if name not in TRAITS:
            yield Claim(("traits", name), hint=_TRAITS_HINT)
        yield Claim(("traits", name), "traits")
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


def _of_override(said: Override, at: Path) -> Iterator[Claim]:
    if said.command:
        yield Claim((*at, "command"), "command")
    if said.slurm.extra:
        yield Claim((*at, "slurm", "extra"), "extra")
    yield from _of_environment(said.environment, (*at, "environment"))


def _of_environment(said: Environment, at: Path) -> Iterator[Claim]:
    if said.setup:
        yield Claim((*at, "setup"), "setup")
    if said.variables:
        yield Claim((*at, "variables"), "variables")
    for name in ("container", "venv", "module_use"):
        if getattr(said, name):
            yield Claim((*at, name), "software")
    if said.conda and _CONDA_NAME.fullmatch(said.conda) is None:
        yield Claim((*at, "conda"), "software")
