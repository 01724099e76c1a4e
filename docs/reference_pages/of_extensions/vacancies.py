"""The document of free GPUs."""

from __future__ import annotations

from docs.reference_pages.document import Document
from jupyterhub_gpuspawner.extensions.vacancies import counts

DOCUMENTS = (
    Document(
        "Free GPUs",
        counts.VERSION,
        counts.FreeGPUsDocument,
        "Everybody may read it, without a token, where `c.FreeGPUs.enabled` is set; it may be kept for a minute.",
    ),
)
