"""The document of ``gpuspawner what-if``."""

from __future__ import annotations

from docs.reference_pages.document import Document
from jupyterhub_gpuspawner.extensions.seats.what_if import WhatIfDocument

DOCUMENTS = (Document("What-if document", WhatIfDocument.version, WhatIfDocument),)
