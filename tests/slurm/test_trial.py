"""When Slurm would start a job that is not submitted, as reported by three versions."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.errors import SlurmOutputError
from jupyterhub_gpuspawner.slurm.squeue import WillRun, parse_trial
from tests.slurm.recorded import VERSIONS, Recorded, all_recorded, recorded

answered = [answer for area in ("test_only", "cluster") for answer in all_recorded(area) if "Job " in answer.stderr]


@pytest.mark.parametrize("answer", answered, ids=lambda answer: f"{answer.version}-{answer.name}")
@pytest.mark.usefixtures("utc")
def test_every_recorded_start_is_read(answer: Recorded) -> None:
    """The start is during the recordings or, for a job that has none, centuries ahead; the nodes are in a partition."""
    told = parse_trial(answer.stderr)
    centuries_ahead = answer.name in ("downp", "noroot")
    assert (told.starts_at > 12_000_000_000) is centuries_ahead
    assert told.starts_at > 1_795_000_000
    assert told.cpus >= len(told.nodes) >= 1
    assert told.partition in ("batch", "debug", "downp", "gpu", "noroot")


@pytest.mark.parametrize(
    ("version", "start"), [("22.05", 1795274250.0), ("24.11", 1795274454.0), ("26.05", 1795274477.0)]
)
def test_whole_answer_of_each_version(version: str, start: float) -> None:
    """The hub sets SLURM_TIME_FORMAT=%s, so the start is in epoch seconds."""
    assert parse_trial(recorded(version, "cluster", "test_later").stderr) == WillRun(start, ("g1",), 1, "gpu")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.usefixtures("utc")
def test_job_of_two_nodes(version: str) -> None:
    """The nodes are listed by name."""
    assert parse_trial(recorded(version, "test_only", "later").stderr).nodes == ("g1", "g2")


@pytest.mark.parametrize(
    "stderr", ["", "sbatch: Job 7 to start at N/A using 1 processors on nodes c1 in partition x\n"]
)
def test_answer_without_a_start_is_odd(stderr: str) -> None:
    """An answer without a start is an error."""
    with pytest.raises(SlurmOutputError) as caught:
        parse_trial(stderr)
    assert caught.value.raw == stderr
