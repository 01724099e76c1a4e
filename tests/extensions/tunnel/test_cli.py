"""What ``gpuspawner tunnel`` prints for sshd."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.extensions.tunnel.cli import lines_of


@pytest.mark.parametrize(
    ("addresses", "ports", "listen", "lines"),
    [
        (
            ["10.0.1.1", "g2"],
            (20000, 20001),
            "",
            [
                "AllowTcpForwarding local",
                "PermitOpen 10.0.1.1:20000 10.0.1.1:20001 g2:20000 g2:20001",
                "PermitListen none",
            ],
        ),
        (
            ["fd00::1"],
            (20000, 20000),
            "10.0.0.20:25681",
            [
                "AllowTcpForwarding yes",
                "PermitOpen [fd00::1]:20000",
                "PermitListen 10.0.0.20:25681",
                "GatewayPorts clientspecified",
            ],
        ),
        # an address that would be more than one word opens nothing
        (
            ["*", "any", "g1 any", "g1:22", ""],
            (20000, 20000),
            "",
            ["AllowTcpForwarding local", "PermitOpen any:20000", "PermitListen none"],
        ),
        ([], (20000, 20001), "", ["AllowTcpForwarding local", "PermitOpen none", "PermitListen none"]),
    ],
)
def test_each_port_of_each_node_is_permitted_and_nothing_else(
    addresses: list[str], ports: tuple[int, int], listen: str, lines: list[str]
) -> None:
    """PermitOpen has no ranges."""
    assert lines_of(addresses, ports, listen) == lines
