"""The settings that say how the hub runs Slurm's commands: prefixes and the folder of the scripts."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Protocol

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.slurm.login_node.ssh import command_line, is_remote
from jupyterhub_gpuspawner.slurm.run_as import command_prefix, fixed_prefix
from jupyterhub_gpuspawner.slurm.time_limit import operator_prefix


class CommandSettings(Protocol):
    """The settings of a spawner."""

    exec_prefix: str
    query_prefix: str
    extend_prefix: str
    wrapper_dir: str

    def configured_as(self, name: str) -> str:
        """A setting as the admin wrote it."""


def check_commands(settings: CommandSettings) -> None:
    """Raise ConfigError for a prefix or folder with which no command would run."""
    prefixes = {
        "exec_prefix": command_prefix(settings.exec_prefix, "somebody"),
        "query_prefix": fixed_prefix(settings.query_prefix, where="query_prefix"),
        "extend_prefix": operator_prefix(settings.extend_prefix),
    }
    for name, prefix in prefixes.items():
        try:
            command_line(prefix, ())
        except ConfigError as error:
            raise ConfigError(error.message, where=settings.configured_as(name), hint=error.hint) from error
    if settings.wrapper_dir and not PurePosixPath(settings.wrapper_dir).is_absolute():
        raise ConfigError(
            f"{settings.wrapper_dir!r} is not a full path.",
            where=settings.configured_as("wrapper_dir"),
            hint="Use the folder's path as written in the sudoers file.",
        )
    if prefixes["extend_prefix"] and not settings.wrapper_dir:
        raise ConfigError(
            "The script `extend` is in wrapper_dir, which is not set.", where=settings.configured_as("extend_prefix")
        )
    if not prefixes["query_prefix"]:
        return
    if not settings.wrapper_dir:
        raise ConfigError(
            "The script `query` is in wrapper_dir, which is not set.", where=settings.configured_as("query_prefix")
        )
    if is_remote(prefixes["query_prefix"]) and not is_remote(prefixes["exec_prefix"]):
        raise ConfigError(
            "The hub asks Slurm on another machine, but would submit jobs on its own.",
            where=settings.configured_as("exec_prefix"),
            hint="Begin it with the words of query_prefix: ssh LOGIN-NODE sudo -n -u {username}.",
        )
