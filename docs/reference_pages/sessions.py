"""The events of sessions."""

from __future__ import annotations

from typing import Any

import yaml

from jupyterhub_gpuspawner.hub.job.cause import Kind
from jupyterhub_gpuspawner.hub.job.session import EVENTS, SCHEMAS

from .wording import attribute_docs, code, markdown, table


def page() -> str:
    """The page of session events and records."""
    kinds = attribute_docs(Kind)
    parts = [
        "# Sessions\n",
        "A session is one start of a server as a Slurm job, with all that follows until it has ended. "
        "[Keep records of sessions](../howto/session-records.md) says how to use this.\n",
        "## Causes\n",
        "Why a session ended. It is derived from the job's state in Slurm, from who asked for a stop, and from the "
        "class of the error of a start that failed.\n",
        table(("Cause", "Meaning"), [(code(kind.value), markdown(kinds[kind.name])) for kind in Kind]),
        "## Events\n",
        "Their schemas are in `jupyterhub_gpuspawner/hub/job/schemas`. JupyterHub's event log adds the time.\n",
    ]
    for event in EVENTS:
        schema = yaml.safe_load((SCHEMAS / f"{event.NAME}.yaml").read_text("utf-8"))
        rows = [(code(name), _type(about), about["description"]) for name, about in schema["properties"].items()]
        parts += [
            f"### {event.NAME}\n",
            f"{code(schema['$id'])}: {schema['description'].partition(chr(10) * 2)[0].replace(chr(10), ' ')}\n",
            table(("Field", "Type", "Meaning"), rows),
        ]
    return "\n".join(parts)


def _type(about: dict[str, Any]) -> str:
    json_type = about["type"]
    return " or ".join(json_type) if isinstance(json_type, list) else str(json_type)
