"""The examples in config and the second tutorial agree on where everything is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "config"
TUTORIAL = (ROOT / "docs" / "tutorial" / "hub-without-root.md").read_text("utf-8")
PATH = re.compile(r"/(?:etc|opt|usr/local|var/lib)/[\w./-]*\w")
SOURCES = {
    "/etc/jupyterhub": CONFIG,
    "/etc/jupyterhub/jupyterhub_config.py": CONFIG / "jupyterhub_config.py",
    "/etc/sudoers.d/jupyterhub": CONFIG / "sudoers",
    "/etc/jupyterhub/wrappers": CONFIG / "wrappers",
}
"""What of config is copied where; the tutorial names each of these places."""
SYSTEM = {
    "/etc/systemd/system",
    "/etc/shadow",
    "/etc/jupyterhub/proxy.env",
    "/usr/local/bin",
    "/opt/jupyterhub/bin",
    "/var/lib/jupyterhub",
}
"""Other places of an installed hub."""


def source(path: str) -> Path | None:
    """The file or folder of config that a path of an installed hub is a copy of; None if there is none."""
    for prefix in sorted(SOURCES, key=len, reverse=True):
        if path == prefix or path.startswith(f"{prefix}/"):
            copied = SOURCES[prefix] / path.removeprefix(prefix).lstrip("/")
            return copied if copied.exists() else None
    return None


@pytest.mark.parametrize("path", sorted(SOURCES))
def test_the_tutorial_names_each_place(path: str) -> None:
    """An admin who follows it has them all."""
    assert path in TUTORIAL


@pytest.mark.parametrize("name", ["jupyterhub.service", "jupyterhub-proxy.service", "jupyterhub_config.py", "sudoers"])
def test_every_path_in_an_example_is_of_something_that_is_there(name: str) -> None:
    """Each is a copy of something in config, or another place that there is."""
    named = set(PATH.findall((CONFIG / name).read_text("utf-8")))
    unknown = {
        path
        for path in named
        if source(path) is None and not any(path == prefix or path.startswith(f"{prefix}/") for prefix in SYSTEM)
    }

    assert named
    assert unknown == set()


def test_every_script_that_sudo_allows_is_one_of_the_wrappers() -> None:
    """And each wrapper is allowed, the last one in lines that an admin may enable; `query` needs no sudo."""
    text = (CONFIG / "sudoers").read_text("utf-8")
    allowed = set(re.findall(r"^#?Cmnd_Alias +\w+ += (\S+) \"\"$", text, re.MULTILINE))

    assert allowed == {f"/etc/jupyterhub/wrappers/{path.name}" for path in (CONFIG / "wrappers").iterdir()} - {
        "/etc/jupyterhub/wrappers/query",
    }
