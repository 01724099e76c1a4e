"""The files of a new hub as text: its configuration, and a file for each profile. Pure, but for the folder's own files.

Each value is preceded by the reason for it, so that an admin who has never seen such a file can change it.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extensions.init.places import HOUR
from jupyterhub_gpuspawner.extensions.init.plan import PlannedProfile
from jupyterhub_gpuspawner.units import parse_walltime

CONFIG, PROFILES = "jupyterhub_config.py", "profiles"
_WIDTH = 100


@dataclass(frozen=True)
class Machine:
    """What the configuration says of the hub's machine and of its way to Slurm."""

    as_root: bool
    """The hub runs as root, and starts each job as its user; else it is one person's, who is ``user``."""
    user: str
    runuser: str = "runuser"
    """The program by which root becomes a user, with its path where it is known."""
    hub_ip: str = ""
    """The hub's address in the cluster's network; empty if that is not known."""
    is_node: bool = False
    """The nodes are this machine, such as a workstation."""
    singleuser: str = ""
    """Path of jupyterhub-singleuser; empty: it is found on the nodes' PATH."""
    slurm_bin_dir: str = ""
    slurm_conf: str = ""
    req_cluster: str = ""
    is_federated: bool = False
    """The cluster is in a federation, so its name has to be given."""
    login_node: str = ""
    """The ssh command that leads to it."""
    has_proxy: bool = True
    """configurable-http-proxy is installed."""


def files_of(
    profiles: Sequence[PlannedProfile], machine: Machine, *, version: str, cluster_name: str
) -> Mapping[str, str]:
    """The text of each file by its path below the hub's folder."""
    files = {CONFIG: config_text(machine, version=version, cluster_name=cluster_name)}
    digits = len(str(len(profiles)))
    for number, profile in enumerate(profiles, 1):
        name = f"{PROFILES}/{number:0{digits}}-{profile.slug}.yaml"
        files[name] = profile_text(profile, default=number == 1)
    return files


def comment(text: str, indent: str = "") -> str:
    """The text as lines of a comment."""
    return textwrap.fill(
        text, _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ", break_on_hyphens=False
    )


# A profile.


def profile_text(profile: PlannedProfile, *, default: bool) -> str:
    """The file of a profile; ``default``: the form has it selected."""
    lines = [
        comment("An entry of the hub's form. The hub reads this file again when it changes."),
        f"display_name: {_scalar(profile.display_name)}",
        comment("Its name in links and over REST, and for `gpuspawner show`."),
        f"slug: {_scalar(profile.slug)}",
        f"description: {_scalar(profile.description)}",
        *(["default: true"] if default else []),
        comment("What a server of this profile requests from Slurm."),
        "slurm:",
    ]
    for field, value in profile.request.items():
        if reason := profile.why.get(field):
            lines.append(comment(reason, "  "))
        lines.append(f"  {field}: {_scalar(value) if field != 'time' else value}")
    if profile.hours:
        seconds = parse_walltime(profile.request["time"]) or HOUR
        lines += [
            comment("People choose for how many hours, which replaces `time`."),
            "profile_options:",
            "  hours:",
            "    display_name: Hours",
            f"    range: {{min: 1, max: {profile.hours}, default: {seconds // HOUR}, sets: slurm.time, unit: hours}}",
        ]
    return "\n".join(lines) + "\n"


def _scalar(value: str | int) -> str:
    """The value in YAML, on one line."""
    return yaml.safe_dump(value, width=10_000, allow_unicode=True).removesuffix("\n").removesuffix("\n...")


# The configuration.


def config_text(machine: Machine, *, version: str, cluster_name: str) -> str:
    """jupyterhub_config.py."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=False,  # noqa: S701 - it is Python, and each value is written as a literal
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    template = environment.get_template(f"{CONFIG}.j2")
    return template.render(machine=machine, version=version, cluster_name=cluster_name)


# On disk.


def refuse_existing(folder: Path, files: Mapping[str, str]) -> None:
    """Raise ConfigError if a file is there, or the folder has other profiles: nothing is replaced."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file, not a folder.", hint="Name a new folder, or - to print the files.")
    there = [folder / name for name in files if os.path.lexists(folder / name)]
    others = [path for path in sorted((folder / PROFILES).glob("*.y*ml")) if path not in there]
    if there or others:
        raise ConfigError(
            f"{(there or others)[0]} is there already.",
            hint="Nothing was written. Name a new folder, or - to print the files.",
        )


def write(folder: Path, files: Mapping[str, str]) -> None:
    """Write the files, or none of them; raises ConfigError for one that is there, or cannot be written."""
    refuse_existing(folder, files)
    path, made = folder, list[Path]()
    try:
        # the hub's database, which others must not read, is made there
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                made.append(path)
                file.write(text)
    except BaseException as error:  # KeyboardInterrupt, too
        for each in made:
            each.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        raise ConfigError(
            f"{error.filename or path}: {error.strerror}.",
            hint="Nothing was written. Name a folder that you may write to.",
        ) from None
