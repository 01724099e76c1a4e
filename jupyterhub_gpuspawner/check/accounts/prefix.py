"""Whether the hub can run Slurm's commands as its users: ``exec_prefix``, sudo's rules and the scripts.

For the user of ``--user``, each command that the hub would run is run once as that user, with an input with which it
does nothing: a batch script without a line, and the number of a job that cannot exist (slurm.conf(5): MaxJobId is at
most 67,108,863). Nothing is run as a user whom nobody named.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.check.accounts.wrappers import is_there
from jupyterhub_gpuspawner.check.finding import Code, Severity
from jupyterhub_gpuspawner.errors import ConfigError, SlurmUnavailable
from jupyterhub_gpuspawner.site.people import has_account
from jupyterhub_gpuspawner.slurm.commands import CANCEL, LOG, SUBMIT, TRIAL, Installation, command_prefix
from jupyterhub_gpuspawner.slurm.login_node import LoginNodeUnreachable, is_remote, programs
from jupyterhub_gpuspawner.slurm.messages import failure, last_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jupyterhub_gpuspawner.check.context import Context
    from jupyterhub_gpuspawner.check.finding import Finding

WORKS = Code("run-as-user", "The hub's account runs Slurm's commands as a user; each was tried without a job.")
FAILS = Code("run-as-user-fails", "exec_prefix, sudo's rules or a script do not let the hub's account act as a user.")
ONE_ACCOUNT = Code(
    "one-account", "exec_prefix has no {username}, so the servers of all users belong to the same account."
)
AS_ROOT = Code(
    "checked-as-root",
    "The check runs as root, whom sudo never refuses, and the hub runs as another account: sudo's rules are not tried.",
)
PREFIX = "exec_prefix"
"""The setting, and the place of errors that are its fault."""
_AS_ACCOUNT = frozenset(("doas", "dzdo", "runuser", "sudo"))
_ACCOUNT = re.compile(r"(?:-[A-Za-z]*?u|--user=?)(?P<name>.*)")
NO_JOB = "999999999"
"""A job id beyond Slurm's greatest."""


@dataclass(frozen=True)
class Probe:
    """A command of the hub's, with an input for which it does nothing."""

    script: str
    """The script of ``wrapper_dir``."""
    command: tuple[str, ...]
    """What is run without scripts; empty: nothing is."""
    stdin: str
    """Input of both."""
    answers: tuple[str, ...]
    """How the standard error of the script, or of the command behind it, may begin."""


PROBES = (
    Probe(SUBMIT, ("sbatch", "--parsable"), "environment 0\n", ("sbatch: error: ", "submit: the input ")),
    Probe(TRIAL, ("sbatch", "--test-only"), "", ("sbatch: error: ",)),
    Probe(CANCEL, ("scancel", NO_JOB), "no job\n", ("cancel: the input ", "scancel: ")),
    Probe(LOG, (), "no job\n", ("log: the input ",)),
)


async def check_prefix(context: Context) -> list[Finding]:
    """Try each command as the user of the command line."""
    site = context.slurm_site
    if not site.exec_prefix.strip():
        return []
    where = site.configured_as(PREFIX)
    user = context.options.user
    words = command_prefix(site.exec_prefix, user or "somebody")
    if shutil.which(words[0]) is None:
        text = f"there is no command {words[0]!r} on this machine, with which Slurm's commands are run as the user."
        return [FAILS.error(where, text, "Install it, or write its full path.")]
    found: list[Finding] = []
    if command_prefix(site.exec_prefix, "somebody") == command_prefix(site.exec_prefix, "anybody"):
        found.append(_of_one_account(where, words))
    if user and all(each.severity is not Severity.ERROR for each in found):
        found += await _as_user(context, where, words)
    return found


async def _as_user(context: Context, where: str, words: Sequence[str]) -> list[Finding]:
    """Run each command as the user, without a job."""
    site = context.slurm_site
    found = list(_about_root(where, words))
    tried, faults = 0, dict[tuple[str, str], list[str]]()
    for probe in PROBES:
        if site.wrapper_dir and not is_remote(words) and not is_there(site.wrapper_dir, probe.script):
            continue  # reported by the check of the scripts; sudo would ask for a password
        if not site.wrapper_dir and not probe.command:
            continue
        tried += 1
        name = probe.script if site.wrapper_dir else probe.command[0]
        fault = await _fault(context, probe, name, words)
        if fault is not None:
            faults.setdefault((fault[0].replace(name, "{}", 1), fault[1]), []).append(name)
    for (text, fix), given in faults.items():
        first, *others = dict.fromkeys(given)
        more = f" The same for {', '.join(others)}." if others else ""
        found.append(FAILS.error(where, text.replace("{}", first, 1) + more, fix))
    if tried and not found:
        what = "scripts" if site.wrapper_dir else "commands"
        found.append(WORKS.ok(where, f"{tried} {what} run as {context.options.user} through `{' '.join(words)}`."))
    return found


async def _fault(context: Context, probe: Probe, name: str, prefix: Sequence[str]) -> tuple[str, str] | None:
    """What is wrong with one command, and what would be right; None if it answers as it should."""
    site = context.slurm_site
    slurm = Installation(bin_dir=site.slurm_bin_dir, wrapper_dir=site.wrapper_dir, timeout=site.slurm_timeout)
    try:
        if site.wrapper_dir:
            answer = await slurm.run(name, wrapper=name, prefix=prefix, stdin=probe.stdin)
        else:
            # a job's environment is passed on, which sudo has to allow
            environment = {"GPUSPAWNER_CHECK": "1"}
            stdin = "" if name == "sbatch" else probe.stdin
            answer = await slurm.run(*probe.command, prefix=prefix, environment=environment, stdin=stdin)
    except ConfigError as error:
        return error.message.removeprefix(f"{PREFIX}: "), error.hint
    except LoginNodeUnreachable:  # one finding for all commands
        raise
    except SlurmUnavailable as error:  # time-out, or the command is missing
        return f"{name} did not work as a user: {error.message}", error.hint
    if answer.code == 0 or answer.stderr.startswith(probe.answers):
        return None
    if probe.script in (SUBMIT, TRIAL) and any(line.startswith("sbatch: ") for line in answer.stderr.splitlines()):
        return None
    known = failure(name, answer.stderr)
    if known is not None:
        return known.message.removeprefix(f"{PREFIX}: "), known.hint
    return (
        f"{name} does not answer as it should: {last_line(answer.stderr or answer.stdout)}.",
        "Run the command by hand as the hub's account, and compare the script with that of config/wrappers.",
    )


def _of_one_account(where: str, prefix: Sequence[str]) -> Finding:
    """The finding for a prefix that is the same for every user."""
    fix = "Write {username} in its place, as in `sudo -n -u {username}`."
    for name in _accounts(prefix):
        if not name.startswith("#") and not has_account(name):
            return FAILS.error(where, f"there is no account {name!r}, as which Slurm's commands are run.", fix)
    return ONE_ACCOUNT.warning(
        where,
        "it has no {username}, so every server runs under the same account, and users can read each other's files.",
        "Write {username} where the account's name belongs, as in `sudo -n -u {username}`.",
    )


def _accounts(prefix: Sequence[str]) -> Iterator[str]:
    """The accounts that options of sudo and its like name, on this machine."""
    found = programs(prefix)
    ends = [*(each.at for each in found[1:]), len(prefix)]
    for program, end in zip(found, ends, strict=True):
        own = prefix[program.at + 1 : end] if program.name in _AS_ACCOUNT else ()
        for word, following in zip(own, (*own[1:], ""), strict=False):
            option = _ACCOUNT.fullmatch(word)
            if option is not None:
                yield option["name"] or following


def _about_root(where: str, prefix: Sequence[str]) -> Iterator[Finding]:
    if os.geteuid() == 0 and any(each.name == "sudo" for each in programs(prefix)):
        yield AS_ROOT.warning(
            where,
            "this check runs as root, whom sudo refuses nothing, so its rules for the hub's account are not tried.",
            "Run the check as the account of the hub (`sudo -u jupyterhub gpuspawner check ...`); a hub that runs as "
            "root should use `runuser -u {username} --`.",
        )
