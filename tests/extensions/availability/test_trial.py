"""Trials of a choice: limited in number, shared and cached; no exception when Slurm does not answer."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import cast

import pytest

from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError, SlurmUnavailable, SubmitRejected
from jupyterhub_gpuspawner.extensions.availability.api import (
    CONCURRENT_TRIALS,
    RETENTION_SECONDS,
    WAITING,
    Trials,
    in_the_forms_words,
    of_error,
    of_start,
    tried_partitions,
)
from jupyterhub_gpuspawner.extensions.availability.dry_run import WillRun
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.estimate import Availability, Chance, expected, not_before, starts_now
from jupyterhub_gpuspawner.slurm.process import Answer
from jupyterhub_gpuspawner.slurm.sbatch_options import directives
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot, SlurmConfig
from tests.slurm.recorded import would_start
from tests.standins.resources import resolved

NINE = datetime(2026, 3, 2, 9, 0).astimezone().timestamp()
HOUR = 3600.0
UNLESS = ", if nobody with a higher priority comes"


@pytest.mark.parametrize(
    ("after", "nodes", "chance", "sentence"),
    [
        (0, ("g3",), Chance.NOW, "starts now"),
        (-5, ("g3", "g4", "g5"), Chance.NOW, "starts now"),
        (1.7 * HOUR, ("g3",), Chance.LATER, f"expected start: within 1 h 45 min{UNLESS}"),
        (73 * HOUR, (), Chance.LATER, f"expected start: within 3 days 6 h{UNLESS}"),
    ],
)
def test_start_in_words(after: float, nodes: tuple[str, ...], chance: Chance, sentence: str) -> None:
    """When, in the words of all pages; the nodes are for scripts."""
    estimate = starts_now(NINE + after) if chance is Chance.NOW else expected(NINE + after, now=NINE)
    answer = WillRun(NINE + after, nodes, 1, "gpu")
    assert of_start(answer, now=NINE) == Availability(chance, sentence, estimate, partition="gpu", nodes=nodes)


FREE = Availability(Chance.NOW, "starts now, 3 of 4 1g.10gb free", starts_now(), taken_at=NINE - 15)
FULL = Availability(Chance.LATER, "full", taken_at=NINE - 15)
AHEAD = replace(FULL, sentence="full, 1 person ahead of you")
RESERVED = replace(FULL, sentence="not yet: reservation r starts {time}", estimate=not_before(NINE + HOUR))
LATER = Availability(
    Chance.LATER, "expected start: within 10 h", expected(NINE + 10 * HOUR, now=NINE), taken_at=NINE, nodes=("m1",)
)
SLOW = Availability(Chance.UNKNOWN, "Slurm is responding slowly")
IMMEDIATE = Availability(Chance.NOW, "starts now", starts_now(), taken_at=NINE, nodes=("m1",))
REFUSED = Availability(Chance.NEVER, "there is no such reservation", field="slurm.reservation")
NEWER = NINE + 5

WHICH_HOLDS: dict[str, tuple[Availability, Availability | None, bool, Availability]] = {
    "GPUs were taken since the snapshot": (LATER, FREE, False, LATER),
    "and others wait since before it": (LATER, FREE, True, LATER),
    "others wait for other devices, as a newer snapshot shows": (
        LATER,
        replace(FREE, taken_at=NEWER),
        True,
        replace(FREE, taken_at=NEWER),
    ),
    "nobody waits, and Slurm alone knows why it is later": (LATER, replace(FREE, taken_at=NEWER), False, LATER),
    "Slurm plans": (LATER, FULL, False, replace(LATER, sentence="full. Expected start: within 10 h")),
    "Slurm plans behind others": (
        LATER,
        AHEAD,
        True,
        replace(LATER, sentence="full, 1 person ahead of you. Expected start: within 10 h"),
    ),
    "a set time, which Slurm knows": (LATER, RESERVED, False, LATER),
    "but plans too late behind others": (LATER, RESERVED, True, RESERVED),
    "Slurm does not answer": (SLOW, AHEAD, True, AHEAD),
    "nor is it known to be full": (SLOW, FREE, True, SLOW),
    "there is no snapshot": (LATER, None, False, LATER),
    "Slurm refuses": (REFUSED, FREE, True, REFUSED),
    "both say now": (IMMEDIATE, FREE, False, replace(FREE, nodes=("m1",), taken_at=NINE)),
    "a job has ended since the snapshot": (IMMEDIATE, FULL, False, IMMEDIATE),
    "one has begun since the trial": (IMMEDIATE, replace(FULL, taken_at=NEWER), False, replace(FULL, taken_at=NEWER)),
    "now, and no snapshot": (IMMEDIATE, None, False, IMMEDIATE),
}


@pytest.mark.parametrize(("trial", "by_snapshot", "others", "answer"), WHICH_HOLDS.values(), ids=WHICH_HOLDS)
def test_the_newer_answer_says_whether_a_job_starts_now(
    trial: Availability, by_snapshot: Availability | None, others: bool, answer: Availability
) -> None:
    """Any pending job of the partition makes --test-only predict a later start, whatever devices it waits for."""
    assert in_the_forms_words(trial, by_snapshot, others_wait=others) == answer


@pytest.mark.parametrize(
    ("snapshot", "tried"),
    [
        (None, "gpu"),
        (ClusterSnapshot(), "gpu"),
        (ClusterSnapshot(config=SlurmConfig(enforces_limits_of_all=True)), "gpu,short,long"),
    ],
)
def test_a_trial_is_of_all_partitions_where_the_limits_of_each_may_refuse_the_job(
    snapshot: ClusterSnapshot | None, tried: str
) -> None:
    """The best comes first, since Slurm predicts the start in the first."""
    assert tried_partitions(resolved("short,gpu,long"), "gpu", snapshot) == tried


def test_a_start_centuries_ahead_is_never() -> None:
    """Slurm answers so for a partition that is down, or that the user's groups may not use."""
    assert of_start(WillRun(NINE + 340 * 365 * 86400, ("c1",), 1, "downp"), now=NINE) == Availability(
        Chance.NEVER,
        "partition downp is closed, or you are not allowed to use it",
        field="slurm.partition",
    )


@pytest.mark.parametrize(
    ("error", "trial"),
    [
        (
            SubmitRejected(
                "Slurm refused the job: there is no such reservation.",
                for_user="There is no such reservation.",
                field="slurm.reservation",
            ),
            Availability(Chance.NEVER, "there is no such reservation", field="slurm.reservation"),
        ),
        (SlurmUnavailable("x"), Availability(Chance.UNKNOWN, "Slurm is not responding at the moment")),
        (ConfigError("x"), Availability(Chance.UNKNOWN, "this hub cannot check in advance when a job would start")),
    ],
)
def test_refusal_and_missing_answer_in_words(error: GPUSpawnerError, trial: Availability) -> None:
    """A refusal means never; no answer, or a sudo that refuses the command, means unknown."""
    assert of_error(error) == trial


@dataclass
class Slurm:
    """A Slurm that answers trials once ``answers`` is set."""

    requests: list[str] = field(default_factory=list)
    running: int = 0
    most: int = 0
    fault: GPUSpawnerError | None = None
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    now: float = 0.0

    @property
    def installation(self) -> Slurm:
        """Its commands."""
        return self

    def wraps(self, _prefix: tuple[str, ...]) -> bool:
        """No script replaces them."""
        return False

    async def run(self, *command: str, prefix: tuple[str, ...], environment: dict[str, str], stdin: str) -> Answer:
        """The answer of sbatch."""
        user = environment["USER"]
        assert command == ("sbatch", "--test-only")
        assert (prefix, environment) == (("as", user), {"USER": user, "LOGNAME": user, "SLURM_TIME_FORMAT": "%s"})
        self.requests.append(f"{user} {' '.join(directives(stdin))}")
        self.running += 1
        self.most = max(self.most, self.running)
        await self.answers.wait()
        self.running -= 1
        if self.fault is not None:
            raise self.fault
        return Answer("sbatch", 0, "", would_start(time.time(), "g1", "gpu"))


@pytest.fixture
def slurm() -> Slurm:
    """A Slurm that answers."""
    client = Slurm()
    client.answers.set()
    return client


@pytest.fixture
def trials(slurm: Slurm) -> Trials:
    """The hub's trials."""
    return Trials(clock=lambda: slurm.now)


async def trial(trials: Trials, slurm: Slurm, user: str, gpus: int = 1, *more: str) -> Availability:
    """The trial of a user's job with ``more`` lines in its batch script."""
    lines = ["#!/bin/bash", f"#SBATCH --gpus={gpus}", *more, "", "echo", "#SBATCH --not-read"]
    return await trials.of(cast("SlurmClient", slurm), "\n".join(lines), user=user, prefix=("as", user))


async def wait_for_requests(slurm: Slurm, count: int) -> None:
    """Wait until Slurm has been asked ``count`` times."""
    while len(slurm.requests) < count:  # noqa: ASYNC110 - one loop turn after the other
        await asyncio.sleep(0)


async def test_a_click_has_the_forms_last_answer_whichever_server_it_starts(slurm: Slurm, trials: Trials) -> None:
    """As long as it is cached; nothing is asked for that."""

    def latest(*lines: str, user: str = "alice") -> Availability | None:
        return trials.latest("\n".join(["#!/bin/bash", *lines, "", "echo"]), user=user, prefix=("as", user))

    answer = await trial(trials, slurm, "alice")
    gpu, of_a_server = "#SBATCH --gpus=1", "#SBATCH --job-name=alice/other"
    known = latest(gpu), latest(gpu, of_a_server), latest("#SBATCH --gpus=2"), latest(gpu, user="bob")
    slurm.now += RETENTION_SECONDS

    assert (known, latest(gpu)) == ((answer, answer, None, None), None)
    assert slurm.requests == [f"alice {gpu}"]


async def test_answer_is_cached_for_the_user_and_the_job(slurm: Slurm, trials: Trials) -> None:
    """The same question is not asked again for a while; another user or another job is a new question."""
    for question in (("alice", 1), ("alice", 1), ("bob", 1), ("alice", 2)):
        assert (await trial(trials, slurm, *question)).sentence == "starts now"
    slurm.now += RETENTION_SECONDS
    await trial(trials, slurm, "alice")
    one, two = "#SBATCH --gpus=1", "#SBATCH --gpus=2"
    assert slurm.requests == [f"alice {one}", f"bob {one}", f"alice {two}", f"alice {one}"]


async def test_answer_is_cached_by_what_slurm_reads_of_the_script(slurm: Slurm, trials: Trials) -> None:
    """A stricter placement policy is another question; another environment module is not."""
    strict = "#SBATCH --gres-flags=enforce-binding"
    for more in ((), (strict,), ("", "module load CUDA"), (strict, "# a comment")):
        await trial(trials, slurm, "alice", 1, *more)
    assert slurm.requests == ["alice #SBATCH --gpus=1", f"alice #SBATCH --gpus=1 {strict}"]


async def test_one_trial_at_a_time_for_a_user(slurm: Slurm, trials: Trials) -> None:
    """Trials of one user run one after the other; beyond a few the user is asked to wait."""
    slurm.answers.clear()
    tasks = [asyncio.ensure_future(trial(trials, slurm, "alice", gpus)) for gpus in range(WAITING + 1)]
    (refused,), _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    assert refused.result().sentence == "please wait: Slurm is still checking your earlier choices"
    slurm.answers.set()
    assert {(await task).chance for task in tasks if task is not refused} == {Chance.NOW}
    assert (len(slurm.requests), slurm.most) == (WAITING, 1)


async def test_few_trials_at_a_time_for_the_hub(slurm: Slurm, trials: Trials) -> None:
    """However many users ask."""
    slurm.answers.clear()
    tasks = [asyncio.ensure_future(trial(trials, slurm, f"user{n}")) for n in range(20)]
    await wait_for_requests(slurm, CONCURRENT_TRIALS)
    slurm.answers.set()
    await asyncio.gather(*tasks)
    assert (len(slurm.requests), slurm.most) == (20, CONCURRENT_TRIALS)


async def test_a_client_that_disconnects_does_not_end_the_trial(slurm: Slurm, trials: Trials) -> None:
    """Its answer serves the next request."""
    slurm.answers.clear()
    leaves = asyncio.ensure_future(trial(trials, slurm, "alice"))
    await wait_for_requests(slurm, 1)
    leaves.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaves
    slurm.answers.set()
    assert (await trial(trials, slurm, "alice")).chance is Chance.NOW
    assert len(slurm.requests) == 1


async def test_sudo_that_refuses_is_logged_once(slurm: Slurm, trials: Trials, caplog: pytest.LogCaptureFixture) -> None:
    """The participant can go on without an answer; the admin reads what to allow."""
    slurm.fault = ConfigError("sbatch was not run: sudo does not allow it.", where="exec_prefix")
    with caplog.at_level(logging.INFO):
        answers = [await trial(trials, slurm, name) for name in ("alice", "bob")]
    assert {answer.sentence for answer in answers} == {"this hub cannot check in advance when a job would start"}
    assert [record.getMessage() for record in caplog.records] == [
        "Slurm cannot be asked in advance whether a job would start: "
        "exec_prefix: sbatch was not run: sudo does not allow it."
    ]
