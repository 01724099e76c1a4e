"""A page with three configurations of ``tests/data/sites``: what each was, what is printed, the differences."""

from __future__ import annotations

from pathlib import Path

from jupyterhub_gpuspawner.migrate.migration import migrate
from jupyterhub_gpuspawner.migrate.result import differences_tables, profiles_yaml, settings_text

SITES = Path(__file__).parents[2] / "tests" / "data" / "sites"
AT = "/etc/jupyterhub"
"""The folder of each configuration, as the pages show it."""
ABOUT = {
    "workshop": (
        "A workshop in 2017",
        "33 people used the GPU nodes of one cluster from the browser. The profiles are pairs, an early form of "
        "wrapspawner's tuples, and the job script has options that Slurm no longer knows.",
    ),
    "moss": (
        "moss as its guide introduces it",
        "Three partitions, one of them with GPUs, each with Python environments to choose from.",
    ),
    "presets": (
        "SlurmFormSpawner with bounds and presets",
        "A teaching cluster whose form has fixed bounds, a locked partition and account, two presets, and a job script "
        "of its own.",
    ),
}
"""Title and introduction of each site."""


def page() -> str:
    """The page of the three sites."""
    guide = "[`gpuspawner migrate`](../howto/migrate-from-batchspawner.md)"
    about = (
        f"Three configurations like those of public sites, and what {guide} makes of them. They have the shape of the "
        "real ones; names, paths and numbers are made up."
    )
    return "\n".join(["# Three converted configurations\n", f"{about}\n", *map(_section, ABOUT)])


def _section(name: str) -> str:
    title, about = ABOUT[name]
    folder = SITES / name
    migration = migrate(folder / "jupyterhub_config.py")
    scripts = [
        f"`{path.name}`, beside it:\n\n```sh\n{path.read_text('utf-8')}```\n"
        for path in sorted(folder.iterdir())
        if path.suffix == ".sh"
    ]
    parts = [
        f"## {title}\n",
        f"{about}\n",
        f"```py\n{(folder / 'jupyterhub_config.py').read_text('utf-8')}```\n",
        *scripts,
        "`gpuspawner migrate jupyterhub_config.py` prints these settings:\n",
        f"```py\n{settings_text(migration)}```\n",
        "these profiles:\n",
        f"```yaml\n{profiles_yaml(migration.in_files)}```\n",
        f"and these differences:\n{differences_tables(migration.differences, '###')}",
    ]
    return "\n".join(parts).replace(str(folder), AT)
