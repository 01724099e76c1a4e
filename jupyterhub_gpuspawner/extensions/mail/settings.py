"""The settings ``c.GPUMail``: the site's SMTP server, and where addresses come from."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from traitlets import Callable, Enum, Unicode, Union
from traitlets.config import Configurable

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extensions.mail.message import is_address
from jupyterhub_gpuspawner.hub.site.slurm_settings import Count


class GPUMail(Configurable):
    """Which mails the hub sends, and through which server. It sends none without :attr:`server`."""

    server = Unicode(
        "",
        config=True,
        help="""Host, or `host:port`, of the SMTP server that takes the hub's mails; the port is 25 without one. Empty:
        there are no mails. `c.JupyterHub.public_url` must be set, too: each mail has a link.""",
    )
    security = Enum(
        ["if offered", "starttls", "tls"],
        default_value="if offered",
        config=True,
        help="""Whether the connection is encrypted: by STARTTLS if the server offers it, by STARTTLS or not at all, or
        from the beginning (port 465).""",
    )
    user = Unicode("", config=True, help="User name at the server; empty: the hub does not sign in.")
    password_file = Unicode(
        "", config=True, help="File with that user's password, which the hub's account alone should be able to read."
    )
    sender = Unicode("", config=True, help="The address that mails come from, such as `jupyterhub@example.org`.")
    address: Union = Union(
        [Unicode(), Callable()],
        default_value="",
        config=True,
        help="""A user's address: a template such as `{user}@example.org`, or a function of JupyterHub's `User`, such as
        one that reads `await user.get_auth_state()`. It may be a coroutine function, and else must not block. Who has
        none (None or an empty text) gets no mail.""",
    )
    before_end = Count(
        30, low=5, high=1440, config=True, help="Minutes before a server's end at which its user gets a mail."
    )
    per_day = Count(10, low=1, high=1000, config=True, help="Mails that one person gets in 24 hours at most.")

    def __init__(self, **kwargs: Any) -> None:
        """Raises TraitError, and ConfigError for settings with which no mail would arrive."""
        super().__init__(**kwargs)
        if not self.server:
            return
        host, _, port = self.server.partition(":")
        if not host or not (port or "25").isdecimal():
            raise ConfigError(f"{self.server!r} is no host, or host:port.", where="c.GPUMail.server")
        if not is_address(self.sender):
            raise ConfigError(f"{self.sender!r} is no address.", where="c.GPUMail.sender")
        if not callable(self.address) and not is_address(self.address.replace("{user}", "ada")):
            raise ConfigError(
                f"{self.address!r} is neither a template of addresses nor a function.",
                where="c.GPUMail.address",
                hint="Such as {user}@example.org.",
            )
        if self.user and (not self.password_file or self.security == "if offered"):
            raise ConfigError(
                "it needs password_file, and security starttls or tls, so that nobody else reads the password.",
                where="c.GPUMail.user",
            )
        if not self.config.JupyterHub.get("public_url"):
            raise ConfigError("mails have links, which need it.", where="c.JupyterHub.public_url")
        if find_spec("aiosmtplib") is None:
            raise ConfigError(
                "mails need aiosmtplib.",
                where="c.GPUMail.server",
                hint="pip install 'jupyterhub-gpuspawner[mail]'.",
            )
