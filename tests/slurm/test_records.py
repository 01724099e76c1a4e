"""Fields, absent values and times in Slurm's answers."""

from __future__ import annotations

import time

import pytest

from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.slurm.text import Layout, epoch, fields, present, words
from tests.slurm.recorded import VERSIONS, all_recorded, recorded


@pytest.mark.parametrize("text", ["", " ", "(null)", "N/A", "n/a", "None", "NONE", "Unknown", None])
def test_words_for_nothing_are_nothing(text: str | None) -> None:
    """Slurm's various texts for an absent value are read as absent."""
    assert (present(text), words(text), epoch(text)) == ("", (), None)


def test_record_falls_apart_into_fields_with_blanks_in_their_values() -> None:
    """A value ends where the next ``Key=`` begins; the first of two equal keys counts."""
    line = "NodeName=g1 OS=Linux 6.1 #1 SMP  ReqB:S:C:T=0:0 CPUs/Task=1 AllocTRES= Reason=bad PSU State=IDLE"
    assert fields(line + " NodeName=evil") == {
        "NodeName": "g1",
        "OS": "Linux 6.1 #1 SMP",
        "ReqB:S:C:T": "0:0",
        "CPUs/Task": "1",
        "AllocTRES": "",
        "Reason": "bad PSU",
        "State": "IDLE",
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_gives_epoch_seconds_when_asked_for_them(version: str) -> None:
    """With ``SLURM_TIME_FORMAT=%s`` start and end are seconds since the epoch, one hour apart."""
    _, start, end, _ = recorded(version, "squeue", "time_format").stdout.strip().split("|")
    assert (epoch(end) or 0) - (epoch(start) or 0) in (3600.0, 3564.0)
    assert start.isdigit()


@pytest.mark.usefixtures("utc")
def test_standard_form_is_local_time() -> None:
    """If Slurm prints its standard format nevertheless, it is read in the hub's time zone."""
    assert epoch("2026-11-21T10:14:49") == 1795256089.0


@pytest.mark.usefixtures("utc")
def test_standard_form_follows_the_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same text means a time five hours later in New York."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    assert epoch("2026-11-21T10:14:49") == 1795256089.0 + 5 * 3600


def test_odd_time_is_refused() -> None:
    """An invalid time is a malformed answer, and the error quotes it."""
    with pytest.raises(SlurmOutputError) as caught:
        epoch("next tuesday")
    assert caught.value.raw == "next tuesday"


def test_list_of_words_and_everyone() -> None:
    """``ALL`` means no limit for fields that use it so."""
    assert words("a,b") == ("a", "b")
    assert words("ALL", everyone="ALL") == ()


ROW = ("NodeName", "State", "CPUTot", "CPUEfctv", "Gres", "GresUsed", "ActiveFeatures", "Partitions", "OS", "Reason")


@pytest.mark.parametrize("version", VERSIONS)
def test_layout_of_an_answer_gives_the_texts_that_each_line_has(version: str) -> None:
    """Whatever the first lines of the answer look like, every recorded line is read as if it were alone."""
    lines = [
        line
        for area in ("scontrol", "cluster", "hub")
        for answer in all_recorded(area, version=version)
        for line in answer.stdout.splitlines()
        if line.startswith("NodeName=")
    ]
    layout = Layout(ROW)
    assert len(lines) > 20
    assert [layout.row(line) for line in lines] == [tuple(fields(line).get(key, "") for key in ROW) for line in lines]


@pytest.mark.parametrize(
    "line",
    [
        "NodeName=n2 State=IDLE CPUTot=4 Gres= Reason=a  State=DOWN",
        "NodeName=n2 State=IDLE  CPUTot=4 Gres=x y Reason=not plugged in",
        "NodeName=n2 State=IDLE CPUTot=4 Gres=a =b Reason=c=d e=f",
        "NodeName=n2 State=IDLE CPUTot=4 Gres=gpu:2 Reason=two\nlines State=DOWN",
        "NodeName=n2 State=IDLE State=DOWN CPUTot=4 Gres=gpu:2 Reason=none",
        "NodeName=n2 CPUTot=4 State=IDLE Gres=gpu:2 Reason=none",
        "NodeName=n2 State=IDLE CPUTot=4",
        "NodeName=n2 State=IDLE CPUTot=4 Gres=gpu:2 Reason=none Comment=State=DOWN NodeName=n3",
        " NodeName=n2 State=IDLE CPUTot=4 Gres=gpu:2\tReason=none",
        "State=IDLE",
        "",
    ],
)
def test_line_that_differs_from_those_before_it_is_read_as_it_is(line: str) -> None:
    """Text that imitates a field, or fields in another order, never gets another value than without the first line."""
    layout = Layout(ROW)
    layout.row("NodeName=n1 State=IDLE CPUTot=4 Gres=gpu:2 Reason=none")
    assert layout.row(line) == layout.row(line) == tuple(fields(line).get(key, "") for key in ROW)
