"""``sbatch --test-only``: what it is asked, and that every recorded answer is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyterhub_gpuspawner.errors import SlurmOutputError, SubmitRejected
from jupyterhub_gpuspawner.extensions.availability.dry_run import WillRun, parse_trial, will_run
from tests.slurm.recorded import FOLDER, VERSIONS, Recorded, all_recorded, recorded
from tests.slurm.test_client import SCRIPT, StandIns


@pytest.fixture
def slurm(tmp_path: Path) -> StandIns:
    """An empty folder for stand-ins."""
    return StandIns(tmp_path / "bin")


@pytest.mark.parametrize("version", VERSIONS)
async def test_trial_has_one_argument_and_takes_the_script_from_stdin(
    slurm: StandIns, tmp_path: Path, version: str
) -> None:
    """Times are printed as seconds; the variables of the hub's account are passed on."""
    stem = FOLDER / version / "cluster" / "test_later"
    slurm.add(
        "sbatch",
        f"""[ "$*" = "--test-only" ] || exit 97
        cat > {tmp_path}/script; echo "$USER $SLURM_TIME_FORMAT" > {tmp_path}/env; cat {stem}.err >&2""",
    )
    trial = await will_run(slurm.client(), SCRIPT, user="alice")
    assert (trial.nodes, trial.cpus, trial.partition) == (("g1",), 1, "gpu")
    assert ((tmp_path / "script").read_text(), (tmp_path / "env").read_text()) == (SCRIPT, "alice %s\n")


@pytest.mark.parametrize(
    "answer", [a for a in all_recorded("test_only") if a.code], ids=lambda a: f"{a.version}-{a.name}"
)
async def test_every_recorded_refusal_of_a_trial_is_a_rejection(slurm: StandIns, answer: Recorded) -> None:
    """Every recorded refusal of a trial raises SubmitRejected with Slurm's message."""
    slurm.answering("sbatch", "--test-only", answer)
    with pytest.raises(SubmitRejected) as caught:
        await will_run(slurm.client(), SCRIPT)
    assert caught.value.stderr == answer.stderr.strip()


async def test_trial_of_a_site_with_wrappers(slurm: StandIns) -> None:
    """The script ``trial`` replaces sbatch; its input is only the batch script."""
    stem = FOLDER / "26.05" / "cluster" / "test_now"
    slurm.add("trial", f'[ "$#" = 0 ] && [ "$(cat)" = "$(printf "#!/bin/sh\\ntrue")" ] || exit 97; cat {stem}.err >&2')
    slurm.add("as", 'shift 2; exec "$@"')
    client = slurm.client(wrapper_dir=str(slurm.folder))
    trial = await will_run(client, "#!/bin/sh\ntrue", prefix=(f"{slurm.folder}/as", "-u", "alice"))
    assert trial.nodes == ("d1",)


answered = [
    answer for area in ("test_only", "cluster", "other") for answer in all_recorded(area) if "Job " in answer.stderr
]


@pytest.mark.parametrize("answer", answered, ids=lambda answer: f"{answer.version}-{answer.name}")
@pytest.mark.usefixtures("utc")
def test_every_recorded_start_is_read(answer: Recorded) -> None:
    """The start is during the recordings or, for a job that has none, centuries ahead; the nodes are in a partition."""
    trial = parse_trial(answer.stderr)
    centuries_ahead = answer.name in ("downp", "noroot")
    assert (trial.starts_at > 12_000_000_000) is centuries_ahead
    assert trial.starts_at > 1_795_000_000
    assert trial.cpus >= len(trial.nodes) >= 1
    assert trial.partition in ("batch", "debug", "downp", "gpu", "noroot")


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
