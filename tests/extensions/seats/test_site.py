"""What a twin is asked, made from what the one reader of Slurm's answers has read."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extensions.seats import controller
from jupyterhub_gpuspawner.extensions.seats.devices import gres_conf, refused_line
from jupyterhub_gpuspawner.extensions.seats.site import (
    PLACEMENT_OPTIONS,
    Request,
    question_of,
    reservation_at,
)
from jupyterhub_gpuspawner.extensions.seats.twin import site_from
from jupyterhub_gpuspawner.extensions.seats.what_if import with_gres_conf
from jupyterhub_gpuspawner.slurm.sbatch_options import DECIDES, Decides
from jupyterhub_gpuspawner.slurm.scontrol import PARTITION_PARAMETERS, parse_nodes
from jupyterhub_gpuspawner.slurm.snapshot import Reservation
from tests.extensions.seats.site_answers import NOW, config, job, node, partition, reservation, site
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


REPEATED = {
    # 23 October 2026 is a Friday: (flag, the record's day, the day that is asked about, the day of the reservation)
    "a weekday is followed by Monday": ("WEEKDAY", 23, 24, 26),
    "on Monday it is": ("WEEKDAY", 23, 26, 26),
    "from Tuesday to Wednesday": ("WEEKDAY", 20, 21, 21),
    "a weekend is not on Monday": ("WEEKEND", 24, 26, 31),
    "from Saturday to Sunday": ("WEEKEND", 24, 25, 25),
    "weeks later": ("WEEKEND", 3, 28, 31),
}


@pytest.mark.usefixtures("in_berlin")
@pytest.mark.parametrize(("flag", "record", "asked", "found"), REPEATED.values(), ids=REPEATED)
def test_a_reservation_of_some_days_is_repeated_on_these_alone(flag: str, record: int, asked: int, found: int) -> None:
    """At the same hour, with the days that are named."""

    def at(day: int, hour: int) -> float:
        return datetime(2026, 10, day, hour).astimezone().timestamp()

    then = reservation_at(Reservation("r", at(record, 10), at(record, 12), flags=frozenset({flag})), at(asked, 9))

    assert (then.start, then.end) == (at(found, 10), at(found, 12))


GRES_CONF = {
    "an older name of cores": ("Name=gpu File=/dev/nvidia0 CPUs=0-11", {"Cores": "0-11"}),
    "in capitals": ("NAME=gpu FILE=/dev/nvidia0 COREs=0-11", {"Cores": "0-11"}),
    "a line that goes on": ("Name=gpu \\\n  File=/dev/nvidia0 \\\n  Cores=0-11", {"Cores": "0-11"}),
    "both names": ("Name=gpu File=/dev/nvidia0 Cores=0-11 CPUs=5", {"Cores": "0-11"}),
    "a comment": ("Name=gpu File=/dev/nvidia0 # CPUs=3", {}),
}


@pytest.mark.parametrize(("text", "cores"), GRES_CONF.values(), ids=GRES_CONF)
def test_gres_conf_is_read_as_slurm_reads_it(text: str, cores: dict[str, str]) -> None:
    """Whatever its keys are called, and wherever its lines end."""
    assert gres_conf(text, ["g1"]) == {"g1": [{"Name": "gpu", "File": "/dev/nvidia0", **cores}]}


@pytest.mark.parametrize("cores", ["0-11,24-35", "12-24", "x"])
def test_lines_that_slurm_refuses_are_not_used_and_that_is_said(cores: str) -> None:
    """The number of a thread is none of a core: this node has 24."""
    of = site(
        [node("g1", "gpu:k80:1")],
        [partition("gpu", "g1")],
        gres_conf=f"Name=gpu Type=k80 File=/dev/nvidia0 Cores={cores}",
    )
    question = question_of(of, [], at=NOW)

    assert question.document["gres"] == [{"NodeName": "g[1]", "Name": "gpu", "Type": "k80", "File": "/dev/nvidia[0-0]"}]
    assert question.notes == (
        f"Slurm refuses gres.conf for node g1: Cores={cores} of /dev/nvidia0, and the node has cores 0-23; its lines "
        "are not used.",
    )
    with pytest.raises(ConfigError, match="Slurm refuses it for node g1"):
        with_gres_conf(of, f"Name=gpu Type=k80 File=/dev/nvidia0 Cores={cores}")


@pytest.mark.parametrize(
    ("version", "cores", "fault"),
    [
        ("22.05.8", "0-3", ""),
        ("24.11.5", "0-11", ""),
        ("26.05.0", "12-23", ""),
        (
            "24.11.5",
            "0-3",
            "Cores=0-3 of /dev/nvidia0 is a part of a socket of 12 cores, and it takes whole ones alone",
        ),
        (
            "24.11.5",
            "0-13",
            "Cores=0-13 of /dev/nvidia0 is a part of a socket of 12 cores, and it takes whole ones alone",
        ),
    ],
)
def test_newer_versions_take_the_cores_of_whole_sockets_alone(version: str, cores: str, fault: str) -> None:
    """Slurm 24.11 drains a node that registers with others, and without slurmd refuses jobs for its GPUs."""
    (of,) = parse_nodes(node("g1", "gpu:k80:1"))
    assert refused_line(of, [{"Name": "gpu", "File": "/dev/nvidia0", "Cores": cores}], version) == fault


@pytest.mark.parametrize("more", ["Exclusive=TOPO", "Exclusive=NODE", "Exclusive=USER", "ExclusiveTopo=YES"])
def test_whole_nodes_of_newer_versions_reach_the_twin(more: str) -> None:
    """Whatever the version calls it."""
    of = site([node("g1")], [partition("gpu", "g1", more)])
    assert question_of(of, [], at=NOW).document["partitions"][0]["OverSubscribe"] == "EXCLUSIVE"


def test_what_no_question_may_have_is_left_out_and_does_not_end_every_twin() -> None:
    """A name with a slash, say; and that is said."""
    of = site(
        [node("g1"), node("g/2")],
        [partition("gpu", "g1"), partition("a/b", "g1")],
        jobs=job(7, "g1", "0", partition="a/b"),
    )
    question = question_of(of, [Request("ada", ("-c 2",))], at=NOW)

    assert controller.checked(json.dumps(question.document).encode())
    assert [one["PartitionName"] for one in question.document["partitions"]] == ["gpu"]
    assert [note.rpartition(": ")[2] for note in question.notes] == ["g/2.", "a/b.", "1 of the jobs."]
