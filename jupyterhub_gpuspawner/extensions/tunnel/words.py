"""What is said to users of the way to their servers."""

from __future__ import annotations

MISSING = "The hub has no connection to the node at the moment, and tries again."
INTERRUPTED = (
    "The hub has no connection to the node of this server at the moment. The server goes on, and can be used again "
    "when the connection is back."
)
