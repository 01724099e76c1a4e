"""What ``gpuspawner check`` says of mails before the evening on which one is missed."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyterhub_gpuspawner.check import run
from jupyterhub_gpuspawner.extensions.mail import checks
from jupyterhub_gpuspawner.site.configuration import load_site
from tests.extensions.mail.test_post import Box, server_of

HUB = """
c.JupyterHub.spawner_class = "gpu-slurm"
c.JupyterHub.public_url = "https://hub.example.org/"
c.GPUSlurmSpawner.exec_prefix = "sudo -u {username}"
c.Authenticator.allowed_users = {"ada", "team 7"}
"""
SENT = "c.GPUMail.server = 'SERVER'; c.GPUMail.sender = 'hub@example.org'"
TEMPLATE = f"{SENT}; c.GPUMail.address = '{{user}}@example.org'"
TAKES = "ok    c.GPUMail.server: SERVER takes the connection"
MISSING = (
    "warn  c.GPUMail.address: '{user}@example.org' makes no address for team 7, who would get no mails. Use a function "
    "that knows their addresses. [mail-no-address]"
)


async def found(folder: Path, lines: str) -> list[str]:
    """What the check says of a hub with these lines."""
    config = folder / "jupyterhub_config.py"
    config.write_text(f"{HUB}{lines}\n")
    context = await run.context_of(load_site(config))
    return [run.line(finding) for finding in await run.findings(context, (checks.check_mail,))]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("", []),
        (TEMPLATE, [TAKES, MISSING]),
        (f"{SENT}; c.GPUMail.address = lambda user: None", [TAKES]),
    ],
    ids=["no mails", "a template", "a function"],
)
async def test_a_server_that_answers_and_who_has_no_address_are_told(
    tmp_path: Path, lines: str, said: list[str]
) -> None:
    """Without a mail."""
    box = Box()
    async with server_of(box) as server:
        told = await found(tmp_path, lines.replace("SERVER", server))
    assert told == [line.replace("SERVER", server) for line in said]
    assert box.told == []


async def test_a_server_that_does_not_answer_is_told(tmp_path: Path) -> None:
    """With its own words."""
    async with server_of(Box()) as gone:
        pass
    first, *_ = await found(tmp_path, TEMPLATE.replace("SERVER", gone))
    assert first.startswith(f"warn  c.GPUMail.server: {gone} takes no mails: ")
    assert first.endswith("[mail-fails]")
