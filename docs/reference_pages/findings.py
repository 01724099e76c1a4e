"""The codes of ``gpuspawner check``."""

from __future__ import annotations

from jupyterhub_gpuspawner.check import run  # noqa: F401 - with it the modules of all checks are imported
from jupyterhub_gpuspawner.check.finding import CODES, Code
from jupyterhub_gpuspawner.extension import installed

from .wording import code, markdown, table


def page() -> str:
    """The page of findings."""
    for extension in installed():
        if extension.checks:
            extension.load(extension.checks)
    rows = [(code(name), markdown(_meaning(kind))) for name, kind in sorted(CODES.items())]
    return "\n".join(
        [
            "# Findings\n",
            "Every line of `gpuspawner check` has one of these codes. Whether it is in order, a warning or an error is "
            "said by the line itself. [Check a site](../howto/check.md) shows how the command is used.\n",
            table(("Code", "When it is reported"), rows),
        ]
    )


def _meaning(kind: Code) -> str:
    return f"With {kind.only_with}: {kind.meaning}" if kind.only_with else kind.meaning
