"""The REST API of a running hub, for commands."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click
import requests

from jupyterhub_gpuspawner.cli.options import printable
from jupyterhub_gpuspawner.errors import ConfigError, GPUSpawnerError

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
