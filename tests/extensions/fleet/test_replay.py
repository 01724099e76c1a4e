"""What lines of gres.conf would have given to a node's servers of the past."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyterhub_gpuspawner.extensions.fleet.replay import cases
from jupyterhub_gpuspawner.extensions.records.record import SessionRecord
from jupyterhub_gpuspawner.profiles.resources import Resources

ONE = Resources(partition="gpu", gpus=1, gpu_type="k80", cpus=8, memory=4000)
CPU = Resources(partition="gpu", cpus=8, memory=4000)


def session(name: str, at: float, until: float | None, **changes: object) -> SessionRecord:
    """A server on g1 from one moment to another."""
    record = SessionRecord(
        name,
        "ada",
        allocated_at=at,
        ended_at=until,
        node="g1",
        nodes=1,
        partition="gpu",
        asked_gpus=1,
        asked_gpu_type="k80",
        asked_cpus=8,
        asked_memory_mib=4000,
    )
    return replace(record, **changes)  # type: ignore[arg-type]


STARTS = {
    "one after the other": ((session("a", 1, 2), session("b", 3, 4)), {(ONE,): 2}),
    "at the same time": (
        (session("b", 2, 9), session("a", 1, 9), session("c", 3, 9)),
        {(ONE,): 1, (ONE,) * 2: 1, (ONE,) * 3: 1},
    ),
    "one ended before the last": (
        (session("a", 1, 3), session("b", 2, 9), session("c", 4, 9)),
        {(ONE,): 1, (ONE, ONE): 2},
    ),
    "one without GPUs beside it": (
        (session("a", 1, 9, asked_gpus=None, asked_gpu_type=None), session("b", 2, 9)),
        {(CPU, ONE): 1},
    ),
    "others": (
        (
            session("a", 1, 9, node="g2"),
            session("b", 1, 9, nodes=2),
            session("c", 1, 9, asked_cpus=None),
            session("d", 1, 9, allocated_at=None),
        ),
        {},
    ),
}


@pytest.mark.parametrize(("records", "expected"), STARTS.values(), ids=STARTS.keys())
def test_a_start_is_tried_with_the_servers_that_ran_beside_it(
    records: tuple[SessionRecord, ...], expected: dict[tuple[Resources, ...], int]
) -> None:
    """In the order of their starts; servers of other nodes, of several, and without a recorded request do not count."""
    counts = {tuple(map(fields, case)): count for case, count in cases(records, "g1").items()}
    assert counts == {tuple(map(fields, case)): count for case, count in expected.items()}


def fields(resources: Resources) -> tuple[object, ...]:
    """What was requested."""
    return tuple(getattr(resources, name) for name in ("partition", "gpus", "gpu_type", "shards", "cpus", "memory"))
