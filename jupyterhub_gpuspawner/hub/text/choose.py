"""The page on which a server is chosen."""

from __future__ import annotations

from jupyterhub_gpuspawner.hub.text import _

FROM_A_LINK = _("This link has filled in the form. Nothing has been started yet: look it over, and start.")
