"""Whether the login node forwards, and who else could take the hub's end of a forward."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator

from jupyterhub_gpuspawner.check.finding import Code, Context, Finding, names_no_cluster
from jupyterhub_gpuspawner.extensions.tunnel.master import Master
from jupyterhub_gpuspawner.extensions.tunnel.neighbours import (
    is_reserved,
    others,
    outlives_hub,
    overlaps,
    this_machine,
)
from jupyterhub_gpuspawner.extensions.tunnel.ports import TunnelError
from jupyterhub_gpuspawner.extensions.tunnel.settings import TO_HUB, TUNNEL, hub_url, port_numbers
from jupyterhub_gpuspawner.extensions.tunnel.ssh import tunnel_words
from jupyterhub_gpuspawner.extensions.tunnel.tunnels import reverse_of
from jupyterhub_gpuspawner.site.configuration import application
from jupyterhub_gpuspawner.words import some

CONNECTS = Code("tunnel", "How the hub reaches the nodes through a tunnel.")
FAILS = Code("tunnel-fails", "There is no connection to the login node of the tunnel, so no server would be reached.")
REFUSED = Code("tunnel-to-hub-refused", "The login node does not forward hub_connect_url to the hub.")
ANY_PORT = Code("tunnel-any-port", "port_range is empty, so sshd cannot list the ports to which the tunnel may lead.")
RESERVED = Code("tunnel-ports", "Why nobody else may listen at the hub's end of a forward.", of_hub=True)
SHARED = Code(
    "tunnel-ports-shared",
    "The proxy goes on when the hub is stopped, and other accounts of its machine may listen at the hub's end of a "
    "forward if the connection is ended with the hub: they would get the cookies of that server's user.",
    of_hub=True,
)
EPHEMERAL = Code(
    "tunnel-ports-ephemeral", "The kernel gives ports of tunnel_ports to connections of any program.", of_hub=True
)


async def check_tunnel(context: Context) -> AsyncIterator[Finding]:
    """Connect to the login node, unless the hub has, and try the way to the hub."""
    site = context.spawner
    where = context.setting(TUNNEL)
    words = tunnel_words(site.tunnel, where=where)
    if not words:
        return
    if not site.port_range:
        yield ANY_PORT.warning(
            context.setting("port_range"),
            "servers may listen at any port of their nodes, and sshd's PermitOpen has no ranges: the hub's key could "
            "reach every service there.",
            "Set a range, and write what `gpuspawner tunnel` prints into sshd_config.",
        )
    master = Master(words, 1)
    try:
        await master.keep_up()
        yield CONNECTS.ok(where, f"the login node of `{site.tunnel}` accepts the connection")
        if site.tunnel_to_hub:
            hub = application(context.site.config).hub
            back = reverse_of(hub_url(site), hub.ip, int(hub.port or 0))
            master.wanted.add(back)
            await master.keep_up()
            if back not in master.made:
                yield REFUSED.error(
                    context.setting(TO_HUB),
                    f"the login node does not forward {back.listen}, port {back.port}, to the hub.",
                    "Its sshd needs AllowTcpForwarding yes, PermitListen, and GatewayPorts clientspecified; no other "
                    "program may have that port.",
                )
    except TunnelError as error:
        yield FAILS.error(where, error.message, error.hint)
    finally:
        if master.started:
            await master.close()


@names_no_cluster
def check_ports(context: Context) -> Iterator[Finding]:
    """Look at who else may listen at the ports of this machine."""
    site = context.spawner
    if not any(site.effective(name).tunnel for name in site.clusters or [""]):
        return
    where, machine, ports = context.setting("tunnel_ports"), this_machine(), port_numbers(site.tunnel_ports)
    if overlaps(ports, machine):
        low, high = machine.ephemeral
        yield EPHEMERAL.warning(
            where,
            f"the kernel gives ports from {low} to {high} to connections of any program.",
            "Use ports outside of these.",
        )
    if not outlives_hub(context.site.config):
        yield RESERVED.ok(where, "nobody else can listen there as long as the proxy runs")
        return
    if is_reserved(ports, machine):
        yield RESERVED.ok(where, "only programs with CAP_NET_BIND_SERVICE may listen there, such as the hub's")
        return
    fix = (
        "Let systemd end the hub's process alone (KillMode=process), reserve the ports (sysctl "
        f"net.ipv4.ip_unprivileged_port_start={ports[1] + 1}, and AmbientCapabilities=CAP_NET_BIND_SERVICE for the "
        "hub), or let nobody else sign in to its machine."
    )
    others_here = others(machine, os.geteuid())
    ended = "if the connections are ended with the hub while its proxy goes on"
    if others_here:
        yield SHARED.warning(where, f"{some(others_here)} may listen there, and get cookies, {ended}.", fix)
    elif machine.directories:
        text = f"accounts of a directory may be able to sign in to this machine, and to listen there {ended}."
        yield SHARED.warning(where, text, fix)
    else:
        yield RESERVED.ok(where, "no other account can sign in to this machine and listen there")
