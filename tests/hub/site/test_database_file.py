"""The hub's database by its URL: who can read its file, and how commands open it."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.site.database import exposed_database, open_database


@pytest.fixture
def folder(public_folder: Path) -> Path:
    """Return a folder that everybody may enter."""
    inner = public_folder / "hub"
    inner.mkdir(mode=0o755, exist_ok=True)
    return inner


@pytest.mark.parametrize(
    ("mode", "exposed"), [(0o600, False), (0o640, True), (0o604, True), (0o644, True), (0o622, False)]
)
def test_a_database_that_others_can_read_is_reported(folder: Path, mode: int, exposed: bool) -> None:
    """With its mode, and what to do."""
    file = folder / "hub.sqlite"
    file.touch()
    file.chmod(mode)

    assert exposed_database(f"sqlite:///{file}") == (
        f"the hub's database can be read by others (mode {mode:04o}): restrict it to its owner with chmod 600 {file}"
        if exposed
        else ""
    )


def test_a_closed_folder_protects_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the URL has a relative path, which begins at the hub's working folder."""
    closed = folder / "closed"
    closed.mkdir(exist_ok=True)
    (closed / "hub.sqlite").touch()
    (closed / "hub.sqlite").chmod(0o644)
    monkeypatch.chdir(closed)
    closed.chmod(0o755)

    assert "mode 0644" in exposed_database("sqlite:///hub.sqlite")

    closed.chmod(0o700)

    assert exposed_database("sqlite:///hub.sqlite") == ""


@pytest.mark.parametrize(
    "url",
    ["sqlite:///:memory:", "sqlite://", "postgresql://hub:pw@db/hub", "sqlite:////no/such/file", "no address", ""],
)
def test_what_is_no_file_is_not_exposed(url: str) -> None:
    """A database in memory, one of a server, or none."""
    assert exposed_database(url) == ""


@pytest.mark.parametrize("form", ["{file}", "sqlite:///{file}", "sqlite:///file:{file}?uri=true"])
def test_a_command_opens_the_database_as_the_hub_does(tmp_path: Path, form: str) -> None:
    """By a URL, or by the name of a file, which JupyterHub accepts; with the admin's ``db_kwargs``."""
    (tmp_path / "hub.sqlite").touch()
    engine = open_database(form.format(file=tmp_path / "hub.sqlite"), {"connect_args": {"timeout": 1}})
    with engine.connect() as connection:
        assert connection.execute(text("SELECT 1")).scalar() == 1
    engine.dispose()


NOT_OPENED = {
    "no file": ("sqlite:////no/such.sqlite", {}, r"there is no database /no/such.sqlite\."),
    "in memory": ("sqlite://", {}, "the database is in the hub's memory"),
    "no URL": ("no address://", {}, "Could not parse"),
    "no driver": ("postgresql+nodriver://hub@db/hub", {}, "nodriver"),
    "an unknown argument": ("sqlite://", {"speed": 9}, "'speed'"),
}


@pytest.mark.parametrize(("url", "arguments", "said"), NOT_OPENED.values(), ids=NOT_OPENED.keys())
def test_a_database_that_cannot_be_opened_is_an_error_of_the_configuration(
    url: str, arguments: dict[str, object], said: str
) -> None:
    """The error names the setting, and no file is made."""
    with pytest.raises(ConfigError, match=said) as raised:
        open_database(url, arguments)

    assert str(raised.value).startswith("c.JupyterHub.db_url: ")
