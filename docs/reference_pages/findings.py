"""The codes of ``gpuspawner check``."""

from __future__ import annotations

from jupyterhub_gpuspawner.check import run  # noqa: F401 - with it the modules of all checks are imported
from jupyterhub_gpuspawner.check.finding import CODES

from .wording import code, markdown, table


def page() -> str:
    """The page of findings."""
    rows = [(code(name), markdown(finding.meaning)) for name, finding in sorted(CODES.items())]
    return "\n".join(
        [
            "# Findings\n",
            "Every line of `gpuspawner check` has one of these codes. Whether it is in order, a warning or an error is "
            "said by the line itself. [Check a site](../howto/check.md) shows how the command is used.\n",
            table(("Code", "When it is reported"), rows),
        ]
    )
