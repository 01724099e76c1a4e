"""What the hub's database keeps of nodes."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import Engine
from sqlalchemy.pool import NullPool

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extensions.fleet import node_record
from jupyterhub_gpuspawner.extensions.fleet import store as subject
from jupyterhub_gpuspawner.extensions.fleet.health import Grant
from jupyterhub_gpuspawner.extensions.fleet.node_record import NodeRecord, merged
from jupyterhub_gpuspawner.extensions.fleet.store import (
    FleetStore,
    StoredFleet,
    forget_in_database,
    forget_reporter,
    read_database,
)
from tests.extensions.fleet.nodes import DAY, only, record, topology, view, with_gpu
from tests.fixtures.databases import disposed, new_database, with_tables
from tests.fixtures.postgres import about_sqlite

WHOLE = topology()
GRANT = Grant("7", "g1", DAY, 2, aligned=True, across=False, loss=0.0)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """A hub's database, in which JupyterHub has tables, too."""
    with disposed(with_tables(create_engine(new_database(tmp_path)))) as engine:
        with engine.begin() as connection:
            connection.execute(text("CREATE TABLE users (id INTEGER)"))
        yield engine


@pytest.fixture
def url(engine: Engine) -> str:
    """The address of the same database."""
    return engine.url.render_as_string(hide_password=False)


def test_views_are_merged_by_node_and_grants_added(engine: Engine, url: str) -> None:
    """Views of the same node make one record; a grant is kept once for each job."""
    store = FleetStore(engine)
    store.add(view("g1", only(WHOLE, 0, 1)), lambda _: GRANT)
    store.add(view("g1", WHOLE), lambda _: GRANT)
    store.add(view("g2", topology("g2")), lambda _: None)

    both = merged(record("g1", only(WHOLE, 0, 1)), view("g1", WHOLE))
    assert read_database(url) == StoredFleet((both, record("g2")), (GRANT,))
    assert (store.granted("7"), store.granted("8")) == (True, False)


def test_a_job_that_has_the_number_of_an_older_one_is_another(engine: Engine) -> None:
    """Slurm gives out its numbers again where slurmctld has lost its state."""
    store = FleetStore(engine)
    store.add(view("g1", WHOLE), lambda _: GRANT)
    before = [store.granted("7", since) for since in (DAY - 60, DAY + 60)]
    again = replace(GRANT, at=DAY + 90)
    store.add(view("g1", WHOLE, at=DAY + 90), lambda _: again)

    assert (before, store.granted("7", DAY + 60), store.read().grants) == ([True, False], True, (again,))


def test_a_late_view_does_not_replace_newer_ones(engine: Engine) -> None:
    """It is the first one of another node; its grant counts."""
    store = FleetStore(engine)
    store.add(view("g1", WHOLE), lambda _: None)
    store.add(view("g1", only(WHOLE, 0, 1), at=2 * DAY), lambda _: GRANT, late=True)
    store.add(view("g2", topology("g2")), lambda _: None, late=True)

    assert store.read() == StoredFleet((record("g1"), record("g2")), (GRANT,))


def test_a_report_without_gpus_leaves_no_record(engine: Engine) -> None:
    """Nodes without GPUs are not compared."""
    store = FleetStore(engine)
    store.add(view("c1", only(WHOLE)), lambda _: GRANT)
    assert store.read() == StoredFleet()


def test_clusters_have_nodes_and_jobs_of_the_same_names(engine: Engine, url: str) -> None:
    """What is known of one says nothing of the other."""
    cedar, juniper = FleetStore(engine, "cedar"), FleetStore(engine, "juniper")
    juniper.add(view("g1", WHOLE), lambda _: GRANT)
    cedar.add(view("g1", only(WHOLE, 0)), lambda _: None)

    assert read_database(url, cluster="juniper") == StoredFleet((record("g1"),), (GRANT,))
    assert (juniper.granted("7"), cedar.granted("7")) == (True, False)
    assert forget_in_database(url, "g1", cluster="cedar")
    assert (len(juniper.read().records), cedar.read()) == (1, StoredFleet())


def test_when_the_hub_names_clusters_what_it_knew_is_of_the_first(engine: Engine) -> None:
    """What is known of a node under the new name already is the newer."""
    FleetStore(engine).add(view("g1", WHOLE), lambda _: GRANT)
    FleetStore(engine).add(view("g2", topology("g2")), lambda _: None)
    juniper = FleetStore(engine, "juniper")
    juniper.add(view("g2", topology("g2")), lambda _: None)
    juniper.take_over()

    assert juniper.read() == StoredFleet((record("g1"), record("g2")), (GRANT,))
    assert [record.node for record in FleetStore(engine).read().records] == ["g2"]


def add(store: FleetStore, grant: Grant) -> None:
    """Add a view of the grant's node at its time, with the grant."""
    store.add(view(grant.node, topology(grant.node), at=grant.at), lambda _: grant)


def test_what_is_old_is_deleted(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes and grants last seen before the time, and grants beyond the number that is kept."""
    monkeypatch.setattr(subject, "GRANTS_AT_MOST", 2)
    store = FleetStore(engine)
    for day in range(1, 6):
        add(store, Grant(str(day), f"g{day}", day * DAY, 1))
    store.forget_old(2 * DAY)

    fleet = store.read()
    assert [stored_record.node for stored_record in fleet.records] == ["g2", "g3", "g4", "g5"]
    assert [grant.job_id for grant in fleet.grants] == ["4", "5"]


def test_what_is_old_on_any_cluster_is_deleted_and_the_other_stays(engine: Engine) -> None:
    """Also where both nodes have one name."""
    for cluster, day in (("juniper", 1), ("cedar", 3)):
        add(FleetStore(engine, cluster), Grant("7", "g1", day * DAY, 1))
    FleetStore(engine).forget_old(2 * DAY)

    fleets = {cluster: FleetStore(engine, cluster).read() for cluster in ("juniper", "cedar")}
    assert {cluster: [grant.at for grant in fleet.grants] for cluster, fleet in fleets.items()} == {
        "juniper": [],
        "cedar": [3 * DAY],
    }


def test_the_hub_can_write_while_old_nodes_are_looked_for(
    engine: Engine, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of records take seconds to read, and an SQLite database has one writer."""
    store = FleetStore(engine)
    for day in (1, 2):
        add(store, Grant(str(day), f"g{day}", day * DAY, 1))
    connect_args = {"timeout": 0} if url.startswith("sqlite") else {"options": "-c lock_timeout=1ms"}
    hub = create_engine(url, connect_args=connect_args, poolclass=NullPool)

    def forgotten(record: NodeRecord, before: float) -> NodeRecord:
        with hub.begin() as connection:
            connection.execute(text("INSERT INTO users VALUES (1)"))
        return node_record.forgotten(record, before)

    monkeypatch.setattr(subject, "forgotten", forgotten)
    store.forget_old(2 * DAY)

    assert [stored_record.node for stored_record in store.read().records] == ["g2"]


def test_a_node_is_forgotten_on_request(engine: Engine, url: str) -> None:
    """With its grants."""
    FleetStore(engine).add(view("g1", WHOLE), lambda _: GRANT)

    assert (forget_in_database(url, "g1"), forget_in_database(url, "g1")) == (True, False)
    assert read_database(url) == StoredFleet()


@about_sqlite
def test_a_database_that_no_hub_has_used_is_not_changed(tmp_path: Path) -> None:
    """The commands create neither tables nor a file."""
    (tmp_path / "hub.sqlite").touch()
    url = f"sqlite:///{tmp_path / 'hub.sqlite'}"
    assert (read_database(url), forget_in_database(url, "g1")) == (StoredFleet(), False)
    assert (tmp_path / "hub.sqlite").read_bytes() == b""
    with pytest.raises(ConfigError, match="there is no database"):
        read_database(f"sqlite:///{tmp_path / 'another.sqlite'}")
    assert not (tmp_path / "another.sqlite").exists()


@about_sqlite
def test_tables_of_before_they_named_clusters_are_left_to_the_hub(tmp_path: Path) -> None:
    """A command changes no tables; it says what does."""
    url = f"sqlite:///{tmp_path / 'hub.sqlite'}"
    with disposed(create_engine(url)) as engine, engine.begin() as connection:
        connection.execute(text("CREATE TABLE gpuspawner_fleet_nodes (node VARCHAR(255) PRIMARY KEY)"))

    with pytest.raises(ConfigError, match="Start the hub with this version"):
        read_database(url)


def test_what_another_version_wrote_is_left_out(engine: Engine, url: str) -> None:
    """Other nodes are shown all the same."""
    FleetStore(engine).add(view("g1", WHOLE), lambda _: GRANT)
    FleetStore(engine).add(view("g2", topology("g2")), lambda _: None)
    with engine.begin() as connection:
        connection.execute(text("""UPDATE gpuspawner_fleet_nodes SET record = '{"version": 9}' WHERE node = 'g1'"""))
        connection.execute(text("""UPDATE gpuspawner_fleet_grants SET facts = '{"odd": 9}'"""))

    assert read_database(url) == StoredFleet((record("g2"),), ())


@pytest.mark.parametrize(("database", "in_loop"), [("", True), ("hub.sqlite", False)])
def test_the_database_is_used_in_a_thread_unless_it_is_in_memory(tmp_path: Path, database: str, in_loop: bool) -> None:
    """A database in memory has one connection, which the hub uses at the same time."""
    url = f"sqlite:///{tmp_path / database}" if database else "sqlite://"
    with disposed(create_engine(url)) as engine:
        thread = asyncio.run(FleetStore(engine).call(threading.current_thread))
    assert (thread is threading.main_thread()) is in_loop


def test_whoever_is_forgotten_has_no_name_in_what_they_reported(engine: Engine) -> None:
    """What they saw of the node stays, as that of one person; so does a doubt."""
    store = FleetStore(engine)
    lost = with_gpu(WHOLE, 0, fault="GPU is lost", pcie_width=8)
    for user, job_topology in (("ada", WHOLE), ("bob", WHOLE), ("ada", lost)):
        store.add(replace(view("g1", job_topology), user=user), lambda _: None)
    before = store.read().records[0]
    with engine.begin() as connection:
        forget_reporter(connection, "ada")
    after = store.read().records[0]

    assert ("ada" in json.dumps(before.to_json()), "ada" in json.dumps(after.to_json())) == (True, False)
    assert (after.people, after.topology, after.people_for_doubt) == (
        ("(forgotten)", "bob"),
        before.topology,
        before.people_for_doubt,
    )
