"""``gpuspawner message``: tell people something on a hub's pages and in JupyterLab."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from jupyterhub_gpuspawner.cli.hub_api import HUB, hub_of
from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.words import counted

WHOM = "--everybody, --user, --server, --profile, --cluster or --node"


@click.command()
@click.argument("text", required=False, default="")
@click.option("--everybody", is_flag=True, help="To all users of the hub.")
@click.option("--user", metavar="USER", help="To one user, on the hub's pages and in all of their servers.")
@click.option("--server", metavar="USER[/NAME]", help="To one server; without NAME, the user's default server.")
@click.option("--profile", metavar="SLUG", help="To the users of all servers of a profile.")
@click.option("--cluster", metavar="NAME", help="To the users of all servers on one of several clusters.")
@click.option("--node", metavar="NODE", help="To the users of all servers on a node; --cluster says on whose.")
@click.option("--minutes", type=int, default=1440, show_default=True, help="How long it is shown.")
@click.option("--withdraw", is_flag=True, help="Show the message to these people no longer.")
@HUB
def message(*, text: str, minutes: int, withdraw: bool, address: str, **whom: Any) -> None:
    """Show TEXT to people on the hub's pages and in JupyterLab.

    It takes the place of an earlier message to the same people. The token in JUPYTERHUB_API_TOKEN must have the scope
    admin:servers.
    """
    to = audience(**whom)
    if withdraw == bool(text):
        raise ConfigError("Give either a text or --withdraw.")
    if withdraw:
        hub_of(address).ask("DELETE", "messages", {"to": to})
        click.echo("The message is withdrawn.")
        return
    document = hub_of(address).ask("POST", "messages", {"message": text, "to": to, "minutes": minutes})
    until = datetime.fromisoformat(document["messages"][0]["until"]).astimezone()
    number = document["servers"]
    servers = f"the users of {counted(number, 'server')}" if number else "no server"
    click.echo(f"The message is shown until {until:%Y-%m-%d %H:%M}. At the moment it reaches {servers}.")


def audience(**whom: str | bool | None) -> dict[str, str | bool]:
    """Whom the hub's REST API is told; raises ConfigError unless there is exactly one."""
    options = [(option, name) for option, name in whom.items() if name not in (None, False)]
    if [option for option, _ in options] == ["cluster", "node"]:
        return {option: name or "" for option, name in options}
    if len(options) != 1:
        raise ConfigError(f"Say to whom the message is, by one of {WHOM}.")
    [(option, name)] = options
    if option != "server":
        return {option: name or ""}
    user, _, server = str(name).partition("/")
    return {"user": user, "server": server}
