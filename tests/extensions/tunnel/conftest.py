"""The login node and the node, for all tests of this folder that need no hub."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.extensions.tunnel import machines as of_tunnel


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[of_tunnel.Machines]:
    """A node that this host cannot reach, and a login node that can; 200 ports of the node send back what they get."""
    if reason := of_tunnel.missing():
        pytest.skip(reason)
    with of_tunnel.machines(tmp_path_factory.mktemp("tunnel")) as machines:
        machines.serve(*range(of_tunnel.PORTS[0], of_tunnel.PORTS[0] + 200))
        yield machines


@pytest.fixture
def running(behind: of_tunnel.Machines) -> Iterator[of_tunnel.Machines]:
    """The same with sshd running, and no connection of another test's; at the end there is none."""
    behind.end_masters()
    behind.mend()
    if behind.sshd is None:
        behind.start_sshd()
    yield behind
    behind.end_masters()
