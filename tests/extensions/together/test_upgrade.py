"""Whatever 0.1.0 stored, sent or accepted is read today, as ``docs/deprecation.md`` promises.

``stored.py`` has made the files of ``tests/data/release-0.1``, and has the values that they stand for. Somebody who
renames a column, a field or a setting has to add a step that reads the former name. Only until 0.1.0 is released may
the files be written anew instead: ``python -m tests.extensions.together.stored``.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from functools import reduce
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from jupyterhub_gpuspawner.extensions.courses.additions import added_people
from jupyterhub_gpuspawner.extensions.courses.course import Course
from jupyterhub_gpuspawner.extensions.courses.folder import CourseFolder
from jupyterhub_gpuspawner.extensions.courses.page import latest_actions
from jupyterhub_gpuspawner.extensions.courses.participants import CourseStarts
from jupyterhub_gpuspawner.extensions.fleet.store import FleetStore, StoredFleet
from jupyterhub_gpuspawner.extensions.idle.times import IdleTimes
from jupyterhub_gpuspawner.extensions.messages.store import Messages
from jupyterhub_gpuspawner.extensions.records.record import applied
from jupyterhub_gpuspawner.extensions.records.store import SessionStore
from jupyterhub_gpuspawner.extensions.usage.use import parse_usage
from jupyterhub_gpuspawner.hub.report.server_report import parse_report
from jupyterhub_gpuspawner.hub.site.tables import upgrade
from jupyterhub_gpuspawner.hub.spawners.shared_folder import read_slugs
from jupyterhub_gpuspawner.hub.start.submission import StartRecords
from jupyterhub_gpuspawner.placement.topology import load
from jupyterhub_gpuspawner.profiles.files import EVERYTHING, ProfileFolder, Rights
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles
from tests.extensions.together import stored
from tests.extensions.together.stored import RELEASE
from tests.fixtures.databases import disposed
from tests.fixtures.extensions import ALL


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """The hub's database of 0.1.0, after a start of today's hub."""
    stored.restore((RELEASE / "hub.sql").read_text("utf-8"), tmp_path / "hub.sqlite")
    with disposed(create_engine(f"sqlite:///{tmp_path / 'hub.sqlite'}")) as engine, Session(engine) as session:
        upgrade(session, ALL.tables)
        yield session


def test_a_change_of_each_stored_name_would_be_noticed() -> None:
    """A field that none of the values sets stands in no file: a new one needs a value before it is released."""
    assert stored.left_out(stored.all_values()) == []


def test_the_hubs_database_is_read(session: Session) -> None:
    """Each store has what was written with it."""
    fleet = FleetStore(session.get_bind(), "cedar").read()
    (action,) = latest_actions(session, "deep")

    assert StartRecords(session).find([stored.SESSION.id]) == {stored.SESSION.id: stored.START}
    assert CourseStarts(session).find("deep", "2026-11-25") == {"ada": stored.COURSE_START}
    assert action.text == stored.ACTION
    assert Messages(session).shown(now=stored.NOW) == (stored.MESSAGE,)
    assert read_slugs(session) == stored.SLUGS
    assert IdleTimes(session).to_take_up() == [stored.IDLE]
    assert fleet == StoredFleet((stored.NODE,), (stored.GRANT,))
    assert added_people(session) == stored.ADDED


def test_the_file_of_records_is_read(tmp_path: Path) -> None:
    """A session's record has everything that its events said."""
    stored.restore((RELEASE / "sessions.sql").read_text("utf-8"), tmp_path / "sessions.sqlite")
    store = SessionStore(tmp_path / "sessions.sqlite", create=False)
    records = list(store.sessions())
    store.close()

    assert records == [reduce(applied, stored.EVENTS, None)]


@pytest.mark.parametrize("name", sorted(stored.SERVERS))
def test_a_server_goes_on(name: str) -> None:
    """A hub that takes up its state knows all that the hub of 0.1.0 knew, and stores it as it stores its own."""
    server = stored.spawner()
    server.load_state(json.loads((RELEASE / "servers" / f"{name}.json").read_text("utf-8")))

    assert stored.state_of(server) == stored.state_of(stored.SERVERS[name]())


@pytest.mark.parametrize("name", sorted(stored.REPORTS))
def test_what_a_launcher_reports_is_read(name: str) -> None:
    """A job that was submitted before the upgrade may start after it."""
    assert parse_report((RELEASE / "reports" / f"{name}.json").read_bytes()) == stored.REPORTS[name]


def test_a_summary_of_use_is_read() -> None:
    """It comes from the process beside a server that was started before the upgrade."""
    assert parse_usage((RELEASE / "usage.json").read_bytes()) == stored.USAGE


def test_files_for_nodes_are_read() -> None:
    """A topology file that an admin keeps; a launch plan comes with the launcher that reads it."""
    assert load(str(RELEASE / "topology.json")) == stored.TOPOLOGY


def test_files_of_profiles_and_courses_are_read(tmp_path: Path) -> None:
    """Each field is still one, and stands for the same."""
    shutil.copytree(RELEASE, tmp_path / "release")  # others may be able to write to a clone
    rights = Rights(EVERYTHING.allowed, frozenset({"jupyterhub.spawner.SimpleLocalProcessSpawner"}))
    profiles = ProfileFolder(tmp_path / "release" / "profiles", rights)
    courses = CourseFolder(tmp_path / "release" / "courses")

    content = profiles.read()
    assert (content.profiles, content.errors) == (tuple(parse_profiles(stored.PROFILES)), ())
    assert {file.slug: (file.course, file.fault) for file in courses.read().files} == {
        slug: (Course.model_validate(course), None) for slug, course in stored.COURSES.items()
    }


def names(file: str) -> set[tuple[str, str]]:
    document: dict[str, list[str]] = json.loads((RELEASE / file).read_text("utf-8"))
    return {(owner, name) for owner, names in document.items() for name in names}


def pairs(document: dict[str, list[str]]) -> set[tuple[str, str]]:
    return {(owner, name) for owner, names in document.items() for name in names}


def test_no_setting_and_no_option_of_a_command_is_gone() -> None:
    """One that is to go is deprecated first."""
    assert names("settings.json") - pairs(stored.settings()) == set()
    assert names("commands.json") - pairs(stored.commands()) == set()
