"""The extensions of this package, and what each adds."""

from __future__ import annotations

from jupyterhub_gpuspawner.cli.extensions import added_by
from jupyterhub_gpuspawner.extension import installed

from .wording import code, table


def page() -> str:
    """The page of extensions."""
    parts = [
        "# Extensions\n",
        "What a hub shows beside profiles, the form, waiting, placement, cards, logs and stopping comes from "
        "extensions. A hub has all that are installed, unless `c.GPUProfilesSpawner.extensions` names some; "
        "`gpuspawner extensions` lists them. Each is a folder of `jupyterhub_gpuspawner/extensions/` that can be "
        "deleted, and a site or another package can bring its own.\n",
        table(
            ("Extension", "What it adds", "Needs"),
            [(code(each.name), each.about, ", ".join(map(code, each.needs))) for each in installed()],
        ),
    ]
    for extension in installed():
        added = added_by(extension)
        rows = [(kind, ", ".join(map(code, names))) for kind, names in added.adds.items()]
        parts += [f"## {extension.name}\n", table(("Kind", "Names"), rows)]
    return "\n".join(parts)
