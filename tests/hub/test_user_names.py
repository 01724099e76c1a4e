"""For hub users whose name is not that of an account, no command is run."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.fixtures.hubs import LIGHT, StartHub
from tests.fixtures.postgres import about_sqlite

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

RECORDER = """#!/bin/sh
echo "$1" >>{file}
shift
exec "$@"
"""
LINES = """
c.GPUSlurmSpawner.exec_prefix = "{recorder} {{username}}"
c.JupyterHub.db_url = "sqlite:///{database}"
c.Authenticator.allowed_users = {{"#0", "ann"}}
"""
HERE = """
- {display_name: Here, slug: here, kind: local}
"""


@dataclass(frozen=True)
class Recorded:
    """A hub, and the users for whom it has run a command."""

    hub: HubProcess
    file: Path

    def users(self) -> set[str]:
        return set(self.file.read_text().splitlines()) if self.file.exists() else set()


@pytest.fixture(scope="module")
def recorded(start_light_hub: StartHub, public_folder: Path) -> Iterator[Recorded]:
    """The hub runs commands as the user with a program that records the user's name; others can read its database."""
    recorder, database = public_folder / "recorder", public_folder / "open.sqlite"
    recorder.write_text(RECORDER.format(file=public_folder / "recorded"))
    recorder.chmod(0o755)
    database.touch(0o644)
    database.chmod(0o644)
    yield Recorded(
        start_light_hub(lines=LINES.format(recorder=recorder, database=database), profiles=LIGHT + HERE),
        public_folder / "recorded",
    )
    database.unlink()


NOT_A_NAME = "Servers cannot be started under your user name."
ODD = {
    "root by its number": ("#0", NOT_A_NAME),
    "somebody else by his number": ("#1000", NOT_A_NAME),
    "a number": ("1000", NOT_A_NAME),
    "an option": ("-i", NOT_A_NAME),
    "a place in a log's name": ("a%u", NOT_A_NAME),
    "root": ("root", "Servers are not started for this account."),
}


@pytest.mark.parametrize(("name", "sentence"), ODD.values(), ids=ODD.keys())
def test_for_an_odd_name_nothing_is_run(
    recorded: Recorded, slurm_cluster: PrivateSlurm, name: str, sentence: str
) -> None:
    """A start is refused, and no trial is run."""
    hub, path = recorded.hub, quote(name, safe="")
    before, queue = recorded.users(), unfinished(slurm_cluster)
    hub.api("POST", f"/users/{path}")
    start = hub.api("POST", f"/users/{path}/server", {"profile": "light"})
    trial = hub.api("POST", f"/gpuspawner/trial/{path}", {"user_options": {"profile": "light"}}).json()

    assert (start.status_code, sentence in start.json()["message"]) == (500, True), start.text
    assert (trial["chance"], trial["sentence"]) == (
        "unknown",
        "this hub cannot check in advance when a job would start",
    )
    assert recorded.users() == before
    assert unfinished(slurm_cluster) <= queue


def unfinished(slurm: PrivateSlurm) -> set[str]:
    """The ids of the jobs that wait or run, which may be of servers that another hub is about to stop."""
    return set(slurm.run("squeue", "--noheader", "--states=running,pending", "--format=%i").split())


@pytest.mark.parametrize("name", ["#1000", "-i"])
def test_on_the_hubs_machine_it_is_refused_as_well(recorded: Recorded, name: str) -> None:
    """A local server would have a home folder whose path contains the name."""
    path = quote(name, safe="")
    recorded.hub.api("POST", f"/users/{path}")
    start = recorded.hub.api("POST", f"/users/{path}/server", {"profile": "here"})

    assert (start.status_code, NOT_A_NAME in start.json()["message"]) == (500, True), start.text


def test_for_a_name_of_an_account_it_is(recorded: Recorded) -> None:
    """For a valid name the command is run, which shows that the recording works."""
    recorded.hub.spawn("ann", {"profile": "light"})
    recorded.hub.end("ann")

    assert recorded.users() == {"ann"}


def test_the_hubs_log_warns_of_what_is_open_and_of_names(recorded: Recorded) -> None:
    """Both warnings are logged once when the hub starts."""
    warnings = re.findall(r"gpuspawner: (.*)", recorded.hub.log.read_text())

    assert warnings == [
        "the hub's database can be read by others (mode 0644): "
        f"restrict it to its owner with chmod 600 {recorded.file.parent / 'open.sqlite'}",
        "c.Authenticator.allowed_users: '#0' is not a valid user name.",
    ]


@about_sqlite
def test_what_the_demos_hub_writes_is_its_own(light_hub: HubProcess) -> None:
    """Only the owner can read the hub's database and its log."""
    files = {name: stat.filemode((light_hub.folder / name).stat().st_mode) for name in ("hub.sqlite", "hub.log")}

    assert files == {"hub.sqlite": "-rw-------", "hub.log": "-rw-------"}
    assert (light_hub.folder / "hub.sqlite").stat().st_size > 0
