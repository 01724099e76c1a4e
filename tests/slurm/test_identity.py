"""Which job with a server's job id is the server's own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyterhub_gpuspawner.slurm.identity import JobIdentity, parse_identity
from jupyterhub_gpuspawner.slurm.job import Job, Phase

TAG = "jupyterhub-gpuspawner/demo/ann/lab#0a1b2c3d-11111111"
OTHER_START = "jupyterhub-gpuspawner/demo/ann/lab#0a1b2c3d-22222222"
NAME = "jupyterhub-0a1b2c3d-11111111"
SUBMITTED = JobIdentity(owner="ann", uid=1001, tag=TAG, name=NAME)
JOB = Job("12", Phase.RUNNING, user="ann", uid=1001, tag=TAG, name=NAME)

OWN: dict[str, tuple[JobIdentity, Job, bool]] = {
    "as it was submitted": (SUBMITTED, JOB, True),
    "its comment was replaced": (SUBMITTED, replace(JOB, tag="project 7"), True),
    "its name was changed": (SUBMITTED, replace(JOB, name="mine"), True),
    "comment and name are others": (SUBMITTED, replace(JOB, tag="", name="train.sh"), False),
    "another start of the same server": (SUBMITTED, replace(JOB, tag=OTHER_START, name=""), False),
    "another owner, who wrote this comment and this name": (SUBMITTED, replace(JOB, user="bob", uid=1002), False),
    "the owner has no name here": (SUBMITTED, replace(JOB, user="nobody"), True),
    "the owner has another name here": (SUBMITTED, replace(JOB, user="ann@example.org"), True),
    "another account of the same name": (SUBMITTED, replace(JOB, uid=1002), False),
    "no account here: the name tells": (replace(SUBMITTED, uid=None), replace(JOB, user="bob", uid=1002), False),
    "no account here, and no name": (replace(SUBMITTED, uid=None), replace(JOB, user="1001"), True),
    "a site where one account acts for all": (JobIdentity(tag=TAG), replace(JOB, user="service", uid=7), True),
    "no job of a site that puts no start into names": (replace(SUBMITTED, name=""), replace(JOB, tag=""), False),
    "stored by an earlier version": (JobIdentity(owner="ann", tag=TAG.partition("#")[0]), JOB, True),
    "the same, of another server": (JobIdentity(owner="ann", tag=TAG.partition("#")[0][:-1]), JOB, False),
    "the same, of another owner": (JobIdentity(owner="bob", tag=TAG.partition("#")[0]), JOB, False),
    "stored by batchspawner": (
        JobIdentity(owner="ann", tag=TAG.partition("#")[0]),
        replace(JOB, tag="", name="spawner-jupyterhub"),
        True,
    ),
}


@pytest.mark.parametrize(("identity", "job", "own"), OWN.values(), ids=OWN.keys())
def test_which_job_is_a_servers_own(identity: JobIdentity, job: Job, own: bool) -> None:
    """By its owner, and by comment or name."""
    assert identity.matches(job) is own


@pytest.mark.parametrize(
    ("identity", "job", "proven"),
    [
        (SUBMITTED, JOB, True),
        (SUBMITTED, replace(JOB, tag="", name="train.sh"), False),
        (replace(SUBMITTED, uid=None), replace(JOB, user="nobody"), False),
        (JobIdentity(tag=TAG), JOB, False),
    ],
    ids=["owner and comment", "another job of the owner's", "an owner without a name", "an owner that is not known"],
)
def test_a_job_is_proven_only_by_a_certain_owner(identity: JobIdentity, job: Job, proven: bool) -> None:
    """Anybody can write any comment and name."""
    assert identity.proves(job) is proven


def test_a_number_of_sbatchs_own_is_believed_where_comment_and_name_are_replaced() -> None:
    """The first answer determines how the job is recognised from then on."""
    job = replace(JOB, tag="project 7", name="batch")
    known = SUBMITTED.learnt(job)

    assert (SUBMITTED.matches(job), SUBMITTED.may_be(job)) == (False, True)
    assert known == JobIdentity(owner="ann", uid=1001, tag="project 7", name="batch")
    assert [known.matches(job), known.matches(replace(job, tag="project 8", name="other"))] == [True, False]
    assert not SUBMITTED.may_be(replace(JOB, tag=OTHER_START, name=""))
    assert not SUBMITTED.may_be(replace(job, uid=1002))


def test_a_number_of_sbatchs_own_with_the_starts_comment_is_its_job_whoever_owns_it() -> None:
    """A site's command may submit as another account than the user's; that account is the owner from then on."""
    job = replace(JOB, user="pool", uid=1002)
    known = SUBMITTED.learnt(job)

    assert (SUBMITTED.matches(job), SUBMITTED.may_be(job)) == (False, True)
    assert (known.owner, known.uid) == ("pool", 1002)
    assert [known.matches(job), known.matches(JOB)] == [True, False]


def test_what_an_earlier_version_did_not_store_is_learnt_from_the_first_answer() -> None:
    """The owner's uid and the start; for batchspawner's jobs, comment and name as they are."""
    stored = JobIdentity(owner="ann", tag=TAG.partition("#")[0])

    assert (stored.complete, SUBMITTED.complete) == (False, True)
    assert stored.learnt(JOB) == JobIdentity(owner="ann", tag=TAG)
    assert stored.learnt(replace(JOB, tag="", name="spawner-jupyterhub")) == JobIdentity(
        owner="ann", name="spawner-jupyterhub"
    )
    assert JobIdentity(tag=TAG).learnt(JOB) == JobIdentity(owner="ann", uid=1001, tag=TAG)


@pytest.mark.parametrize("identity", [SUBMITTED, JobIdentity(tag=TAG), JobIdentity()])
def test_an_identity_is_read_as_it_was_stored(identity: JobIdentity) -> None:
    """Round trip through JSON."""
    assert parse_identity(identity.to_json()) == identity


@pytest.mark.parametrize("document", [None, "ann", {"owner": 1}, {"uid": "0"}, {"uid": True}, {"tag": None}])
def test_what_is_no_identity_is_dropped(document: object) -> None:
    """Damaged state never prevents the hub from starting."""
    assert parse_identity(document) is None
