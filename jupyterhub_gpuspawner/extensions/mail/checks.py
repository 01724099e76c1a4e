"""Whether the SMTP server takes the hub's mails, and who has no address."""

from __future__ import annotations

from collections.abc import AsyncIterator

from jupyterhub_gpuspawner.check.finding import Code, Context, Finding, names_no_cluster
from jupyterhub_gpuspawner.extensions.mail.message import is_address
from jupyterhub_gpuspawner.extensions.mail.post import client_of, in_words
from jupyterhub_gpuspawner.extensions.mail.settings import GPUMail
from jupyterhub_gpuspawner.words import some

CONNECTS = Code("mail", "The SMTP server takes a connection of the hub's, and its password if it has one.")
FAILS = Code("mail-fails", "The SMTP server takes no mails now: those of the hub would wait.")
NO_ADDRESS = Code("mail-no-address", "The template makes no address of the names of some users, who get no mails.")


@names_no_cluster
async def check_mail(context: Context) -> AsyncIterator[Finding]:
    """Connect to the server, and send nothing; make the addresses of the users that are known."""
    settings = GPUMail(config=context.site.config)
    if not settings.server:
        return
    import aiosmtplib  # of an extra, which the settings have looked for

    where = "c.GPUMail.server"
    try:
        async with await client_of(settings):
            pass
    except (aiosmtplib.SMTPException, OSError, ValueError) as error:
        yield FAILS.warning(
            where,
            f"{settings.server} takes no mails: {in_words(error)}.",
            "Look at its port, at security and at the password. Mails wait in the database until it does.",
        )
    else:
        yield CONNECTS.ok(where, f"{settings.server} takes the connection")
    if callable(settings.address):
        return  # it is given JupyterHub's users, whom only a hub has
    without = sorted(name for name in context.people.users if not is_address(settings.address.replace("{user}", name)))
    if without:
        yield NO_ADDRESS.warning(
            "c.GPUMail.address",
            f"{settings.address!r} makes no address for {some(without)}, who would get no mails.",
            "Use a function that knows their addresses.",
        )
