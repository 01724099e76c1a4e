"""One hub process for ninety days and four hundred people, across two changes of the clocks.

Hub, slurmctld, slurmd and munged have a common clock, which libfaketime sets ahead: time passes at its own pace, and
jumps by half a day. The zone is Morocco's, whose clocks change twice in these days. The single-user servers are
stand-ins, and the hub's database is one of an earlier version at the beginning.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

import psutil
import pytest
import requests

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import (
    ClusterDescription,
    PrivateSlurm,
    SimulatedNode,
    SimulatedPartition,
    SlurmFailed,
)
from tests.fixtures.clock import OF_HUB, faketime
from tests.fixtures.hubs import new_hub
from tests.fixtures.slurm import ChangedSlurm
from tests.nightly.sites.main_job import CONFIG, MainJob, Site, profiles
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.timeout(2400)]

DATABASE = Path(__file__).parents[2] / "data" / "databases" / "before-versions.sql"
ZONE = ZoneInfo("Africa/Casablanca")
BEGIN = datetime(2027, 1, 20, 9, tzinfo=ZONE)
NIGHTS = (datetime(2027, 2, 7, 2, 55, tzinfo=ZONE), datetime(2027, 3, 14, 1, 55, tzinfo=ZONE))
"""Five minutes before the clocks are put back at three, and forward at two; servers have ten minutes."""
DAYS, PEOPLE, A_DAY = 90, 400, 10
"""Each day the next ten people start servers, so that everybody has come within forty days."""
MEASURED = (42, 66, 90)
HALF_DAY = timedelta(hours=12)
CLUSTER = ClusterDescription(
    nodes=(SimulatedNode("c1", machine="cpu", sockets=2, cores_per_socket=20, memory_mib=190000),),
    partitions=(SimulatedPartition("batch", ("c1",), default=True),),
    name="long",
)
LINES = f"""{OF_HUB}c.JupyterHub.concurrent_spawn_limit = 0
c.JupyterHub.active_server_limit = 0
"""


class Clock:
    """The common clock: a file with the seconds by which it is ahead of this machine's."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.set(BEGIN)

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the programs that go by it; they read the file once a second."""
        return faketime(FAKETIME_TIMESTAMP_FILE=str(self._file), FAKETIME_CACHE_DURATION="1", TZ=ZONE.key)

    def set(self, moment: datetime) -> None:
        """Set it."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{moment.timestamp() - datetime.now(tz=ZONE).timestamp():+.0f}\n")
        new.chmod(0o644)
        new.rename(self._file)


class ClockSlurm(ChangedSlurm):
    """A private Slurm that goes by the clock; its nodes are not down because it jumps."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        super().__init__(CLUSTER, folder, lambda conf: conf.replace("SlurmdTimeout=30", "SlurmdTimeout=0"))
        self._clock = clock

    def _write_files(self) -> None:
        super()._write_files()
        self.environment |= self._clock.environment


@dataclass(frozen=True)
class Sample:
    """What the hub has of what must not grow without bound."""

    day: int
    memory: int
    """Resident, in MiB."""
    threads: int
    files: int
    """Open ones, with sockets."""
    rows: dict[str, int]
    """Of each of this package's tables, in the hub's database and in that of the records."""
    log: int
    """Bytes."""


def sample(hub: HubProcess, day: int) -> Sample:
    """Measure the hub."""
    assert hub.process is not None
    process = psutil.Process(hub.process.pid)
    rows = {name: number for file in ("hub.sqlite", "sessions.sqlite") for name, number in rows_of(hub.folder / file)}
    with process.oneshot():
        memory, threads = process.memory_info().rss >> 20, process.num_threads()
        return Sample(day, memory, threads, process.num_fds(), rows, hub.log.stat().st_size)


def rows_of(file: Path) -> Iterator[tuple[str, int]]:
    """The tables of a database that are this package's, with their numbers of rows."""
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
        query = "select name from sqlite_master where type = 'table' and name not like 'sqlite_%'"
        for (name,) in database.execute(query).fetchall():
            if name.startswith("gpuspawner_") or file.name == "sessions.sqlite":
                yield name, database.execute(f'select count(*) from "{name}"').fetchone()[0]  # noqa: S608


@dataclass(frozen=True)
class Life:
    """The ninety days."""

    site: Site
    samples: tuple[Sample, ...]
    ends: tuple[timedelta, ...]
    """After which servers end that were started five minutes before the clocks changed."""
    starts: int
    process: int
    """The hub's process id at the beginning."""


@pytest.fixture(scope="module")
def life(needs_slurm: None, public_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    """A hub after ninety days."""
    clock = Clock(public_folder / "clock")
    with ExitStack() as stack:
        slurm = stack.enter_context(ClockSlurm(public_folder / "long", clock))
        folder = tmp_path_factory.mktemp("hub")
        offered = profiles(slurm="partition: batch, cpus: 2")
        hub = new_hub(slurm, folder, lines=CONFIG + LINES, profiles=offered)
        with closing(sqlite3.connect(folder / "hub.sqlite")) as database:
            database.executescript(DATABASE.read_text())
        stack.enter_context(hub)
        assert hub.process is not None
        site = Site(hub, slurm, "batch", findings=("clock-differs",))  # check goes by this machine's clock
        people = [f"p{number:03}" for number in range(PEOPLE)]
        process, samples, ends, starts = hub.process.pid, list[Sample](), list[timedelta](), 0
        with ThreadPoolExecutor(A_DAY) as pool:
            for day in range(1, DAYS + 1):
                today = [people[((day - 1) * A_DAY + number) % PEOPLE] for number in range(A_DAY)]
                starts += sum(pool.map(lambda user: starts_server(hub, user), today))
                list(pool.map(hub.end, today[::2]))
                evening, morning = BEGIN + timedelta(days=day) - HALF_DAY, BEGIN + timedelta(days=day)
                for moment in (evening, *(night for night in NIGHTS if evening < night < morning), morning):
                    clock.set(moment)
                    wait_until(partial(is_quiet_at, moment, slurm, hub), hub.log_end)
                    if moment in NIGHTS:
                        ends_at = hub.spawn("owl", {"profile": "main"})["ends_at"]
                        ends.append(datetime.fromisoformat(ends_at) - moment)
                if day in MEASURED:
                    samples.append(sample(hub, day))
                if day % 14 == 0:
                    slurm.restart_controller()
        yield Life(site, tuple(samples), tuple(ends), starts, process)


def starts_server(hub: HubProcess, user: str) -> bool:
    """Start a server, and say whether it is ready."""
    return "job_id" in hub.spawn(user, {"profile": "main"})


def is_quiet_at(moment: datetime, slurm: PrivateSlurm, hub: HubProcess) -> bool:
    """Whether slurmctld and the hub have this time, and answer, and all servers have ended.

    At a jump both close connections that are older than they allow.
    """
    with suppress(SlurmFailed):
        [as_of] = re.findall(r"Configuration data as of (\S+)", slurm.run("scontrol", "show", "config"))
        health = requests.get(f"{hub.url}/hub/health", timeout=10)
        times = (datetime.fromisoformat(as_of).replace(tzinfo=ZONE), parsedate_to_datetime(health.headers["Date"]))
        servers = hub.api("GET", "/users?state=active")
        return health.ok and min(times) >= moment and servers.ok and servers.json() == []
    return False


@pytest.fixture(scope="module")
def site(life: Life) -> Site:
    """The main job is run on the last day."""
    return life.site


def test_everybody_has_had_a_server_of_one_hub_process(life: Life) -> None:
    """It has not ended meanwhile."""
    assert life.site.hub.process is not None
    assert life.site.hub.process.pid == life.process
    assert os.path.exists(f"/proc/{life.process}")  # noqa: PTH110
    assert life.starts == DAYS * A_DAY


def test_servers_have_their_time_when_the_clocks_change(life: Life) -> None:
    """The end that is shown is that of Slurm, ten minutes later by any clock."""
    time, minute = timedelta(minutes=10), timedelta(minutes=1)
    assert [time <= end < time + 2 * minute for end in life.ends] == [True, True], life.ends


def test_memory_threads_and_open_files_are_bounded(life: Life) -> None:
    """When everybody has come once, they do not grow."""
    first, _, last = life.samples
    print(*life.samples, sep="\n")
    assert last.memory <= first.memory * 1.15, life.samples
    assert last.threads <= first.threads + 2, life.samples
    assert last.files <= first.files + 4, life.samples


def test_tables_have_no_more_rows_than_starts_or_people(life: Life) -> None:
    """Those that are kept for half a year or longer have a row for a start at most."""
    assert [name for sample in life.samples for name, rows in sample.rows.items() if rows > life.starts + 2] == []


def test_the_log_grows_with_what_happens(life: Life) -> None:
    """As much is written in the first half of the time that is measured as in the second, but for some."""
    first, second, last = life.samples
    assert (last.log - second.log) <= (second.log - first.log) * 1.3, life.samples


class TestMainJob(MainJob):
    """The main job, on the last day."""
