"""Mails of a real hub: the button on the waiting page, the page that ends them, and what arrives."""

from __future__ import annotations

import smtplib
from collections.abc import Iterator
from typing import Any

import pytest

from jupyterhub_gpuspawner.demo.hub import HubProcess
from tests.fixtures.hubs import StartHub
from tests.hub.visitor import Visitor
from tests.waiting import wait_until

controller = pytest.importorskip("aiosmtpd.controller", reason="`scripts/setup test` installs it")
pytest.importorskip("aiosmtplib", reason="`scripts/setup test` installs it")
pytestmark = [pytest.mark.slurm, pytest.mark.hub]


class Arrived:
    """Mails as the site's server got them."""

    def __init__(self) -> None:
        self.mails: list[tuple[str, str]] = []

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:
        """To whom it is, and its text."""
        self.mails.append((envelope.rcpt_tos[0], envelope.content.decode()))
        return "250 OK"


@pytest.fixture(scope="module")
def arrived() -> Iterator[tuple[Arrived, int]]:
    """A server of the site's, and its port."""
    mails = Arrived()

    def port() -> int:
        return int(server.server.sockets[0].getsockname()[1])

    server = controller.Controller(mails, hostname="127.0.0.1", port=0, ready_timeout=20)
    server._trigger_server = lambda: smtplib.SMTP("127.0.0.1", port(), timeout=20).close()  # it knows no port 0
    server.start()
    yield mails, port()
    server.stop()


@pytest.fixture(scope="module")
def hub(start_light_hub: StartHub, arrived: tuple[Arrived, int]) -> HubProcess:
    """A hub that sends through it."""
    return start_light_hub(
        lines=f"""
c.Authenticator.allowed_users = {{"fay", "gus"}}
c.JupyterHub.public_url = "http://hub.example.org/"  # cookies of https are for https alone
c.GPUMail.server = "127.0.0.1:{arrived[1]}"
c.GPUMail.sender = "hub@example.org"
c.GPUMail.address = "{{user}}@example.org"
"""
    )


def test_who_clicks_on_the_waiting_page_is_mailed_once_when_the_server_is_ready(
    hub: HubProcess, arrived: tuple[Arrived, int]
) -> None:
    """Asked twice, also after it was ready; who has ended all mails is offered to allow them."""
    fay, path = Visitor(hub, "fay"), "/hub/gpuspawner/mail/fay"
    fay.start({"profile": "light"})
    page = fay.pending()
    if page.soup.select_one("#gpuspawner-mail") is not None:  # it may be ready by now
        assert "Mail me when it is ready" in page.text
    answers = [fay.click(path, wanted="1").status_code]
    hub.wait("fay", ready=True)
    answers.append(fay.click(path, wanted="1").status_code)

    wait_until(lambda: arrived[0].mails, "a mail arrives")
    foreign = Visitor(hub, "gus").click(path, wanted="1").status_code
    ends = fay.look("/hub/gpuspawner/mail")
    fay.click("/hub/gpuspawner/mail", allowed="")

    assert (answers, foreign) == ([303, 303], 404)
    assert "Send me no mails" in ends.text
    assert "You get no mails from this hub." in fay.look("/hub/gpuspawner/mail").text
    ((to, text),) = arrived[0].mails
    assert to == "fay@example.org"
    assert "Subject: Light is ready" in text
    assert "http://hub.example.org/hub/spawn-pending/fay" in text
