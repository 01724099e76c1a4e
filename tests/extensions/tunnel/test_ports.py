"""Each port leads to one server at most."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.extensions.tunnel.master import TunnelError
from jupyterhub_gpuspawner.extensions.tunnel.tunnels import Ports


def test_a_port_that_was_given_back_is_used_again_last() -> None:
    """As late as possible: somebody may still be connecting to it."""
    ports = Ports(range(5, 8))
    taken = [ports.take(), ports.take()]
    ports.give_back(5)

    assert taken == [5, 6]
    assert [ports.take(), ports.take()] == [7, 5]
    with pytest.raises(TunnelError, match="all 3 ports of tunnel_ports are taken"):
        ports.take()


def test_a_port_of_before_a_restart_is_taken_by_one_server_alone() -> None:
    """Also one of another range, which is not used again."""
    ports = Ports(range(5, 7))

    assert [ports.take_again(5), ports.take_again(5), ports.take_again(99)] == [True, False, True]
    assert ports.take() == 6
    ports.give_back(99)
    ports.give_back(5)
    ports.give_back(5)
    assert ports.take() == 5
    with pytest.raises(TunnelError):
        ports.take()


def test_a_hub_without_a_tunnel_has_no_port() -> None:
    """Until it is told which."""
    assert not Ports(()).known
    assert Ports(range(5, 6)).known
