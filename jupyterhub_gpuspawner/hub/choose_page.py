"""The page on which a server is chosen: a link fills the form in, and only a person's click starts anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyterhub.handlers.pages import SpawnHandler

if TYPE_CHECKING:
    from collections.abc import Mapping


class ChoosePage(SpawnHandler):
    """JupyterHub's page, except that a GET with ``opt-`` options starts nothing.

    JupyterHub starts a server on such a GET, so that a link in a mail could spend a person's GPU hours.
    """

    linked: Mapping[str, list[str]] = {}
    """The options of the link that led here, as they came; for the form."""

    def _get_user_options(self, query_options: Mapping[str, list[str]]) -> dict[str, list[str]]:
        self.linked = super()._get_user_options(query_options)
        return {}
