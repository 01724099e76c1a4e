"""What is exported: a table that others can read, in which nobody can be found again."""

from __future__ import annotations

import csv
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from frictionless import Package
from frictionless.resources import TableResource
from pyarrow import parquet

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extensions.records.export import (
    COLUMNS,
    CSV,
    PARQUET,
    coarsened,
    export,
    pseudonym,
    read_key,
    traits_of,
)
from jupyterhub_gpuspawner.extensions.records.record import SessionRecord
from jupyterhub_gpuspawner.hub.job.cause import Cause, Kind
from tests.extensions.records.a_record import RECORD
from tests.standins.session_events import NOON

KEY = bytes(range(32))
CREATED = "2026-05-01T12:00:00+00:00"
TRAITS = ("begun", "profile", "course", "cluster", "partition", "node", "gpu_model", "gpus", "cause")


def many(number: int = 600, people: int = 40) -> list[SessionRecord]:
    """Sessions of a term: a crowded course that begins on the minute, and people at any time, some of them alone."""
    chance = random.Random(7)
    records = []
    for n in range(number):
        in_course = n % 3 == 0
        begun = NOON + 86400 * chance.randrange(60) + chance.randrange(86400)
        records.append(
            replace(
                RECORD,
                session=f"session-{n}",
                username=f"person-{chance.randrange(people):03d}",
                servername=f"secret-project-{n}",
                job_id=f"job-{n}",
                course="dl" if in_course else "",
                profile="course-dl" if in_course else chance.choice(["small", "small", "large", f"own-{n}"]),
                begun_at=NOON + 86400 * 7 * (n % 4) if in_course else begun,
                ended_at=begun + 5000,
                node=chance.choice(["g1", "g2"]),
                cluster=chance.choice(["juniper", "cedar"]),
                cause=Cause(chance.choice([Kind.TIME_LIMIT, Kind.STOPPED_BY_USER])),
            )
        )
    return records


def exported(
    folder: Path, records: Sequence[SessionRecord], *, kind: str = CSV, group: int = 5
) -> list[dict[str, str]]:
    export(records, folder, kind=kind, key=KEY, group=group, created=CREATED)
    with (folder / "sessions.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of :func:`many`."""
    directory = tmp_path_factory.mktemp("export")
    exported(directory, many())
    return directory


def test_frictionless_reads_the_data_package(folder: Path) -> None:
    """The table has the columns, types, size and hash that the package tells."""
    package = Package(str(folder / "datapackage.json"))
    report = package.validate()

    assert report.valid, report.flatten(["type", "message"])
    (resource,) = package.resources
    assert isinstance(resource, TableResource)
    rows = resource.read_rows()
    assert [field.name for field in resource.schema.fields] == [column.name for column in COLUMNS]
    assert 500 < len(rows) <= 600
    assert {type(row["run_seconds"]) for row in rows} == {int}
    assert {type(row["aligned"]) for row in rows if row["gpu_model"]} == {bool}


def test_a_parquet_table_has_the_same_rows_as_csv(tmp_path: Path) -> None:
    """With the types and meanings of the columns."""
    records = [replace(RECORD, username=f"u{n}") for n in range(6)]
    export(records, tmp_path, kind=PARQUET, key=KEY, group=5, created=CREATED)
    table = parquet.read_table(tmp_path / "sessions.parquet")

    assert [field.metadata[b"description"].decode() for field in table.schema] == [
        column.description for column in COLUMNS
    ]
    assert [
        {name: "" if value is None else str(value) for name, value in row.items()}
        | {name: str(row[name]).lower() for name in ("aligned", "simulated")}
        for row in table.to_pylist()
    ] == exported(tmp_path, records)


def test_a_carriage_return_stays_in_its_cell(tmp_path: Path) -> None:
    """What a profile of a participant is called cannot begin a row of its own."""
    records = [replace(RECORD, username=f"u{n}", profile="two\r=1+1") for n in range(5)]
    export(records, tmp_path, kind=CSV, key=KEY, group=5, created=CREATED)
    with (tmp_path / "sessions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))

    assert [row["profile"] for row in rows] == ["two\r=1+1"] * 5


def test_no_name_is_in_an_export(folder: Path) -> None:
    """Nor the name of a server, the id of a job or of a session."""
    text = "".join(path.read_text() for path in folder.iterdir())

    assert [word for word in ("person-", "secret-project", "session-", "job-") if word in text] == []


def test_each_combination_of_traits_is_that_of_five_people(folder: Path) -> None:
    """Also of every part of them; time to the minute is there only where five people began in that minute."""
    with (folder / "sessions.csv").open() as file:
        rows = list(csv.DictReader(file))
    people = defaultdict(set)
    for row in rows:
        people[tuple(row[name] for name in TRAITS)].add(row["user"])

    assert min(map(len, people.values())) >= 5
    to_the_minute = {row["begun"] for row in rows if len(row["begun"]) == len("2026-03-02T12:00Z")}
    assert to_the_minute == {"2026-03-02T12:00Z", "2026-03-09T12:00Z", "2026-03-16T12:00Z", "2026-03-23T12:00Z"}
    assert not any(row["profile"].startswith("own-") for row in rows)
    # what a profile asks for would tell which one it was
    assert {row["asked_seconds"] for row in rows if not row["profile"]} <= {""}


def test_a_name_is_not_found_by_trying_all_names_without_the_key(folder: Path) -> None:
    """Only the same key makes the same pseudonyms."""
    with (folder / "sessions.csv").open() as file:
        published = {row["user"] for row in csv.DictReader(file)}
    names = [f"person-{n:03d}" for n in range(40)]
    tried = {
        pseudonym(key, name, course)
        for name in names
        for course in ("", "dl")
        for key in (b"", b"key", bytes(32), b"person")
    }

    assert not published & tried
    assert published <= {pseudonym(KEY, name, course) for name in names for course in ("", "dl")}


def test_a_handful_of_people_have_nothing_to_hide_behind() -> None:
    """Fewer than the group are left out altogether; a group of one changes nothing."""
    records = [replace(RECORD, username=f"u{n}", session=str(n), begun_at=NOON + 60 * n) for n in range(4)]

    assert coarsened(records, 5) == []
    assert [traits_of(*publishable)["begun"] for publishable in coarsened(records, 1)] == [
        f"2026-03-02T12:0{n}Z" for n in range(4)
    ]
    assert {traits_of(*publishable)["begun"] for publishable in coarsened(records, 4)} == {"2026-03-02T12Z"}


def test_what_tells_the_hardware_is_published_with_it(tmp_path: Path) -> None:
    """GPU-seconds by seconds are the number of GPUs; memory and energy tell the model."""
    some = [replace(RECORD, username=f"u{n}", session=str(n), gpus=n + 1, gpu_model=f"model {n}") for n in range(5)]
    seconds = ("gpu_seconds_held", "gpu_seconds_measured", "gpu_seconds_busy")
    names = ("gpus", "gpu_model", *seconds, "gpu_memory_max_mib", "joules")
    rows = exported(tmp_path, some)
    assert [{row[name] for name in names} for row in rows] == [{""}] * 5
    assert {row["run_seconds"] for row in rows} == {"600"}


def test_a_session_without_a_node_is_not_called_coarser(tmp_path: Path) -> None:
    """Its start failed before it had one: nothing of it is left out."""
    failed = [
        replace(RECORD, username=f"u{n}", session=str(n), node="", gpus=None, gpu_model="", ready_at=None)
        for n in range(5)
    ]
    others = [replace(RECORD, username=f"u{n}", session=f"b{n}", node=f"g{n}") for n in range(5)]

    summary = export([*failed, *others], tmp_path, kind=CSV, key=KEY, group=5, created=CREATED)
    assert (summary.rows, summary.coarser, summary.left_out) == (10, 5, 0)


def test_a_session_under_way_is_not_exported(tmp_path: Path) -> None:
    """Its row would change."""
    assert exported(tmp_path, [replace(RECORD, ended_at=None, cause=None)], group=1) == []


def test_a_key_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    """Later exports use the same one."""
    path = tmp_path / "sessions.key"
    first, second = read_key(path), read_key(path)

    assert (first[1], second[1], first[0] == second[0], len(first[0])) == (True, False, True, 32)
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [("00" * 32, 0o644, "others can read"), ("00", 0o600, "has 1 bytes"), ("no key", 0o600, "cannot be read")],
)
def test_a_key_that_does_not_protect_is_refused(tmp_path: Path, text: str, mode: int, message: str) -> None:
    """The message says what is wrong."""
    path = tmp_path / "sessions.key"
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(ConfigError, match=message):
        read_key(path)


def test_nobody_is_found_by_the_class_lists_of_several_courses(tmp_path: Path) -> None:
    """Who is in which courses is known: no pseudonym has rows of two."""
    chance = random.Random(47)
    courses = ("a", "b", "c", "d", "e")
    lists = {course: chance.sample([f"person-{n:03d}" for n in range(50)], 20) for course in courses}
    records = [
        replace(RECORD, session=f"{course}-{name}", username=name, course=course, profile=f"course-{course}")
        for course, names in lists.items()
        for name in names
    ]
    of_pseudonym = defaultdict(set)
    for row in exported(tmp_path, records):
        of_pseudonym[row["user"]].add(row["course"])

    assert {len(course_set) for course_set in of_pseudonym.values()} == {1}
    assert len(of_pseudonym) == len(records)


def test_a_session_is_not_found_by_its_seconds(tmp_path: Path) -> None:
    """Slurm's accounting has them, and everybody on the cluster may read it."""
    records = [
        replace(RECORD, session=str(n), username=f"person-{n}", ended_at=RECORD.begun_at + 5400 + n) for n in range(40)
    ]
    measured = [column.name for column in COLUMNS if column.measured]
    rows = exported(tmp_path, records)

    assert {len(row[name].rstrip("0")) for row in rows for name in measured} <= {0, 1, 2}
    assert len({row["run_seconds"] for row in rows}) == 1


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)"])
def test_a_text_is_no_formula_of_a_spreadsheet(name: str, tmp_path: Path) -> None:
    """A name of a profile or a node may begin as one."""
    records = [replace(RECORD, session=str(n), username=f"person-{n}", gpu_model=name) for n in range(6)]

    assert {row["gpu_model"] for row in exported(tmp_path, records)} == {f"'{name}"}


def test_an_export_says_that_slurms_accounting_tells_the_names(tmp_path: Path) -> None:
    """Which it does: the two digits of each measurement are together those of one session."""
    chance = random.Random(7)
    records = [
        replace(
            record,
            ready_at=record.begun_at + chance.randrange(10, 600),
            ended_at=record.begun_at + chance.randrange(600, 40_000),
            memory_max_mib=chance.randrange(500, 60_000),
        )
        for record in many()
    ]
    rows = exported(tmp_path, records)
    found = Counter((row["wait_seconds"], row["run_seconds"], row["memory_max_mib"]) for row in rows)

    assert 2 * sum(number == 1 for number in found.values()) > len(rows)
    assert "Whoever can read Slurm's accounting (sacct) finds most rows in it" in str(
        Package(str(tmp_path / "datapackage.json")).description
    )
