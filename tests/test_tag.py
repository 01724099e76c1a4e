"""The tag by which a job is found again."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyterhub_gpuspawner.tag import parse_tag, tag

names = st.text(st.characters(codec="utf-8"))


def test_a_tag_names_hub_user_and_server() -> None:
    """Percent-encoded, so that no name can end the comment it stands in."""
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
    """Jobs of other people and programs are left alone."""
    assert parse_tag(text) is None
