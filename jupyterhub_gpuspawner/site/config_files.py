"""The files that an admin installs beside a hub, and how they are written with the paths of this installation.

Each of them works as it is shipped, with example paths and names. :func:`files_of` replaces these by an installation's
own; what only the admin knows stays on lines marked ``SITE``.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv6Address
from pathlib import Path

from jupyterhub_gpuspawner import __version__
from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extension import installed

_IN_PACKAGE = Path(__file__).parents[1] / "config"
SHIPPED = _IN_PACKAGE if _IN_PACKAGE.is_dir() else Path(__file__).parents[2] / "config"
"""The folder of the files: in a wheel part of the package, in a checkout beside it."""
GROUPS: Mapping[str, tuple[str, ...]] = {
    "wrappers": ("wrappers",),
    "sudoers": ("sudoers",),
    "ssh": ("ssh",),
    "systemd": ("jupyterhub.service", "jupyterhub-proxy.service"),
    "webserver": ("webserver",),
    "profiles": ("jupyterhub_config.py", "profiles", "courses"),
    "ansible": ("ansible", "profiles", "courses"),
}
"""Files and folders by the option of ``gpuspawner files`` that writes them."""
_IN_WRAPPER_DIR = re.compile(r"(?:wrappers|ssh)/(?P<name>[a-z]+)")
"""The scripts, and the gate of ssh, which runs them; ``ssh_config`` and other files of ssh have an underscore."""
_PRIVATE = {"sudoers": 0o440}
_KEYS = "authorized_keys"
SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin")
"""Folders of programs that each service has."""
_PLAIN_PATH = re.compile(r"(?:/+(?!\.\.(?:/|$))[A-Za-z0-9._+-]+)+", re.ASCII)
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\$?", re.ASCII)
_SUDOERS_ALIAS = re.compile(r"[A-Z][A-Z0-9_]*")
"""Aliases, and the word ALL (sudoers(5)); a group is safe from it, since % stands before its name."""
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*", re.ASCII)


@dataclass(frozen=True)
class HubInstallation:
    """What the files say of the machine that they are written for; all paths are absolute."""

    folder: Path
    """Of the hub's configuration."""
    wrapper_dir: Path
    """Of the scripts for sudo."""
    bin_dir: Path
    """Of ``jupyterhub`` and ``gpuspawner``."""
    account: str = "jupyterhub"
    """The hub's."""
    group: str = "notebookusers"
    """Of those who may use the hub."""
    hub_ip: str = "10.0.0.10"
    """The hub's address in the cluster's network."""
    python: Path = Path("/usr/bin/python3")
    """Which runs the scripts; 3.8 or newer."""
    proxy: Path = Path("/usr/local/bin/configurable-http-proxy")
    node: Path = Path("/usr/bin/node")
    slurm_bin_dir: Path = Path("/usr/bin")
    slurm_conf: str = ""

    def __post_init__(self) -> None:
        for name in ("folder", "wrapper_dir", "bin_dir", "python", "proxy", "node", "slurm_bin_dir"):
            if _PLAIN_PATH.fullmatch(str(getattr(self, name))) is None:
                raise ConfigError(
                    f"{name}: {str(getattr(self, name))!r} is not a path for sudoers, systemd and scripts.",
                    hint="Use an absolute path of letters, digits and . _ + - alone, without '..'.",
                )
        if self.slurm_conf and _PLAIN_PATH.fullmatch(self.slurm_conf) is None:
            raise ConfigError(f"SLURM_CONF: {self.slurm_conf!r} is not a path that can be written into the scripts")
        for name in ("account", "group"):
            if _PLAIN_NAME.fullmatch(getattr(self, name)) is None:
                raise ConfigError(f"{name}: {getattr(self, name)!r} is not a name of one")
        if _SUDOERS_ALIAS.fullmatch(self.account) is not None:
            meaning = "every account" if self.account == "ALL" else "an alias"
            raise ConfigError(
                f"account: {self.account!r} means {meaning} in sudoers.",
                hint="Use an account whose name has a lower-case letter, such as jupyterhub.",
            )
        if _HOST.fullmatch(self.hub_ip) is None and not _is_ipv6(self.hub_ip):
            raise ConfigError(f"hub_ip: {self.hub_ip!r} is neither an address nor a host name")

    @property
    def search_path(self) -> str:
        """``PATH`` of the services: the hub's own folder, then those of the proxy, node and Slurm."""
        folders = (self.bin_dir, self.proxy.parent, self.node.parent, self.slurm_bin_dir)
        own = [str(folder) for folder in folders if str(folder) not in SYSTEM_PATH]
        return ":".join(dict.fromkeys([*own, *SYSTEM_PATH]))

    @property
    def programs_of_proxy(self) -> tuple[Path, ...]:
        """What the proxy's service runs, under each of its paths: npm and others install links."""
        return tuple(path for program in (self.node, self.proxy) for path in (program, program.resolve()))


def _is_ipv6(text: str) -> bool:
    """Whether it is an address of IPv6, without a zone: ``%`` means something else to systemd."""
    try:
        return IPv6Address(text).scope_id is None
    except ValueError:
        return False


class Change(Enum):
    """What became of a file."""

    WRITTEN = "wrote"
    UNCHANGED = "unchanged"
    KEPT = "kept"
    """It is there with another content, and was not to be replaced."""


@dataclass(frozen=True)
class ConfigFile:
    """A file to be written."""

    path: Path
    text: str
    mode: int

    def write(self, *, replace: bool) -> Change:
        """Write it, unless it is there with another content and is not to be replaced.

        A file of the right content that belongs to another account than root and the caller is written anew.
        """
        try:
            status = self.path.lstat()
        except FileNotFoundError:
            status = None
        if status is not None and stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, "a folder is in this file's place; remove it", str(self.path))
        if status is not None and stat.S_ISREG(status.st_mode) and self.path.read_bytes() == self.text.encode():
            if stat.S_IMODE(status.st_mode) == self.mode and status.st_uid in (0, os.geteuid()):
                return Change.UNCHANGED
        elif status is not None and not replace:
            return Change.KEPT
        make_folder(self.path.parent)
        new = self.path.with_name(f".{self.path.name}.new")
        new.unlink(missing_ok=True)
        try:
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(self.text.encode())
                os.fchmod(file.fileno(), self.mode)
            new.replace(self.path)
        finally:
            new.unlink(missing_ok=True)
        return Change.WRITTEN


def make_folder(folder: Path) -> None:
    """Make a folder that everybody may enter, with those above it; one that is there stays as it is."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir()
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)  # a link may be there by now
        try:
            os.fchmod(descriptor, 0o755)
        finally:
            os.close(descriptor)


def is_open(status: os.stat_result, owners: Collection[int] = (0,)) -> bool:
    """Whether others than these accounts (user ids) can change a file or folder; the group root is not one of them."""
    by_group = status.st_mode & stat.S_IWGRP and status.st_gid != 0
    return status.st_uid not in owners or bool(by_group or status.st_mode & stat.S_IWOTH)


def open_folders(folder: Path, owners: Collection[int] = (0,)) -> dict[Path, os.stat_result]:
    """The folders, of this one and those above, by which others than these accounts (user ids) can replace its files.

    Whoever can change a folder can rename what is in it, except where it is sticky (unlink(2), EPERM). The way to a
    link counts, and that to where it leads. What this account may not look at is left out.
    """
    ends = [Path(os.path.realpath(path)) for path in (folder, *folder.parents)]  # resolve() raises for a link to itself
    open_ones = {}
    for path in sorted({parent for end in ends for parent in (end, *end.parents)}):
        try:
            status = path.stat()
        except OSError:
            continue
        sticky = path != ends[0] and status.st_mode & stat.S_ISVTX and status.st_uid in owners
        if is_open(status, owners) and not sticky:
            open_ones[path] = status
    return open_ones


def how_to_close(path: Path, status: os.stat_result) -> str:
    """The commands after which root alone can change a file or folder."""
    commands = {f"chown root:root {path}": status.st_uid != 0, f"chmod go-w {path}": status.st_mode & 0o022}
    return " and ".join(command for command, needed in commands.items() if needed)


def this_installation(
    folder: Path,
    *,
    wrapper_dir: Path | None = None,
    account: str = "",
    group: str = "",
    hub_ip: str = "",
    slurm_bin_dir: Path | None = None,
) -> HubInstallation:
    """The installation that this code is part of, as far as it can be found out; the rest as in the examples."""
    folder = _absolute(folder)
    bin_dir = _absolute(Path(sys.executable).parent)
    search = f"{bin_dir}:{os.environ.get('PATH', os.defpath)}:{':'.join(SYSTEM_PATH)}"
    sbatch = shutil.which("sbatch", path=search)
    example = HubInstallation(folder, folder / "wrappers", bin_dir)
    return HubInstallation(
        folder,
        _absolute(wrapper_dir) if wrapper_dir else example.wrapper_dir,
        bin_dir,
        account=account or example.account,
        group=group or example.group,
        hub_ip=hub_ip or example.hub_ip,
        python=_python_of_scripts(example.python),
        proxy=_absolute(Path(shutil.which("configurable-http-proxy", path=search) or example.proxy)),
        node=_absolute(Path(shutil.which("node", path=search) or example.node)),
        slurm_bin_dir=_absolute(slurm_bin_dir or (Path(sbatch).parent if sbatch else example.slurm_bin_dir)),
        slurm_conf=os.environ.get("SLURM_CONF", ""),
    )


def _absolute(path: Path) -> Path:
    """The path from / without ``..``; otherwise a link in it may be meant, and is kept."""
    path = Path.cwd() / path
    return path.resolve() if ".." in path.parts else path


def _python_of_scripts(system: Path) -> Path:
    """The system's Python if it is new enough for the scripts, else the one that runs this."""
    new_enough = [str(system), "-I", "-c", "import sys; sys.exit(sys.version_info < (3, 8))"]
    try:
        done = subprocess.run(new_enough, stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return Path(sys.executable)
    return system if done.returncode == 0 else Path(sys.executable)


def scripts_of_extensions() -> dict[str, Path]:
    """Their scripts, each by the path that it would have in the folder of all."""
    return {
        f"wrappers/{name}": extension.folder / file
        for extension in installed()
        for name, file in extension.login_scripts.items()
    }


def files_of_extensions() -> dict[str, Path]:
    """Their scripts and all other files of theirs, each by the path that it would have in the folder of all."""
    return scripts_of_extensions() | {
        name: extension.folder / file for extension in installed() for name, file in extension.files.items()
    }


def shipped_text(name: str) -> str:
    """A file as it is shipped, by its path in the folder of all."""
    return files_of_extensions().get(name, SHIPPED / name).read_text("utf-8")


def files_of(groups: Iterable[str], installation: HubInstallation) -> list[ConfigFile]:
    """The files of these groups, with the paths of an installation."""
    names = sorted({name for group in groups for top in GROUPS[group] for name in _names_below(top)})
    return [_file(name, installation) for name in names]


def _names_below(top: str) -> Iterator[str]:
    yield from (name for name in files_of_extensions() if name.startswith(f"{top}/"))
    path = SHIPPED / top
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file() and "__pycache__" not in file.parts:
            yield file.relative_to(SHIPPED).as_posix()


def _file(name: str, installation: HubInstallation) -> ConfigFile:
    text = shipped_text(name)
    script = _IN_WRAPPER_DIR.fullmatch(name) if text.startswith("#!") else None
    path = installation.wrapper_dir / script["name"] if script else installation.folder / name
    values = dict(_values(name, installation))
    examples = "|".join(map(re.escape, values))  # at once: a path of the site may look like an example
    text = re.sub(examples, lambda match: values[match[0]], text)
    return ConfigFile(path, text, 0o755 if script else 0o600 if name.endswith(_KEYS) else _PRIVATE.get(name, 0o644))


def _values(name: str, installation: HubInstallation) -> Iterator[tuple[str, str]]:
    """Examples in a file, each with what replaces it."""
    account, folder = installation.account, str(installation.folder)
    if name.startswith("ansible/"):  # it runs `gpuspawner files` on the hub's machine, with variables of its own
        yield "-0.1.0-", f"-{__version__}-"
        return
    yield "/etc/jupyterhub/wrappers", str(installation.wrapper_dir)
    yield "/etc/jupyterhub", folder
    yield "10.0.0.10", installation.hub_ip
    yield "notebookusers", installation.group
    if name.startswith("wrappers/") or name == "ssh/gate":
        yield "#!/usr/bin/python3 -I\n", f"#!{installation.python} -I\n"
        yield from _of_slurm(installation)
        names = ", ".join(f'"{Path(script).name}"' for script in sorted(scripts_of_extensions()))
        yield 'OWN = ("query",)', f'OWN = ("query", {names})' if names else 'OWN = ("query",)'
    elif name == "sudoers":
        yield "HUB = jupyterhub\n", f"HUB = {account}\n"
    elif name.startswith("ssh/"):
        yield "User jupyterhub\n", f"User {account}\n"
        yield "~jupyterhub/", f"~{account}/"
        yield "jupyterhub@hub", f"{account}@hub"
    elif name.endswith(".service"):
        yield "User=jupyterhub\nGroup=jupyterhub\n", f"User={account}\nGroup={account}\n"
        yield "PATH=/opt/jupyterhub/bin:/usr/local/bin:/usr/bin:/bin\n", f"PATH={installation.search_path}\n"
        host = f"[{installation.hub_ip}]" if ":" in installation.hub_ip else installation.hub_ip
        yield "http://10.0.0.10:", f"http://{host}:"
        yield "/opt/jupyterhub/bin/", f"{installation.bin_dir}/"
        yield "/usr/local/bin/configurable-http-proxy", str(installation.proxy)
        if any(path.is_relative_to(home) for path in installation.programs_of_proxy for home in ("/home", "/root")):
            yield "ProtectHome=yes\n", "# Node.js or the proxy is below /home or /root.\nProtectHome=read-only\n"
    elif name == "jupyterhub_config.py" and str(installation.slurm_bin_dir) not in SYSTEM_PATH:
        yield 'slurm_bin_dir = ""', f'slurm_bin_dir = "{installation.slurm_bin_dir}"'


def _of_slurm(installation: HubInstallation) -> Iterator[tuple[str, str]]:
    folder = installation.slurm_bin_dir
    for program in ("sbatch", "scancel", "scontrol"):
        yield f'"/usr/bin/{program}"', f'"{folder / program}"'
    yield 'SLURM = "/usr/bin"', f'SLURM = "{folder}"'
    if str(folder) not in SYSTEM_PATH:
        yield 'PROGRAMS = "', f'PROGRAMS = "{folder}:{folder.parent}/sbin:'
    if installation.slurm_conf:
        yield '"LANG": "C.UTF-8"}  # SITE', f'"LANG": "C.UTF-8", "SLURM_CONF": "{installation.slurm_conf}"}}  # SITE'
