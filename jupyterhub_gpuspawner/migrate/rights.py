"""How the new hub runs commands as its users, and asks Slurm: ``exec_prefix``, ``wrapper_dir`` and ``query_prefix``."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.migrate.configuration.old_hub import System
from jupyterhub_gpuspawner.migrate.difference import Kind
from jupyterhub_gpuspawner.slurm.login_node.programs import programs
from jupyterhub_gpuspawner.slurm.login_node.ssh import destination, is_remote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jupyterhub_gpuspawner.migrate.configuration.old_hub import OldSetting
    from jupyterhub_gpuspawner.migrate.draft import Draft
    from jupyterhub_gpuspawner.slurm.login_node.programs import Program

WRAPPERS = "/usr/local/libexec/gpuspawner"
"""Where the wrapper scripts are, unless the admin has them elsewhere."""
QUERY = "c.GPUSlurmSpawner.query_prefix"
_SUDOERS = "Install config/wrappers and config/sudoers as docs/howto/sudo.md describes."
_LOGIN_NODE = (
    "Install config/wrappers, config/sudoers and config/ssh on the login node as docs/howto/hub-without-slurm.md "
    "describes."
)
_SUDO = ("sudo", "-n", "-u", "{username}")
"""What the login node's gate admits (config/ssh/gate)."""


def convert_rights(system: System, setting: OldSetting | None, draft: Draft) -> None:
    """Decide about the old hub's ``exec_prefix``; None if it has none."""
    if system is System.SLURMFORMSPAWNER:
        draft.settings |= {"exec_prefix": "sudo -n -u {username}", "wrapper_dir": WRAPPERS}
        draft.decide(
            "c.GPUSlurmSpawner.exec_prefix",
            "sudo --preserve-env=... -u {username} sbatch, scancel",
            f"sudo -n -u {{username}}, wrapper_dir = {WRAPPERS}",
            "SlurmFormSpawner had these commands in its class; sudo needs to allow fixed scripts only",
            _SUDOERS,
        )
        return
    if setting is None:
        draft.note(
            Kind.CHANGED,
            "exec_prefix",
            "sudo -E -u {username}",
            "sudo -n -E -u {username}",
            "the default never asks for a password",
            "Without -E, and with fixed scripts: docs/howto/sudo.md.",
        )
        return
    text = str(setting.value)
    draft.keep[(setting.section, "exec_prefix")] = text
    words = _words(text)
    by_ssh = is_remote(words)
    if not words or any(_keeps_environment(each) for each in programs(words) if not by_ssh):
        draft.moved(setting, text, "c.GPUSlurmSpawner.exec_prefix")
        return
    draft.settings["wrapper_dir"] = WRAPPERS
    draft.decide(
        setting,
        text,
        f"the same, with wrapper_dir = {WRAPPERS}",
        "the prefix does not pass on the environment, which has the job's token; the scripts read it from their "
        "standard input",
        _LOGIN_NODE if by_ssh else _SUDOERS,
    )
    if by_ssh:
        _by_ssh(setting, text, words, draft)


def _keeps_environment(program: Program) -> bool:
    """Whether a program passes all variables on: runuser does, and sudo with ``-E``."""
    return program.name == "runuser" or not {"-E", "--preserve-env"}.isdisjoint(program.options)


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # the new hub says so when it starts, as the old one did at each start of a server
        return text.split()


def _by_ssh(setting: OldSetting, text: str, words: Sequence[str], draft: Draft) -> None:
    """What the login node is asked, and how it is reached, where jobs are submitted by ssh."""
    try:
        login = destination(words)
    except ConfigError as error:
        draft.decide(setting, text, "the same", error.message.rstrip("."), error.hint)
        return
    there = tuple(words[len(login) :])
    if there and there != _SUDO:
        draft.decide(
            setting,
            " ".join(there),
            "the same",
            "the login node's gate admits nothing but sudo -n -u {username}; variables do not pass sudo, and the "
            "scripts have their own",
            "Write sudo -n -u {username} after the login node, and set variables such as SLURM_CONF in the scripts.",
        )
    was = "squeue, by ssh as exec_prefix says"
    if any("{" in word for word in login):
        draft.decide(
            QUERY,
            was,
            "squeue, scontrol and sinfo on the hub's machine",
            "one question is for the servers of all users, and this ssh signs in as one of them",
            "Set query_prefix to an ssh that signs in as an account of the hub's own (docs/howto/hub-without-slurm.md) "
            "or install Slurm's commands on the hub's machine.",
        )
        return
    draft.settings["query_prefix"] = shlex.join(login)
    draft.decide(
        QUERY,
        was,
        shlex.join(login),
        "squeue, scontrol and sinfo run on the login node, as the account that ssh signs in as: one question is for "
        "the servers of all users",
        "Install the script query beside the others. On a hub's machine with Slurm's commands and configuration, "
        "remove query_prefix.",
    )
