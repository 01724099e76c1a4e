"""The document and the metric of use."""

from __future__ import annotations

from docs.reference_pages.document import Document
from jupyterhub_gpuspawner.extensions.usage import api
from jupyterhub_gpuspawner.extensions.usage.metric import GpuUseCollector

DOCUMENTS = (Document("Usage document", api.VERSION, api.UsageDocument),)
METRICS = (GpuUseCollector(),)
