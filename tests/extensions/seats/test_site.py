"""What a twin is asked, made from what the one reader of Slurm's answers has read."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from jupyterhub_gpuspawner.extensions.seats import controller
from jupyterhub_gpuspawner.extensions.seats.ask import site_from
from jupyterhub_gpuspawner.extensions.seats.site import PLACEMENT_OPTIONS, Request, question_of, reservation_at
from jupyterhub_gpuspawner.slurm.sbatch_options import DECIDES, Decides
from jupyterhub_gpuspawner.slurm.scontrol import PARTITION_PARAMETERS
from jupyterhub_gpuspawner.slurm.snapshot import Reservation
from tests.extensions.seats.site_answers import NOW, config, node, partition, reservation, site
from tests.slurm.recorded import VERSIONS, recorded


def test_all_options_that_a_twin_takes_decide_the_placement() -> None:
    """The controller has a list of its own, since it runs alone on a login node."""
    assert {DECIDES[name] for name in PLACEMENT_OPTIONS} == {Decides.PLACEMENT}


def test_all_parameters_of_a_partition_that_a_twin_takes_are_declared() -> None:
    """Where the one reader of partitions says how each counts; the two of JobDefaults are printed together."""
    assert {"DefCpuPerGPU", "DefMemPerGPU"} == controller.PARTITION - PARTITION_PARAMETERS


@pytest.mark.parametrize("version", VERSIONS)
def test_what_each_version_reports_makes_a_question(version: str) -> None:
    """All nodes, partitions and reservations of recorded answers, in words that the controller accepts."""
    names = ("node_a_o", "partition_a_o", "reservation_o")
    of = site_from(config(), *(recorded(version, "scontrol", name).stdout for name in names))
    question = question_of(of, [Request("ada", ("--gres=gpu:1",))], at=0.0)
    checked = controller.checked(json.dumps(question.document).encode())

    assert [line["NodeName"] for line in checked.nodes] == [node.name for node in of.nodes]
    assert [line["PartitionName"] for line in checked.partitions] == [partition.name for partition in of.partitions]
    assert sorted(question.reservations.values()) == sorted(reservation.name for reservation in of.reservations)


def test_reservations_have_names_of_their_own_whatever_those_of_the_site_are() -> None:
    """Two whose names differ in a blank alone are two."""
    lines = [reservation(name, "g1", begins_in=-60, ends_in=3600) for name in ("a b", "a_b")]
    of = site([node("g1")], [partition("gpu", "g1")], reservations="".join(lines))
    question = question_of(of, [Request("1", ('--reservation="a b"',)), Request("2", ("--reservation=x",))], at=NOW)
    own = {one["values"]["ReservationName"]: one["own"] for one in question.document["reservations"]}

    assert question.reservations == {"r1": "a b", "r2": "a_b"}
    assert own == {"r1": True, "r2": False}
    assert question.document["requests"] == [["--reservation=r1", "--array=1-1"], ["--reservation=none", "--array=1-1"]]


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The hub's clock is that of Berlin, where it is put back on 25 October 2026."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("in_berlin")
@pytest.mark.parametrize("flag", ["HOURLY", "DAILY", "WEEKLY"])
def test_a_repeated_reservation_begins_at_the_same_hour_after_the_clocks_have_changed(flag: str) -> None:
    """As Slurm moves it: by the clock, from day to day."""

    def at(day: int, hour: int) -> float:
        return datetime(2026, 10, day, hour).astimezone().timestamp()

    lesson = Reservation("lesson", at(23, 10), at(23, 11), flags=frozenset({flag}))

    now = reservation_at(lesson, at(30, 10))

    assert (now.start, now.end) == (at(30, 10), at(30, 11))
