"""The tag in a job's comment."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyterhub_gpuspawner.slurm.identity import hub_mark, job_name, parse_tag, start_of, start_of_name, tag

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
