"""What ``gpuspawner check`` says of a tunnel that does not work, and of who else may listen at its ports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.check import machine, run
from jupyterhub_gpuspawner.check.finding import Context
from jupyterhub_gpuspawner.extensions.tunnel import checks
from jupyterhub_gpuspawner.extensions.tunnel.neighbours import Machine
from jupyterhub_gpuspawner.site.configuration import load_site
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot, NodeState, Partition

HUB = """
c.JupyterHub.spawner_class = "gpu-slurm"
c.GPUSlurmSpawner.exec_prefix = "sudo -u {username}"
"""
TUNNEL = "c.GPUSlurmSpawner.tunnel = 'ssh -F FOLDER/ssh_config tunnel'; c.GPUSlurmSpawner.port_range = '20000-20009'"
ALONE = Machine(1024, (32768, 60999), [("root", 0, "/bin/sh"), ("jupyterhub", 990, "/bin/sh")])
APART = f"{TUNNEL}; c.ConfigurableHTTPProxy.should_start = False"
ENDED = "if the connections are ended with the hub while its proxy goes on"
FIX = (
    "Let systemd end the hub's process alone (KillMode=process), reserve the ports (sysctl "
    "net.ipv4.ip_unprivileged_port_start=28000, and AmbientCapabilities=CAP_NET_BIND_SERVICE for the hub), or let "
    "nobody else sign in to its machine."
)
PORTS = "c.GPUSlurmSpawner.tunnel_ports"
FAR = ClusterSnapshot(
    nodes=(NodeState("g1", address="g1.nowhere.invalid", states=frozenset({"IDLE"})),),
    partitions=(Partition("gpu", nodes=("g1",)),),
)


async def context_of(folder: Path, lines: str) -> Context:
    """A hub with these lines."""
    config = folder / "jupyterhub_config.py"
    config.write_text(f"{HUB}{lines.replace('FOLDER', str(folder))}\n")
    return await run.context_of(load_site(config))


@pytest.mark.parametrize(
    ("lines", "of", "found"),
    [
        ("", ALONE, []),
        (APART, ALONE, [f"ok    {PORTS}: no other account can sign in to this machine and listen there"]),
        (
            TUNNEL,
            replace(ALONE, accounts=[("ada", 1000, "/bin/bash")]),
            [f"ok    {PORTS}: nobody else can listen there as long as the proxy runs"],
        ),
        *(
            (
                f"{TUNNEL}; c.JupyterHub.{line}",
                ALONE,
                [f"ok    {PORTS}: no other account can sign in to this machine and listen there"],
            )
            for line in ("cleanup_proxy = False", "proxy_class = 'traefik_file'")
        ),
        (
            APART,
            replace(ALONE, accounts=[*ALONE.accounts, ("ada", 1000, "/bin/bash"), ("ben", 1001, "/bin/false")]),
            [f"warn  {PORTS}: ada may listen there, and get cookies, {ENDED}. {FIX} [tunnel-ports-shared]"],
        ),
        (
            APART,
            replace(ALONE, directories=["sss"]),
            [
                f"warn  {PORTS}: accounts of a directory may be able to sign in to this machine, and to listen there "
                f"{ENDED}. {FIX} [tunnel-ports-shared]"
            ],
        ),
        (
            APART,
            replace(ALONE, unprivileged_from=28000, accounts=[("ada", 1000, "/bin/bash")]),
            [f"ok    {PORTS}: only programs with CAP_NET_BIND_SERVICE may listen there, such as the hub's"],
        ),
        (
            f"{APART}; c.GPUSlurmSpawner.tunnel_ports = '32000-33000'",
            ALONE,
            [
                f"warn  {PORTS}: the kernel gives ports from 32768 to 60999 to connections of any program. Use ports "
                "outside of these. [tunnel-ports-ephemeral]",
                f"ok    {PORTS}: no other account can sign in to this machine and listen there",
            ],
        ),
        (
            "c.GPUSlurmSpawner.clusters = {'near': {}, 'far': {'tunnel': 'ssh far'}}",
            ALONE,
            [f"ok    {PORTS}: nobody else can listen there as long as the proxy runs"],
        ),
    ],
)
async def test_who_else_may_listen_at_the_ports_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str, of: Machine, found: list[str]
) -> None:
    """What holds, or what to do that it does."""
    monkeypatch.setattr(checks, "this_machine", lambda: of)
    monkeypatch.setattr("os.geteuid", lambda: 990)
    findings = await run.findings(await context_of(tmp_path, lines), (checks.check_ports,))

    assert [run.line(finding) for finding in findings] == found


CONFIGS = {
    "no socket": (
        "Host tunnel\n  HostName 127.0.0.1\n",
        "ssh's configuration for tunnel has no ControlPath. Use the file ssh/tunnel_ssh_config that `gpuspawner files "
        "--ssh` writes. [tunnel-fails]",
    ),
    "a long path": (
        f"Host tunnel\n  HostName 127.0.0.1\n  ControlPath /run/{'x' * 90}\n",
        f"the socket /run/{'x' * 90}-1 of the tunnel's ssh has a path of more than 90 bytes. Use a shorter "
        "ControlPath. [tunnel-fails]",
    ),
    "nothing listens": (
        "Host tunnel\n  HostName 127.0.0.1\n  Port 1\n  ControlPath FOLDER/t\n",
        "the login node of the tunnel: the login node cannot be reached by ssh (ssh: connect to host 127.0.0.1 port 1: "
        "Connection refused). Run ssh by hand as the hub's account. [tunnel-fails]",
    ),
    "a mistake": (
        "Host tunnel\n  HostNane 127.0.0.1\n  ControlPath FOLDER/t\n",
        "ssh's configuration for tunnel has no ControlPath: FOLDER/ssh_config: terminating, 1 bad configuration "
        "options. Use the file ssh/tunnel_ssh_config that `gpuspawner files --ssh` writes. [tunnel-fails]",
    ),
}


@pytest.mark.parametrize(("config", "fault"), CONFIGS.values(), ids=CONFIGS)
async def test_a_login_node_that_is_not_reached_is_said_with_ssh_s_reason(
    tmp_path: Path, config: str, fault: str
) -> None:
    """And what to do."""
    (tmp_path / "ssh_config").write_text(config.replace("FOLDER", str(tmp_path)))
    findings = await run.findings(await context_of(tmp_path, TUNNEL), (checks.check_tunnel,))

    assert [run.line(finding).replace(str(tmp_path), "FOLDER") for finding in findings] == [
        f"WRONG c.GPUSlurmSpawner.tunnel: {fault}"
    ]


async def test_any_port_of_the_nodes_is_too_many(tmp_path: Path) -> None:
    """sshd has no ranges."""
    context = await context_of(tmp_path, "c.GPUSlurmSpawner.tunnel = 'ssh -F /dev/null -S none tunnel'")
    findings = await run.findings(context, (checks.check_tunnel,))

    assert [finding.code for finding in findings] == ["tunnel-any-port", "tunnel-fails"]


@pytest.mark.parametrize(("lines", "codes"), [("", ["node-unresolved"]), (TUNNEL, [])])
async def test_the_hub_need_not_resolve_a_node_behind_a_tunnel(tmp_path: Path, lines: str, codes: list[str]) -> None:
    """The login node does."""
    context = replace(await context_of(tmp_path, lines), snapshot=FAR, slurm_error=None)
    findings = await run.findings(context, (machine.check_address,))

    assert [finding.code for finding in findings] == codes
