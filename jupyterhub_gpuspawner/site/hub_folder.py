"""The folder to which a hub's relative paths refer: its working directory, which a command elsewhere cannot know.

JupyterHub's default database, cookie secret and process id are files in its working directory (``jupyterhub/app.py``).
A hub that runs with the same configuration file shows its directory in /proc; otherwise its files show it, if they lie
beside the configuration.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from jupyterhub_gpuspawner.hub.site.database_file import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from traitlets.config import Config

COOKIE_FILE = "jupyterhub_cookie_secret"
"""JupyterHub's default of cookie_secret_file."""
CONFIG_FILE = "jupyterhub_config.py"
"""JupyterHub's default of config_file."""
_OPTIONS = ("-f", "--config", "--JupyterHub.config_file")
_FOLDERS = ("profiles_dir", "courses_dir")


def hub_folder(path: Path, config: Config) -> Path | None:
    """The working directory of the hub with this configuration file, whose content is ``config``; None if unknown."""
    running = running_in(path)
    if running is not None:
        return running
    beside, hub = path.absolute().parent, config.JupyterHub
    names = (sqlite_file(str(hub.get("db_url", DEFAULT))), hub.get("cookie_secret_file", COOKIE_FILE))
    if any(name and not os.path.isabs(name) and (beside / name).is_file() for name in names):  # noqa: PTH117
        return beside
    return None


def running_in(path: Path, processes: Path = Path("/proc")) -> Path | None:
    """The working directory of a running hub with this configuration file, as far as this account may look."""
    for entry in processes.glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
            named = configuration_of(words)
            if named is None:
                continue
            folder = Path(os.readlink(entry / "cwd"))  # noqa: PTH115 - "(deleted)" is no folder either way
            if (folder / named).samefile(path):
                return folder
        except OSError:  # it has ended, or belongs to another account
            continue
    return None


def configuration_of(words: Sequence[str]) -> str | None:
    """The configuration file of a hub with this command line; None if it is not that of a hub."""
    at = next((at for at, word in enumerate(words) if Path(word).name == "jupyterhub"), None)
    if at is None or (at and not Path(words[0]).name.startswith("python")):
        return None
    if any(not word.startswith("-") for word in words[1:at]):
        return None
    found = CONFIG_FILE
    for word, following in zip(words[at + 1 :], [*words[at + 2 :], ""], strict=True):
        option, equals, value = word.partition("=")
        if option in _OPTIONS:
            found = value if equals else following
    return found


def sqlite_file(db_url: str) -> str:
    """The path of an SQLite database as ``c.JupyterHub.db_url`` has it; empty for another database."""
    if "://" not in db_url:  # which JupyterHub takes for a file's name
        return db_url
    try:
        url = make_url(db_url)
    except ArgumentError:
        return ""
    name = url.database or ""
    return name if url.get_backend_name() == "sqlite" and not name.startswith((":", "file:")) else ""


def is_unseen(db_url: str) -> bool:
    """Whether this is a file relative to a working directory that is not known; see :func:`make_absolute`."""
    name = sqlite_file(db_url)
    return bool(name) and not os.path.isabs(name)  # noqa: PTH117


def make_absolute(config: Config, path: Path, folder: Path | None) -> None:
    """Give the full path of the database, and of the folders of profiles and courses, as far as they are known."""
    db_url = str(config.JupyterHub.get("db_url", DEFAULT))
    if is_unseen(db_url) and folder is not None:
        url = make_url(db_url if "://" in db_url else f"sqlite:///{db_url}")
        config.JupyterHub.db_url = str(url.set(database=str(folder / sqlite_file(db_url))))
    base = folder or path.absolute().parent
    for section in config.values():
        for setting in _FOLDERS if isinstance(section, dict) else ():
            value = section.get(setting)
            if isinstance(value, str) and value and (base / value).is_dir():
                section[setting] = str(base / value)
