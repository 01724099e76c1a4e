"""Which of a node's addresses the hub uses to reach a server."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.hub.report.reader import reachable_address, resolved

ALL, ALL6 = "0.0.0.0", "::"  # noqa: S104 - nothing is bound
BOTH = ("2001:db8::7", "10.0.0.7")
WAYS = {
    "all of IPv4, by IPv4": (("10.0.0.7",), (ALL,), "g1"),
    "all of IPv4, where IPv6 comes first": (BOTH, (ALL,), "10.0.0.7"),
    "all of IPv6, where IPv4 comes first": (BOTH[::-1], (ALL6,), "2001:db8::7"),
    "all of both": (BOTH, (ALL, ALL6), "g1"),
    "all of IPv6, which may be open to IPv4": (("10.0.0.7",), (ALL6,), "g1"),
    "one address, perhaps behind another": (("192.0.2.9",), ("10.0.0.7",), "g1"),
    "IPv4 within IPv6": (BOTH, ("::ffff:10.0.0.7",), "10.0.0.7"),
    "itself alone": (BOTH, ("127.0.0.1",), None),
    "itself alone, on the hub's own machine": (("127.0.0.1",), ("127.0.0.1",), "g1"),
    "not known": (BOTH, (), "g1"),
    "a name without an address": ((), (ALL,), "g1"),
}


@pytest.mark.parametrize(("addresses", "listens", "expected"), WAYS.values(), ids=WAYS.keys())
def test_the_hub_goes_by_an_address_on_which_the_server_listens(
    addresses: tuple[str, ...], listens: tuple[str, ...], expected: str | None
) -> None:
    """The node's name if the server listens on all of its addresses: on the others another user may have the port."""
    assert reachable_address("g1", addresses, listens) == expected


async def test_an_address_is_its_own_and_an_unknown_name_has_none() -> None:
    """The resolver is not asked for an address."""
    assert await resolved("10.0.0.7") == ("10.0.0.7",)
    assert await resolved("2001:DB8::7") == ("2001:db8::7",)
    assert await resolved("no-such-host.invalid") == ()
    assert "127.0.0.1" in await resolved("localhost")
