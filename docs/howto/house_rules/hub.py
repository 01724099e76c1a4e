"""What the rules of the house add to a hub: a setting, a page, a link and a line on each card."""

from collections.abc import Iterator
from typing import Any

from jupyterhub.handlers.base import BaseHandler
from tornado import web
from traitlets import List, Unicode
from traitlets.config import Configurable

from jupyterhub_gpuspawner.hub.extension import HubExtension, Link, ServerPart


class HouseRules(Configurable):
    """Settings, as ``c.HouseRules``."""

    rules: List[str] = List(Unicode(), config=True, help="The rules, in the order in which they are shown.")


class RulesPage(BaseHandler):
    """``/hub/gpuspawner/rules``, for everybody who is signed in."""

    @web.authenticated
    async def get(self) -> None:
        """The rules, as a list."""
        rules = HouseRules(config=self.config).rules
        self.finish(await self.render_template("house_rules.html", rules=rules))


def parts_of(_spawner: Any, server: Any) -> Iterator[ServerPart]:
    """One line on the card of a server that runs."""
    if server.ready:
        yield ServerPart("house_rules", template="house_rules_card.html")


HUB = HubExtension(
    settings=(HouseRules,),
    pages=((r"/gpuspawner/rules", RulesPage),),
    links=(Link("Rules", "gpuspawner/rules", lambda _scopes, user: user is not None),),
    parts_of=parts_of,
)
