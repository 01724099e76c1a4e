"""Fields, absent values and times in Slurm's answers."""

from __future__ import annotations

import time

import pytest

from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.slurm.text import epoch, fields, value_or_empty, words
from tests.slurm.recorded import VERSIONS, recorded


@pytest.mark.parametrize("text", ["", " ", "(null)", "N/A", "n/a", "None", "NONE", "Unknown", None])
def test_words_for_nothing_are_nothing(text: str | None) -> None:
    """Slurm's various texts for an absent value are read as absent."""
    assert (value_or_empty(text), words(text), epoch(text)) == ("", (), None)


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
