"""A server's use on its card: the line of each GPU, and the same in words."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

import pytest

from jupyterhub_gpuspawner.extensions.usage import card
from jupyterhub_gpuspawner.extensions.usage.card import GpuCard, in_a_line, usage_card
from jupyterhub_gpuspawner.extensions.usage.node.summary import GpuUse, UsageSummary
from jupyterhub_gpuspawner.extensions.usage.use import Use
from jupyterhub_gpuspawner.hub.extension import Place
from jupyterhub_gpuspawner.hub.spawners.server import Server
from jupyterhub_gpuspawner.wire.documents import PlacedGpu, PlacementDocument

BUSY = GpuUse(0, "GPU-a", None, 83.0, 60.0, 99.0, 10, 40960, 21504, 30000, 2, 240.0, 7e4)
IDLE = replace(BUSY, utilization=0.0, utilization_mean=0.0, utilization_max=0.0, memory_used_mib=0, processes=0)
UNKNOWN = replace(BUSY, utilization=None, utilization_mean=None, utilization_max=None, utilization_samples=0)
MIG = GpuUse(1, "MIG-b", "1g.5gb", None, None, None, 0, 4864, 1228, 1228, 1)
NOW = 10_000.0


def use(at: float, *gpus: GpuUse, seconds: float = 300.0) -> Use:
    """A summary that came at this time."""
    return Use(at, UsageSummary(seconds=seconds, gpus=gpus, cores=3.24, memory_mib=2048))


HAS = PlacementDocument(
    gpus=(PlacedGpu(0, "GPU-a", name="A100", memory_mib=40960), PlacedGpu(1, "MIG-b", mig="1g.5gb", memory_mib=4864)),
    cpus="0-3",
    memory_mib=8192,
)


def test_a_gpu_is_told_in_a_line_and_a_table() -> None:
    """Now from the last summary; the mean of the hour by samples; what is used of what the server has."""
    shown = usage_card((use(NOW - 330, IDLE), use(NOW - 30, BUSY)), now=NOW, placement=HAS)

    assert shown is not None
    [gpu] = shown.gpus
    assert (shown.at, shown.host, shown.simulated) == (
        NOW - 30,
        (("CPUs", "3.2 of 4", 81), ("memory", "2.0 of 8 GiB", 25)),
        False,
    )
    assert replace(gpu, rows=(), steps=()) == GpuCard(
        "GPU 0",
        "A100, 40 GB",
        "83\u00a0%",
        "21 of 40 GB",
        53,
        "2 processes",
        "used 30 % on average, at most 99 %.",
        (),
    )
    assert gpu.rows == (
        (NOW - 330, "0\u00a0%", "0\u00a0%", "29 of 40 GB"),
        (NOW - 30, "60\u00a0%", "99\u00a0%", "29 of 40 GB"),
    )


def test_unknown_is_said_and_never_zero() -> None:
    """A MIG device without GPM: memory and processes are known."""
    shown = usage_card((use(NOW, MIG),), now=NOW, placement=HAS)

    assert shown is not None
    [gpu] = shown.gpus
    assert gpu == GpuCard(
        "a slice of GPU 1",
        "GPU slice, 5 GB",
        "use unknown",
        "1.3 of 5 GB",
        25,
        "1 process",
        "use unknown for the whole time.",
        rows=((NOW, "use unknown", "use unknown", "1.3 of 5 GB"),),
    )


def test_the_line_of_the_hour_has_a_gap_where_nothing_is_known() -> None:
    """What is older is cut off; what nobody has sent, and what is unknown, is none."""
    shown = usage_card((use(NOW - 3500, BUSY, seconds=600), use(NOW - 900, UNKNOWN), use(NOW, BUSY)), now=NOW)

    assert shown is not None
    assert shown.gpus[0].steps == (60.0, *(None,) * 21, 60.0, 60.0)
    assert shown.gpus[0].description == "used 60 % on average, at most 99 %."


def test_before_the_first_summary_the_card_has_the_same_lines() -> None:
    """So that nothing moves when it comes."""
    before, after = (usage_card(usage, now=NOW, placement=HAS) for usage in ((), (use(NOW, BUSY, MIG),)))

    assert before is not None
    assert after is not None
    assert [gpu.name for gpu in before.gpus] == [gpu.name for gpu in after.gpus] == ["GPU 0", "a slice of GPU 1"]
    assert [name for name, *_ in before.host] == [name for name, *_ in after.host] == ["CPUs", "memory"]
    assert (before.at, before.gpus[0].now, before.host[1]) == (
        None,
        "\N{EN DASH}",
        ("memory", "\N{EN DASH} of 8 GiB", 0),
    )


def test_a_line_for_the_course_page() -> None:
    """Each GPU in order."""
    assert in_a_line(()) == in_a_line((use(NOW),)) == ""
    assert in_a_line((use(NOW, BUSY),)) == "GPU 83\u00a0%"
    assert in_a_line((use(NOW, BUSY, MIG),)) == "GPU 83\u00a0%, use unknown"


def test_slices_of_one_gpu_have_names_of_their_own() -> None:
    """By their numbers, as ``nvidia-smi -L`` counts them; an older launcher does not send these."""
    slices = (replace(MIG, uuid=f"MIG-{number}", mig_device=number) for number in (0, 2, None))
    shown = usage_card((use(NOW, *slices),), now=NOW)

    assert shown is not None
    assert [gpu.name for gpu in shown.gpus] == ["slice 0 of GPU 1", "slice 2 of GPU 1", "a slice of GPU 1"]


STARTED = {"2026-05-04T09:35:00Z": "", "2026-05-04T08:00:00Z": "in its last hour "}


@pytest.mark.parametrize(("started_at", "when"), STARTED.items())
def test_a_server_that_is_stopped_says_what_it_used(
    monkeypatch: pytest.MonkeyPatch, started_at: str, when: str
) -> None:
    """Of its last hour, where it ran for longer."""
    at = datetime(2026, 5, 4, 10, 0, tzinfo=timezone.utc).timestamp()
    monkeypatch.setattr("time.time", lambda: at)
    summary = UsageSummary(gpus=(replace(BUSY, utilization_mean=82.4),), memory_max_mib=2150)
    monkeypatch.setattr(card, "usage_of", lambda _spawner: (Use(at, summary),))
    placement = PlacementDocument(gpus=(PlacedGpu(0, "GPU-a"),), started_at=started_at)
    part, hour = card.parts_of(None, Server(ready=True, placement=placement))

    said = "its GPU was used 82\u00a0% on average, and at most 2.1 GiB of memory was in use"
    assert hour.place is Place.BELOW
    assert (part.at_end, part.brief, part.version) == (f"{when}{said}", "GPU 83\u00a0%", at)


def test_a_server_of_whose_use_nothing_is_known_has_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is drawn, and nothing is said."""
    monkeypatch.setattr(card, "usage_of", lambda _spawner: ())

    assert list(card.parts_of(None, Server(ready=True))) == []


@pytest.mark.parametrize(
    ("interval", "sentence"),
    [
        (30.0, "It is measured every 30 s and sent every 5 min."),
        (6.0, "It is measured every 6 s and sent every 1 min."),
        (0.0, ""),
    ],
)
def test_how_often_it_is_measured_is_as_it_was(interval: float, sentence: str) -> None:
    """As the last summary says, which a site may have changed; not known of one that does not say."""
    summary = UsageSummary(seconds=300.0, interval=interval, gpus=(BUSY,))
    shown = usage_card((Use(NOW, summary),), now=NOW)

    assert shown is not None
    assert shown.measured == sentence
