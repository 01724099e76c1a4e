"""The document of messages."""

from __future__ import annotations

from docs.reference_pages.document import Document
from jupyterhub_gpuspawner.extensions.messages import api

DOCUMENTS = (
    Document(
        "Messages document",
        api.VERSION,
        api.MessagesDocument,
        "A request to show a message has a JSON object with its `message`, a text; `to`, one of "
        '`{"everybody": true}`, `{"user": name}`, `{"user": name, "server": name}` (empty for the default server), '
        '`{"profile": slug}`, `{"cluster": name}`, `{"node": name}` (of every cluster) and `{"cluster": name, "node": '
        "name}`; and `minutes` for which it is shown, "
        f"{api.DEFAULT_MINUTES} if absent. A request to withdraw one has `to`.",
    ),
)
