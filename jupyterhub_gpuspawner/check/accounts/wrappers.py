"""The wrapper scripts that are installed in ``wrapper_dir``: there, executable, root's, and of this version."""

from __future__ import annotations

import ast
import hashlib
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.check.finding import Code
from jupyterhub_gpuspawner.slurm.commands import CANCEL, LOG, SUBMIT, TRIAL, command_prefix
from jupyterhub_gpuspawner.slurm.login_node import QUERY, is_remote
from jupyterhub_gpuspawner.slurm.time_limit import EXTEND

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from jupyterhub_gpuspawner.check.context import Context
    from jupyterhub_gpuspawner.check.finding import Finding

MISSING = Code(
    "wrapper-missing",
    "wrapper_dir, or a script in it, does not exist or cannot be run. sudo then asks for a password, since its rules "
    "name scripts that are not there.",
)
OPEN = Code("wrapper-writable", "Somebody other than root can change a script that runs as the hub's users.")
OTHER = Code("wrapper-differs", "A script is not that of this version, beyond its lines marked SITE.")
SCRIPTS = (SUBMIT, TRIAL, CANCEL, LOG)
DIGESTS = {
    "submit": "c76dc704cb5c730b",
    "trial": "f25cd86fcb35be45",
    "cancel": "4998ae87ce129508",
    "log": "876de0b677cdb8c9",
    "extend": "1b68fa43d967137c",
    "query": "b04447db4d3ed114",
}
"""Of each script without the lines that a site changes; see :func:`digest`."""
_OF_THE_SITE = frozenset(("SBATCH", "SCANCEL", "SCONTROL", "ENVIRONMENT", "HUB", "LIMIT"))
_INSTALL = "Install it from config/wrappers with `install -o root -g root -m 755`; see docs/howto/sudo.md."
_INSTALL_ALL = "Create it, and install the scripts of config/wrappers in it; see docs/howto/sudo.md."


async def check_wrappers(context: Context) -> list[Finding]:
    """Look at the files, as far as this account may."""
    site = context.slurm_site
    names = [
        *(SCRIPTS if _is_of_here(site.exec_prefix) else ()),
        *((EXTEND,) if _is_of_here(site.extend_prefix) else ()),
        *((QUERY,) if _is_of_here(site.query_prefix) else ()),
    ]
    if not site.wrapper_dir or not names:
        return []
    where = site.configured_as("wrapper_dir")
    folder = Path(site.wrapper_dir)
    seen = _look(folder)
    if not seen.exists:
        return [MISSING.error(where, f"there is no folder {folder}.", _INSTALL_ALL)]
    if seen.about is not None and not stat.S_ISDIR(seen.about.st_mode):
        return [MISSING.error(where, f"{folder} is not a folder.", _INSTALL_ALL)]
    found = [finding for name in names for finding in _of_script(where, folder / name)]
    return [*_of_owner(where, folder), *found]


def _is_of_here(prefix: str) -> bool:
    """Whether the prefix runs scripts of this machine, not of a login node."""
    return bool(prefix.strip()) and not is_remote(command_prefix(prefix, "somebody"))


def is_there(folder: str, name: str) -> bool:
    """Whether a script exists and can be run, as far as this account may look."""
    seen = _look(Path(folder, name))
    if seen.about is None:
        return seen.exists
    return stat.S_ISREG(seen.about.st_mode) and bool(seen.about.st_mode & stat.S_IXOTH)


def _of_script(where: str, path: Path) -> Iterator[Finding]:
    seen = _look(path)
    if not seen.exists:
        yield MISSING.error(where, f"there is no script {path}.", _INSTALL)
    about = seen.about
    if about is None:
        return
    if not stat.S_ISREG(about.st_mode):
        yield MISSING.error(where, f"{path} is not a file.", _INSTALL)
        return
    if about.st_mode & 0o555 != 0o555:
        yield MISSING.error(
            where,
            f"{path} cannot be run by every user (mode {stat.S_IMODE(about.st_mode):04o}).",
            f"Run chmod 755 {path}.",
        )
    yield from _of_owner(where, path)
    try:
        text = path.read_text("utf-8")
    except (OSError, ValueError):
        return
    if digest(text) != DIGESTS.get(path.name):
        yield OTHER.warning(
            where,
            f"{path} is not the script of this version, apart from its lines marked SITE.",
            f"Compare it with config/wrappers/{path.name}, and install that one anew unless you changed it on purpose.",
        )


def _of_owner(where: str, path: Path) -> Iterator[Finding]:
    about = _look(path).about
    if about is None:
        return
    group_writes = about.st_mode & stat.S_IWGRP and about.st_gid != 0
    if about.st_uid != 0 or group_writes or about.st_mode & stat.S_IWOTH:
        yield OPEN.error(
            where,
            f"{path} can be changed by others than root (owner {about.st_uid}, mode "
            f"{stat.S_IMODE(about.st_mode):04o}), who could run anything as every user of the hub.",
            f"Run chown root:root {path} and chmod 755 {path}.",
        )


@dataclass(frozen=True)
class _Seen:
    """What can be known of a file."""

    exists: bool
    """Also true if this account may not look."""
    about: os.stat_result | None = None
    """None if there is no file, or this account may not look."""


def _look(path: Path) -> _Seen:
    try:
        return _Seen(exists=True, about=path.stat())
    except (FileNotFoundError, NotADirectoryError):
        return _Seen(exists=False)
    except OSError:
        return _Seen(exists=True)


def digest(text: str) -> str:
    """A digest of a script without its first line, the values that a site sets, blank lines and comments.

    A text that is not Python gets a digest, too; it equals no other one.
    """
    lines: list[str | None] = list(text.splitlines())
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError):
        body = []
    for node in body:
        named = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id
        if named in _OF_THE_SITE:
            lines[node.lineno - 1 : node.end_lineno] = [None] * ((node.end_lineno or node.lineno) - node.lineno + 1)
    kept = [each.rstrip() for each in lines if each and each.strip() and not each.lstrip().startswith("#")]
    return hashlib.sha256("\n".join(kept).encode()).hexdigest()[:16]
