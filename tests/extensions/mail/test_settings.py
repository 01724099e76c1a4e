"""What an admin sets for mails."""

from __future__ import annotations

from typing import Any

import pytest
from traitlets.config import Config

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extensions.mail.message import is_address
from jupyterhub_gpuspawner.extensions.mail.settings import GPUMail

PUBLIC = {"public_url": "https://hub.example.org/"}
RIGHT = {"server": "mail.example.org:587", "sender": "hub@example.org", "address": "{user}@example.org"}


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"server": "mail.example.org:smtp"}, "c.GPUMail.server"),
        ({"sender": ""}, "c.GPUMail.sender"),
        ({"sender": "The hub <hub@example.org>"}, "c.GPUMail.sender"),
        ({"address": ""}, "c.GPUMail.address"),
        ({"user": "hub", "security": "starttls"}, "c.GPUMail.user"),
        ({"user": "hub", "password_file": "/etc/jupyterhub/mail"}, "c.GPUMail.user"),
    ],
)
def test_settings_with_which_no_mail_would_arrive_are_refused(change: dict[str, Any], where: str) -> None:
    """When the hub starts, by the setting at fault."""
    with pytest.raises(ConfigError) as raised:
        GPUMail(config=Config(JupyterHub=PUBLIC), **{**RIGHT, **change})
    assert raised.value.where == where


def test_mails_have_links_so_the_hub_must_know_its_address() -> None:
    """Without a server there are no mails, and nothing has to be set."""
    assert not GPUMail(config=Config()).server
    with pytest.raises(ConfigError, match="mails have links"):
        GPUMail(config=Config(), **RIGHT)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("ada.l+hub@physics.example.org", True),
        ("ada@localhost", True),
        ("ada", False),
        ("ada@example.org, bob@example.org", False),
        ("ada@example.org\n", False),
        ("ada@example.org\r\nBcc: bob@example.org", False),
        ("Ada <ada@example.org>", False),
        ("ädä@example.org", False),
        (None, False),
        (b"ada@example.org", False),
    ],
)
def test_an_address_is_one_address_and_nothing_beside_it(text: object, is_one: bool) -> None:
    """Whatever a directory says."""
    assert is_address(text) is is_one
