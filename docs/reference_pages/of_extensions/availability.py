"""The documents of what is free."""

from __future__ import annotations

from docs.reference_pages.document import Document
from jupyterhub_gpuspawner.extensions.availability.api import ProfilesDocument, TrialDocument

DOCUMENTS = tuple(
    Document(name, cls.version, cls)
    for name, cls in (("Profiles document", ProfilesDocument), ("Trial document", TrialDocument))
)
