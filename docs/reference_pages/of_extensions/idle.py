"""What idle servers add to the document of a session."""

from __future__ import annotations

from jupyterhub_gpuspawner.extensions.idle.part import IdleNotice

ALSO = {"Session document": ((IdleNotice, "`idle`."),)}
