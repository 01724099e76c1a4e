"""The REST API of a running hub, for commands, and ``gpuspawner message``: tell people something on its pages."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import click
import requests

from jupyterhub_gpuspawner.cli.options import printable
from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError
from jupyterhub_gpuspawner.words import counted

TOKEN = "JUPYTERHUB_API_TOKEN"
TIME_LIMIT = 60.0
"""Seconds for one request."""

ADDRESS = "The hub's address, such as https://hub.example.org or https://example.org/jupyter."
"""The help of each ``--hub``; /hub and /hub/api may follow."""


def hub_base(address: str) -> str:
    """The part of a hub's address before ``/hub``, as in ``https://hub.example.org/hub/``, without a slash."""
    return address.rstrip("/").removesuffix("/hub/api").removesuffix("/hub")


HUB = click.option(
    "--hub",
    "address",
    required=True,
    envvar="JUPYTERHUB_API_URL",
    metavar="URL",
    help=f"{ADDRESS} Default: the environment variable JUPYTERHUB_API_URL.",
)


@dataclass(frozen=True)
class Hub:
    """A hub's REST API of this package."""

    address: str
    token: str

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The document at ``path`` below ``/hub/api/gpuspawner``; raises GPUSpawnerError with the hub's sentence.

        A redirection is an error: requests would follow it with GET, so a POST would seem to be done.
        """
        url = f"{hub_base(self.address)}/hub/api/gpuspawner/{path}"
        try:
            answer = requests.request(
                method,
                url,
                json=dict(body) if body is not None else None,
                headers={"Authorization": f"token {self.token}"},
                timeout=TIME_LIMIT,
                allow_redirects=False,
            )
        except requests.RequestException as error:
            raise GPUSpawnerError(f"The hub does not answer at {url}: {type(error).__name__}.") from error
        if answer.is_redirect:
            raise ConfigError(
                f"{url} redirects to {printable(answer.headers['Location'])}.",
                where="--hub",
                hint="Give the address at which the hub answers.",
            )
        try:
            document = answer.json()
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise GPUSpawnerError(f"The hub's answer is not understood: status {answer.status_code}.")
        if not answer.ok:
            message = printable(str(document.get("message") or answer.reason))
            raise GPUSpawnerError(f"{message} (status {answer.status_code})")
        return document


def hub_of(address: str) -> Hub:
    """The hub at this address, with the token of the environment; raises ConfigError."""
    if not address.startswith(("http://", "https://")):
        raise ConfigError(
            f"{address!r} is not an address.", where="--hub", hint="Use for example https://hub.example.org."
        )
    token = os.environ.get(TOKEN, "")
    if not token:
        raise ConfigError(
            f"{TOKEN} is not set.",
            hint="Make a token on the hub's page Token, and put it into this environment variable.",
        )
    return Hub(address, token)


# ``gpuspawner message``.

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
