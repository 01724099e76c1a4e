"""What mails add to a hub."""

from __future__ import annotations

from jupyterhub_gpuspawner.extensions.mail.pages import MailPage, WishPage, below_wait
from jupyterhub_gpuspawner.extensions.mail.post import Wish, begin_mail
from jupyterhub_gpuspawner.extensions.mail.settings import GPUMail
from jupyterhub_gpuspawner.extensions.mail.store import TABLES
from jupyterhub_gpuspawner.hub.extension import HubExtension
from jupyterhub_gpuspawner.hub.web.handlers import server_routes

HUB = HubExtension(
    settings=(GPUMail,),
    tables=TABLES,
    begin=(begin_mail,),
    pages=((r"/gpuspawner/mail", MailPage), *server_routes("/gpuspawner/mail", WishPage)),
    with_server=Wish,
    below_wait=below_wait,
)
