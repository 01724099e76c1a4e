"""Each fault of the hub's database, ended and used again: afterwards every write succeeds, and nothing is left pending.

The faults are those of a real file system and a real Postgres. During each the hub opens connections and is asked for
changes; that changes are refused meanwhile is the business of ``test_unwritable_database``.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.demo.hub import HubProcess, server_path
from tests.fixtures.hubs import StartHub
from tests.fixtures.postgres import PrivatePostgres, about_sqlite
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

CONFIG = """
c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 0, "slow_stop_timeout": 0}  # REST answers at once
c.JupyterHub.concurrent_spawn_limit = 0
c.JupyterHub.active_server_limit = 0
c.JupyterHub.db_url = URL
c.JupyterHub.db_kwargs = {"connect_args": {"timeout": 0.1}}
for role in c.JupyterHub.load_roles:
    role["scopes"] += ["admin-ui", "tokens"]
"""
NONE, AGAIN = "The hub's database takes no changes", "The hub's database takes changes again"
WRITES = 40
"""Changes after a fault: several for each connection that the hub may have."""
NUMBERS = count()


@pytest.fixture(scope="module")
def disk(public_folder: Path) -> Iterator[Path]:
    """A separate file system."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    folder = public_folder / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(scope="module", params=["delete", pytest.param("wal", marks=pytest.mark.nightly)])
def hub(request: pytest.FixtureRequest, start_light_hub: StartHub, disk: Path) -> Iterator[HubProcess]:
    """A hub whose database is a file on that file system, with this ``journal_mode``."""
    file = disk / "hub.sqlite"
    with closing(sqlite3.connect(file)) as database:
        database.execute(f"PRAGMA journal_mode = {request.param}")
    hub = start_light_hub(lines=CONFIG.replace("URL", repr(f"sqlite:///{file}")))
    yield hub
    hub.stop()
    for left in disk.iterdir():
        left.unlink()


@contextmanager
def _undone(*command: str, by: tuple[str, ...]) -> Iterator[None]:
    subprocess.run(command, check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(by, check=True, capture_output=True)


@contextmanager
def read_only_file_system(file: Path) -> Iterator[None]:
    """For whoever opens a file from now on; the kernel lets no mount become read-only under those that are open."""
    folder = str(file.parent)
    with _undone("mount", "--bind", folder, folder, by=("umount", "--lazy", folder)):
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
        yield


def read_only_file(file: Path) -> AbstractContextManager[None]:
    """Nobody may open it for writing; for root, whom no mode hinders, by its attribute."""
    return _undone("chattr", "+i", str(file), by=("chattr", "-i", str(file)))


def read_only_folder(file: Path) -> AbstractContextManager[None]:
    """The file may be written, and its journal cannot be made."""
    return _undone("chattr", "+i", str(file.parent), by=("chattr", "-i", str(file.parent)))


@contextmanager
def full_disk(file: Path) -> Iterator[None]:
    """No byte is left."""
    fill = file.with_name("fill")
    subprocess.run(["dd", "if=/dev/zero", f"of={fill}"], check=False, capture_output=True)
    try:
        yield
    finally:
        fill.unlink()


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Another program has begun a change and does not end it; not even reads succeed."""
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield


@contextmanager
def moved_away(file: Path) -> Iterator[None]:
    """Its name is missing, and comes back."""
    away = file.rename(file.with_name("away"))
    try:
        yield
    finally:
        away.rename(file)


@contextmanager
def replaced(file: Path) -> Iterator[None]:
    """Another file of the same content has its name from now on, as after a restored backup."""
    copy = Path(shutil.copy(file, file.with_name("copy")))
    file.unlink()
    try:
        yield
    finally:
        copy.rename(file)


FAULTS: dict[str, Callable[[Path], AbstractContextManager[None]]] = {
    "the file is read-only": read_only_file,
    "the file system is read-only": read_only_file_system,
    "the folder is read-only": read_only_folder,
    "the disk is full": full_disk,
    "another process has locked the file": locked,
    "the file is moved away": moved_away,
    "the file is replaced by its copy": replaced,
}

FIRST, *OTHERS = FAULTS
"""The first is the one that people have met; tests of the others are long."""


def write(hub: HubProcess, _: int) -> int:
    """The status of a change of JupyterHub's own: a token is issued."""
    return hub.api("POST", "/users/uma/tokens", {"note": "a test"}).status_code


def read(hub: HubProcess, _: int) -> int:
    """The status of a page for which the hub reads its database in a thread, on another connection."""
    return hub.api("GET", "/gpuspawner/fleet").status_code


def at_once(request: Callable[[HubProcess, int], int], hub: HubProcess, number: int) -> list[int]:
    """The statuses of so many requests, eight at a time."""
    with ThreadPoolExecutor(8) as threads:
        return list(threads.map(lambda index: request(hub, index), range(number)))


def use_meanwhile(hub: HubProcess, stopped: str, asked: str) -> bool:
    """What people do during a fault, which may fail; whether the hub has taken the stop of the first one's server.

    The last connections are opened by readers alone.
    """
    at_once(write, hub, 8)
    stop = hub.api("DELETE", server_path(stopped))
    hub.api("POST", server_path(asked), {"profile": "light"})
    at_once(read, hub, 16)
    return stop.ok


def check_that_all_is_well(hub: HubProcess, log_before: int, stopped: str, asked: str, *, has_stopped: bool) -> None:
    """Every write succeeds, and servers start and stop; those of the fault's time have done so, or can."""

    def is_known_to_be_over() -> bool:
        """A fault that only those met who open a file may have stood in nobody's way."""
        log = hub.log.read_text()[log_before:]
        return log.rfind(AGAIN) >= log.rfind(NONE)

    wait_until(is_known_to_be_over, hub.log_end, seconds=60)

    assert at_once(write, hub, WRITES) == [201] * WRITES, hub.log_end(200)
    for user in (stopped, asked):
        wait_until(lambda user=user: not (hub.server(user) or {}).get("pending"), hub.log_end, seconds=60)  # type: ignore[misc]
    if has_stopped:
        assert hub.server(stopped) is None
    else:
        hub.end(stopped)
    hub.spawn(stopped, {"profile": "light"})
    for user in (stopped, asked):
        hub.end(user)


def before_a_fault(hub: HubProcess) -> tuple[str, str]:
    """Two users, of whom the first has a server."""
    number = next(NUMBERS)
    stopped, asked = f"sid{number}", f"ada{number}"
    for user in ("uma", asked):
        hub.api("POST", f"/users/{user}")
    hub.spawn(stopped, {"profile": "light"})
    return stopped, asked


@about_sqlite
@pytest.mark.parametrize("fault", [FIRST, *(pytest.param(fault, marks=pytest.mark.nightly) for fault in OTHERS)])
def test_after_a_fault_of_the_file_every_write_succeeds(hub: HubProcess, disk: Path, fault: str) -> None:
    """Connections that were opened meanwhile, to a file that could not be written, are used no more."""
    users = before_a_fault(hub)
    log_before = len(hub.log.read_text())

    with FAULTS[fault](disk / "hub.sqlite"):
        has_stopped = use_meanwhile(hub, *users)

    check_that_all_is_well(hub, log_before, *users, has_stopped=has_stopped)


# --- the same with Postgres --------------------------------------------------------------------------


def end_connections(postgres: PrivatePostgres) -> None:
    """The server closes each connection of the hub's."""
    postgres.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'jupyterhub'")


@contextmanager
def ended_connections(postgres: PrivatePostgres) -> Iterator[None]:
    """Those of the beginning; others can be opened at once."""
    end_connections(postgres)
    yield


@contextmanager
def read_only_database(postgres: PrivatePostgres) -> Iterator[None]:
    """Connections that are opened now change nothing, not even later, as after a failover to what is no primary."""
    postgres.execute("ALTER DATABASE jupyterhub SET default_transaction_read_only = on")
    end_connections(postgres)
    try:
        yield
    finally:
        postgres.execute("ALTER DATABASE jupyterhub RESET default_transaction_read_only")


@contextmanager
def refused_connections(postgres: PrivatePostgres) -> Iterator[None]:
    """Nobody may connect, as while the password is another."""
    postgres.execute("ALTER DATABASE jupyterhub ALLOW_CONNECTIONS false")
    end_connections(postgres)
    try:
        yield
    finally:
        postgres.execute("ALTER DATABASE jupyterhub ALLOW_CONNECTIONS true")


@contextmanager
def too_many_connections(postgres: PrivatePostgres) -> Iterator[None]:
    """Others have all that the server allows."""
    import psycopg

    with ExitStack() as stack:
        first = stack.enter_context(postgres.connected())
        first.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'jupyterhub'")
        with suppress(psycopg.OperationalError):
            while True:
                stack.enter_context(postgres.connected())
        yield


FAULTS_OF_POSTGRES: dict[str, Callable[[PrivatePostgres], AbstractContextManager[None]]] = {
    "it is stopped": PrivatePostgres.away,
    "it ends all connections": ended_connections,
    "it is read-only": read_only_database,
    "it refuses connections": refused_connections,
    "others have all connections": too_many_connections,
}


@pytest.fixture(scope="module")
def hub_with_postgres(start_light_hub: StartHub, postgres: PrivatePostgres) -> Iterator[HubProcess]:
    """A hub whose database is in Postgres."""
    lines = CONFIG.replace("URL", repr(postgres.url)).replace('{"timeout": 0.1}', "{}")
    hub = start_light_hub(lines=lines)
    yield hub
    hub.stop()


@pytest.mark.nightly
@pytest.mark.parametrize("fault", FAULTS_OF_POSTGRES)
def test_after_a_fault_of_postgres_every_write_succeeds(
    hub_with_postgres: HubProcess, postgres: PrivatePostgres, fault: str
) -> None:
    """As with a file."""
    hub = hub_with_postgres
    users = before_a_fault(hub)
    log_before = len(hub.log.read_text())

    with FAULTS_OF_POSTGRES[fault](postgres):
        has_stopped = use_meanwhile(hub, *users)

    check_that_all_is_well(hub, log_before, *users, has_stopped=has_stopped)
