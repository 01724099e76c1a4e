"""The document of the health of nodes."""

from __future__ import annotations

from docs.reference_pages.document import Document
from docs.reference_pages.wording import code
from jupyterhub_gpuspawner.extensions.fleet import differences, health

NAMES = {"Difference": differences.Difference, "Contradiction": differences.Contradiction}
DOCUMENTS = (
    Document(
        "Fleet document",
        health.VERSION,
        health.FleetHealth,
        "What `gpuspawner fleet --json` prints, too. A node also has `ill`, true if there are differences or "
        "contradictions. The `kind` of a difference is one of "
        f"{', '.join(code(kind.value) for kind in differences.Kind)}; the `fault` of a contradiction one of "
        f"{', '.join(code(fault.value) for fault in differences.Fault)}.",
    ),
)
