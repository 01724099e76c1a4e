"""``scancel`` is run for the start's own job only, never for another job with the same id."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from jupyterhub_gpuspawner.errors import SlurmUnavailable
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.hub.start.submission import Cancellation
from jupyterhub_gpuspawner.slurm.job import Job, JobIdentity, Phase

if TYPE_CHECKING:
    from collections.abc import Collection

OWN = Job("7", Phase.RUNNING, user="ann", uid=1001, tag="jupyterhub-gpuspawner/demo/ann/#0a-1")
IDENTITY = JobIdentity(owner="ann", uid=1001, tag=OWN.tag)
ANOTHER = Job("7", Phase.RUNNING, user="ann", uid=1001, tag="", name="train.sh")
STRANGERS = Job("7", Phase.RUNNING, user="bob", uid=1002, tag=OWN.tag)


class Slurm:
    """A stand-in for the client, with one job or none."""

    def __init__(self, job: Job | None, *, silent: bool = False) -> None:
        self.queue = {"7": job} if job else {}
        self.silent = silent
        self.prefix: tuple[str, ...] = ("sudo",)
        self.cancelled: list[str] = []

    async def jobs(self, job_ids: Collection[str]) -> dict[str, Job]:
        assert list(job_ids) == ["7"]
        if self.silent:
            raise SlurmUnavailable("squeue got no answer.")
        return self.queue

    async def cancel(self, job_id: str, *, prefix: tuple[str, ...], environment: dict[str, str]) -> None:
        assert (prefix, environment) == (self.prefix, {"USER": "ann", "LOGNAME": "ann"})
        self.cancelled.append(job_id)


def cancellation(slurm: Slurm, trusted_until: float | None = 0.0) -> Cancellation:
    return Cancellation(
        slurm,  # type: ignore[arg-type]
        IDENTITY,
        "ann",
        ("sudo",),
        trusted_until,
    )


@pytest.mark.parametrize(
    ("job", "cancelled"),
    [(OWN, ["7"]), (None, ["7"]), (ANOTHER, []), (STRANGERS, [])],
    ids=["the start's own", "none that squeue shows", "the person's own batch job", "a stranger's"],
)
async def test_whose_job_is_cancelled(job: Job | None, cancelled: list[str]) -> None:
    """A job that is hidden from the hub's account is cancelled: scancel runs as its owner, and knows more."""
    slurm = Slurm(job)
    await cancellation(slurm)("7")

    assert slurm.cancelled == cancelled


@pytest.mark.parametrize("account", [0, 1001], ids=["root", "another"])
async def test_a_job_of_roots_is_cancelled_by_a_hub_that_is_root(monkeypatch: pytest.MonkeyPatch, account: int) -> None:
    """One that was submitted before exec_prefix was what it is now: Slurm lets its user not cancel it."""
    monkeypatch.setattr("os.geteuid", lambda: account)
    slurm = Slurm(replace(OWN, user="root", uid=0))
    slurm.prefix = () if account == 0 else ("sudo",)
    await replace(cancellation(slurm), identity=replace(IDENTITY, owner="root", uid=0))("7")

    assert slurm.cancelled == ["7"]


async def test_where_slurm_does_not_say_whose_the_number_is_nothing_is_cancelled() -> None:
    """The caller tries again."""
    slurm = Slurm(OWN, silent=True)
    with pytest.raises(SlurmUnavailable):
        await cancellation(slurm)("7")

    assert slurm.cancelled == []


@pytest.mark.parametrize("silent", [True, False])
async def test_a_number_that_sbatch_gave_just_now_is_the_starts_own(silent: bool) -> None:
    """Even if squeue does not answer, or a plugin has replaced comment and name; but never another user's job."""
    slurm, strangers = Slurm(ANOTHER, silent=silent), Slurm(replace(STRANGERS, tag="train", name="train.sh"))
    await cancellation(slurm, trusted_until=None)("7")
    await cancellation(strangers, trusted_until=None)("7")

    assert (slurm.cancelled, strangers.cancelled) == (["7"], [])


async def test_a_stop_that_slurm_did_not_hear_is_repeated_for_its_job_after_the_server_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """JupyterHub may have cleared the state, and with it the job's id, while the first request waited for an answer."""
    job_ids, repeated = list[str](), asyncio.Event()
    spawner = GPUSlurmSpawner(user=SimpleNamespace(name="ann"))
    spawner.watch.job_id = "7"

    async def cancel(job_id: str) -> None:
        job_ids.append(job_id)
        if len(job_ids) == 1:
            spawner.watch.job_id = ""
            raise SlurmUnavailable("squeue got no answer.")
        repeated.set()

    monkeypatch.setattr(spawner, "cancellation", lambda *_, **__: cancel)
    await spawner.stop_server(now=True)
    await asyncio.wait_for(repeated.wait(), 60)

    assert job_ids == ["7", "7"]
