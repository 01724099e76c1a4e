"""Values that the pages of a server's start and end show."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.hub.server.waiting import same_choice


@pytest.mark.parametrize(
    ("options", "address"),
    [
        ({}, ""),
        ({"profile": "k80", "gpus": 2}, "/hub/spawn/ada?opt-profile=k80&opt-gpus=2"),
        ({"profile": "k80", "image": "a b&c=d"}, "/hub/spawn/ada?opt-profile=k80&opt-image=a+b%26c%3Dd"),
        ({"profile": ["k80"], "cpus": 1}, "/hub/spawn/ada?opt-cpus=1"),
    ],
)
def test_the_same_choice_is_an_address_of_the_form(options: dict[str, object], address: str) -> None:
    """Values are quoted; those that are not plain values are left out."""
    assert same_choice("/hub/spawn/ada", options) == address


def test_the_server_is_gone_to_where_it_was_wanted() -> None:
    """A query that the address already has is kept."""
    assert same_choice("/hub/spawn/ada?next=%2Fuser%2Fada%2Flab", {"profile": "k80"}) == (
        "/hub/spawn/ada?next=%2Fuser%2Fada%2Flab&opt-profile=k80"
    )
