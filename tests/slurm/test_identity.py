"""Which job is a server's own, by its owner and by the tag in its comment."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyterhub_gpuspawner.slurm.job import (
    Job,
    JobIdentity,
    Phase,
    hub_mark,
    identity_from_json,
    job_name,
    parse_tag,
    start_of,
    start_of_name,
    tag,
)

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
    identity = SUBMITTED.completed_from(job)

    assert (SUBMITTED.matches(job), SUBMITTED.may_be(job)) == (False, True)
    assert identity == JobIdentity(owner="ann", uid=1001, tag="project 7", name="batch")
    assert [identity.matches(job), identity.matches(replace(job, tag="project 8", name="other"))] == [True, False]
    assert not SUBMITTED.may_be(replace(JOB, tag=OTHER_START, name=""))
    assert not SUBMITTED.may_be(replace(job, uid=1002))


def test_a_number_of_sbatchs_own_with_the_starts_comment_is_its_job_whoever_owns_it() -> None:
    """A site's command may submit as another account than the user's; that account is the owner from then on."""
    job = replace(JOB, user="pool", uid=1002)
    identity = SUBMITTED.completed_from(job)

    assert (SUBMITTED.matches(job), SUBMITTED.may_be(job)) == (False, True)
    assert (identity.owner, identity.uid) == ("pool", 1002)
    assert [identity.matches(job), identity.matches(JOB)] == [True, False]


def test_what_an_earlier_version_did_not_store_is_learnt_from_the_first_answer() -> None:
    """The owner's uid and the start; for batchspawner's jobs, comment and name as they are."""
    stored = JobIdentity(owner="ann", tag=TAG.partition("#")[0])

    assert (stored.complete, SUBMITTED.complete) == (False, True)
    assert stored.completed_from(JOB) == JobIdentity(owner="ann", tag=TAG)
    assert stored.completed_from(replace(JOB, tag="", name="spawner-jupyterhub")) == JobIdentity(
        owner="ann", name="spawner-jupyterhub"
    )
    assert JobIdentity(tag=TAG).completed_from(JOB) == JobIdentity(owner="ann", uid=1001, tag=TAG)


@pytest.mark.parametrize("identity", [SUBMITTED, JobIdentity(tag=TAG), JobIdentity()])
def test_an_identity_is_read_as_it_was_stored(identity: JobIdentity) -> None:
    """Round trip through JSON."""
    assert identity_from_json(identity.to_json()) == identity


@pytest.mark.parametrize("document", [None, "ann", {"owner": 1}, {"uid": "0"}, {"uid": True}, {"tag": None}])
def test_what_is_no_identity_is_dropped(document: object) -> None:
    """Damaged state never prevents the hub from starting."""
    assert identity_from_json(document) is None


names = st.text(st.characters(codec="utf-8"))


def test_a_tag_names_hub_user_and_server() -> None:
    """Percent-encoded, so that no name can end the comment."""
    assert tag("hub.example.org", "ada lovelace", "") == "jupyterhub-gpuspawner/hub.example.org/ada%20lovelace/"
    assert tag("h", "a|b,c\n#", "ü/2") == "jupyterhub-gpuspawner/h/a%7Cb%2Cc%0A%23/%C3%BC%2F2"


@given(names, names, names)
def test_a_tag_is_read_as_it_was_written(hub: str, user: str, server: str) -> None:
    """Whatever the names hold; its characters need no quoting in Slurm or a shell."""
    text = tag(hub, user, server)
    assert parse_tag(text) == (hub, user, server)
    assert re.fullmatch(r"[A-Za-z0-9._~%/-]+", text)


def test_what_a_hub_adds_after_a_hash_is_not_looked_at() -> None:
    """One start of a server may have a mark of its own."""
    assert parse_tag(tag("h", "u", "s") + "#1a2b") == ("h", "u", "s")


@pytest.mark.parametrize(
    "text", ["", "(null)", "jupyterhub-gpuspawner", "other/h/u/s", "jupyterhub-gpuspawner/h/u", "x\ny"]
)
def test_another_comment_is_no_tag(text: str) -> None:
    """Jobs of other people and programs are not recognised."""
    assert parse_tag(text) is None


@pytest.mark.parametrize(
    ("template", "start_id", "name", "read"),
    [
        ("jupyterhub-{start}", "0a-1b", "jupyterhub-0a-1b", "0a-1b"),
        ("{start}.lab", "0a-1b", "0a-1b.lab", "0a-1b"),
        ("jupyterhub", "0a-1b", "jupyterhub", ""),
        ("jupyterhub-{start}", "", "jupyterhub", ""),
    ],
)
def test_a_jobs_name_tells_its_start_where_the_setting_has_a_place_for_it(
    template: str, start_id: str, name: str, read: str
) -> None:
    """A trial has no start; a name of the site's own has no place for one."""
    assert job_name(template, start_id) == name
    assert start_of_name(template, name) == read


@pytest.mark.parametrize("name", ["", "jupyterhub-", "other-0a-1b", "jupyterhub"])
def test_another_name_tells_no_start(name: str) -> None:
    """Jobs of other people and programs are not recognised."""
    assert start_of_name("jupyterhub-{start}", name) == ""


def test_the_start_of_a_tag_follows_the_hash() -> None:
    """A comment that is no tag has none."""
    assert start_of(tag("h", "u", "s") + "#1a2b") == "1a2b"
    assert (start_of(tag("h", "u", "s")), start_of("x#1a2b")) == ("", "")


def test_a_mark_is_the_hubs_own_and_does_not_reveal_its_secret() -> None:
    """The same after each restart, another for each secret."""
    assert hub_mark(b"one") == hub_mark(b"one") != hub_mark(b"two")
    assert len(hub_mark(b"one")) == 8
    assert hub_mark(b"") == ""
