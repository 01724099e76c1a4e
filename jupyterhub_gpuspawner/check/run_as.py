"""Whether the hub can run Slurm's commands as its users: ``exec_prefix``, sudo's rules, and the scripts."""

from __future__ import annotations

import ast
import os
import shutil
import stat
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jupyterhub_gpuspawner.check.finding import Code, Context, Finding, Severity, names_no_cluster
from jupyterhub_gpuspawner.errors import ConfigError, SlurmUnavailable
from jupyterhub_gpuspawner.site.config_files import how_to_close, is_open, open_folders, shipped_text
from jupyterhub_gpuspawner.site.people import has_account
from jupyterhub_gpuspawner.slurm.commands import CANCEL, LOG, SUBMIT, TRIAL, Installation, command_prefix
from jupyterhub_gpuspawner.slurm.login_node import QUERY, is_remote, local_words, occurrences
from jupyterhub_gpuspawner.slurm.messages import LoginNodeUnreachable, TimedOut, failure, last_line
from jupyterhub_gpuspawner.slurm.run_as import accounts
from jupyterhub_gpuspawner.tasks import in_name_thread

# The wrapper scripts that are installed in ``wrapper_dir``: there, executable, root's, and of this version.

MISSING = Code(
    "wrapper-missing",
    "wrapper_dir, or a script in it, does not exist or cannot be run. sudo then asks for a password, since its rules "
    "name scripts that are not there.",
)
OPEN = Code(
    "wrapper-writable",
    "Somebody other than root can change a script that runs as the hub's users, or rename a folder above it.",
)
OTHER = Code("wrapper-differs", "A script is not that of this version, beyond its lines marked SITE.")
SCRIPTS = (SUBMIT, TRIAL, CANCEL, LOG)
_OF_THE_SITE = frozenset(("SBATCH", "SCANCEL", "SCONTROL", "SLURM", "ENVIRONMENT", "HUB", "LIMIT", "UMASK"))
"""Names whose values a site sets, in lines marked SITE."""


def files_command(wrapper_dir: Path) -> str:
    """The command that writes the scripts into a folder."""
    if wrapper_dir.name == "wrappers":
        return f"`gpuspawner files {wrapper_dir.parent} --wrappers`"
    return f"`gpuspawner files /etc/jupyterhub --wrappers --wrapper-dir {wrapper_dir}`"


@names_no_cluster
def check_wrappers(context: Context) -> Iterator[Finding]:
    """Look at the files, as far as this account may."""
    names = [*SCRIPTS] if is_of_here(context.spawner.exec_prefix) else []
    names += [QUERY] if is_of_here(context.spawner.query_prefix) else []
    yield from of_scripts(context, names)


def of_scripts(context: Context, names: Sequence[str]) -> Iterator[Finding]:
    """What is wrong with these scripts of ``wrapper_dir``, and with the folder, as far as this account may look."""
    if not context.spawner.wrapper_dir or not names:
        return
    where, folder = context.setting("wrapper_dir"), Path(context.spawner.wrapper_dir)
    exists, status = _status(folder)
    if not exists:
        yield MISSING.error(where, f"there is no folder {folder}.", f"As root, run {files_command(folder)}.")
    elif status is not None and not stat.S_ISDIR(status.st_mode):
        yield MISSING.error(where, f"{folder} is not a folder.", f"Remove it; as root, run {files_command(folder)}.")
    else:
        for path, status in open_folders(folder).items():
            yield _open(where, path, status, "" if path == folder else ", or choose another folder for the scripts")
        for name in names:
            yield from _of_script(where, folder / name)


def is_of_here(prefix: str) -> bool:
    """Whether the prefix runs scripts of this machine, not of a login node."""
    return bool(prefix.strip()) and not is_remote(command_prefix(prefix, "somebody"))


def is_there(folder: str, name: str) -> bool:
    """Whether a script exists and can be run, as far as this account may look."""
    exists, status = _status(Path(folder, name))
    if status is None:
        return exists
    return stat.S_ISREG(status.st_mode) and bool(status.st_mode & stat.S_IXOTH)


def _of_script(where: str, path: Path) -> Iterator[Finding]:
    exists, status = _status(path)
    if not exists:
        yield MISSING.error(where, f"there is no script {path}.", f"As root, run {files_command(path.parent)}.")
    if status is None:
        return
    if not stat.S_ISREG(status.st_mode):
        yield MISSING.error(where, f"{path} is not a file.", f"Remove it; as root, run {files_command(path.parent)}.")
        return
    if status.st_mode & 0o555 != 0o555:
        text = f"{path} cannot be run by every user (mode {stat.S_IMODE(status.st_mode):04o})."
        yield MISSING.error(where, text, f"Run chmod 755 {path}.")
    if is_open(status):
        yield _open(where, path, status)
    try:
        text = path.read_text("utf-8")
    except (OSError, ValueError):
        return
    if commands_of(text) != commands_of(shipped_text(f"wrappers/{path.name}")):
        yield OTHER.warning(
            where,
            f"{path} is not the script of this version, apart from its lines marked SITE.",
            f"Remove it, unless you changed it on purpose, and as root run {files_command(path.parent)}.",
        )


def _open(where: str, path: Path, status: os.stat_result, otherwise: str = "") -> Finding:
    return OPEN.error(
        where,
        f"{path} can be changed by others than root (owner {status.st_uid}, mode {stat.S_IMODE(status.st_mode):04o}), "
        "who could run anything as every user of the hub.",
        f"Run {how_to_close(path, status)}{otherwise}.",
    )


def _status(path: Path) -> tuple[bool, os.stat_result | None]:
    """Whether a file exists, also true if this account may not look; and its status, None without one."""
    try:
        return True, path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False, None
    except OSError:
        return True, None


def commands_of(text: str) -> list[str]:
    """The lines of a script without its first one, the values that a site sets, blank lines and comments."""
    lines: list[str | None] = list(text.splitlines())
    for name, node in assignments(text):
        if name in _OF_THE_SITE:
            lines[node.lineno - 1 : node.end_lineno] = [None] * ((node.end_lineno or node.lineno) - node.lineno + 1)
    return [line.rstrip() for line in lines if line and line.strip() and not line.lstrip().startswith("#")]


def assignments(text: str) -> Iterator[tuple[str, ast.Assign]]:
    """The values that a script gives to names outside its functions; none if it is not Python."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError):
        return
    for node in body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node


WORKS = Code("run-as-user", "The hub's account runs Slurm's commands as a user; each was tried without a job.")
FAILS = Code("run-as-user-fails", "exec_prefix, sudo's rules or a script do not let the hub's account act as a user.")
ONE_ACCOUNT = Code(
    "one-account", "exec_prefix has no {username}, so the servers of all users belong to the same account."
)
SERVERS_AS_ROOT = Code(
    "servers-as-root",
    "exec_prefix does not run sbatch as another account than root, so everybody who signs in would be root of the "
    "cluster. The hub does not start with it.",
)
AS_ROOT = Code(
    "checked-as-root",
    "The check runs as root, whom sudo never refuses, and the hub runs as another account: sudo's rules are not tried.",
)
PREFIX = "exec_prefix"
"""The setting, and the place of errors that are its fault."""
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


async def check_prefix(context: Context) -> AsyncIterator[Finding]:
    """Try each command as the user of the command line."""
    site = context.spawner
    try:
        await in_name_thread(site.check_account)
    except ConfigError as error:
        yield SERVERS_AS_ROOT.error(
            error.where,
            error.fault if site.exec_prefix.strip() else f"{error.fault[:-1]}, as this check does.",
            f"{error.hint} Run the check as the hub's account, if that is another one.",
        )
        return
    if not site.exec_prefix.strip():
        return
    where, user = context.setting(PREFIX), context.options.user
    words = command_prefix(site.exec_prefix, user or "somebody")
    if shutil.which(words[0]) is None:
        text = f"there is no command {words[0]!r} on this machine, with which Slurm's commands are run as the user."
        yield FAILS.error(where, text, "Install it, or write its full path.")
        return
    if command_prefix(site.exec_prefix, "somebody") == command_prefix(site.exec_prefix, "anybody"):
        finding = _of_one_account(where, words)
        yield finding
        if finding.severity is Severity.ERROR:
            return
    if user:
        async for finding in _as_user(context, where, words):
            yield finding


async def _as_user(context: Context, where: str, words: Sequence[str]) -> AsyncIterator[Finding]:
    """Run each command as the user, without a job."""
    site = context.spawner
    as_root = os.geteuid() == 0 and next(occurrences("sudo", local_words(words)), None) is not None
    if as_root:
        yield AS_ROOT.warning(
            where,
            "this check runs as root, whom sudo refuses nothing, so its rules for the hub's account are not tried.",
            "Run the check as the account of the hub (`sudo -u jupyterhub gpuspawner check ...`); a hub that runs as "
            "root should use `runuser -u {username} --`.",
        )
    if isinstance(context.slurm_error, TimedOut):  # it would be as silent as for the hub
        return
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
    for (text, fix), commands in faults.items():
        first, *others = dict.fromkeys(commands)
        more = f" The same for {', '.join(others)}." if others else ""
        yield FAILS.error(where, text.replace("{}", first, 1) + more, fix)
    if tried and not faults and not as_root:
        what = "scripts" if site.wrapper_dir else "commands"
        yield WORKS.ok(where, f"{tried} {what} run as {context.options.user} through `{' '.join(words)}`.")


async def _fault(context: Context, probe: Probe, name: str, prefix: Sequence[str]) -> tuple[str, str] | None:
    """What is wrong with one command, and what would be right; None if it answers as it should."""
    site = context.spawner
    slurm = Installation(
        bin_dir=site.slurm_bin_dir,
        slurm_conf=site.slurm_conf,
        cluster=site.req_cluster,
        wrapper_dir=site.wrapper_dir,
        timeout=site.slurm_timeout,
    )
    try:
        if site.wrapper_dir:
            answer = await slurm.run(name, wrapper=name, prefix=prefix, stdin=probe.stdin)
        else:
            # a job's environment is passed on, which sudo has to allow
            environment = {"GPUSPAWNER_CHECK": "1"}
            stdin = "" if name == "sbatch" else probe.stdin
            answer = await slurm.run(*probe.command, prefix=prefix, environment=environment, stdin=stdin)
    except ConfigError as error:
        return (error.fault if error.where == PREFIX else error.message), error.hint
    except LoginNodeUnreachable:  # one finding for all commands
        raise
    except SlurmUnavailable as error:  # time-out, or the command is missing
        return f"{name} did not work as a user: {error.message}", error.hint
    if answer.code == 0 or answer.stderr.startswith(probe.answers):
        return None
    if probe.script in (SUBMIT, TRIAL) and any(line.startswith("sbatch: ") for line in answer.stderr.splitlines()):
        return None
    failed = failure(name, answer.stderr)
    if failed is not None:
        return failed.fault, failed.hint
    return (
        f"{name} does not answer as it should: {last_line(answer.stderr or answer.stdout)}.",
        "Run the command by hand as the hub's account, and compare the script with that of this version, which "
        "`gpuspawner files DIR --wrappers` writes.",
    )


def _of_one_account(where: str, prefix: Sequence[str]) -> Finding:
    """The finding for a prefix that is the same for every user."""
    fix = "Write {username} in its place, as in `sudo -n -u {username}`."
    for name in accounts(local_words(prefix)):
        if name and not name.isdecimal() and not has_account(name):
            return FAILS.error(where, f"there is no account {name!r}, as which Slurm's commands are run.", fix)
    return ONE_ACCOUNT.warning(
        where,
        "it has no {username}, so every server runs under the same account, and users can read each other's files.",
        "Write {username} where the account's name belongs, as in `sudo -n -u {username}`.",
    )
