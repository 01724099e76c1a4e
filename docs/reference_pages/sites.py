"""A page for each configuration in ``tests/data/sites``: what it was, the command, the result, the differences."""

from __future__ import annotations

from pathlib import Path

from jupyterhub_gpuspawner.migrate.migration import migrate
from jupyterhub_gpuspawner.migrate.result_files import PROFILES, configuration, differences_tables, profiles_yaml

SITES = Path(__file__).parents[2] / "tests" / "data" / "sites"
AT = "/etc/jupyterhub"
"""The folder of each configuration, as the pages show it."""
ABOUT = {
    "workshop": (
        "A workshop in 2017",
        "33 people used the GPU nodes of one cluster from the browser. The profiles are pairs, an early form of "
        "wrapspawner's tuples, and the job script has options that Slurm no longer knows.",
    ),
    "wrapspawner": (
        "A department with wrapspawner",
        "Profiles that are made in a loop, on top of batchspawner's own job script: one server on the hub's machine, "
        "jobs with GPUs of one type, a course with a reservation, and a container in Docker.",
    ),
    "moss": (
        "moss as its guide introduces it",
        "Three partitions, one of them with GPUs, each with Python environments to choose from.",
    ),
    "vub": (
        "A site like VUB",
        "moss in a container without accounts and without Slurm. A class of the site's own takes home folders from a "
        "directory, all commands go through ssh to a login node, and the server starts in a shell without the user's "
        "startup files.",
    ),
    "isambard": (
        "A site like Isambard",
        "batchspawner in a pod. The spawner is a class of the site's own that is not installed where the command runs, "
        "and three scripts on a login node stand between the hub and Slurm.",
    ),
    "comet": (
        "A remote supercomputer, like Comet's in jupyterhub-deploy-hpc",
        "batchspawner with commands that go through ssh with certificates, and a job that opens a tunnel to the hub.",
    ),
    "magic-castle": (
        "A cluster like those of Magic Castle",
        "SlurmFormSpawner with its defaults, and one more interface. The cluster decides what the form offers.",
    ),
    "presets": (
        "SlurmFormSpawner with bounds and presets",
        "A teaching cluster whose form has fixed bounds, a locked partition and account, two presets, and a job script "
        "of its own.",
    ),
}
"""Title and introduction of each page, in the order of the list."""


def pages() -> dict[str, str]:
    """The text of each page, by its path relative to the folder of the reference."""
    return {f"../sites/{name}.md": _page(name) for name in ABOUT} | {"../sites/README.md": _list()}


def _list() -> str:
    lines = [f"- [{title}]({name}.md)" for name, (title, _) in ABOUT.items()]
    guide = "[`gpuspawner migrate`](../howto/migrate-from-batchspawner.md)"
    about = (
        f"Configurations like those of public sites, and what {guide} makes of them. They have the shape of the real "
        "ones; names, paths and numbers are made up."
    )
    return "# Sites that move in\n\n" + about + "\n\n" + "\n".join(lines) + "\n"


def _page(name: str) -> str:
    title, about = ABOUT[name]
    folder = SITES / name
    migration = migrate(folder / "jupyterhub_config.py")
    others = [
        f"`{path.name}`, beside it:\n\n```sh\n{path.read_text('utf-8')}```\n"
        for path in sorted(folder.iterdir())
        if path.suffix == ".sh"
    ]
    parts = [
        f"# {title}\n",
        f"{about}\n",
        "## The configuration\n",
        f"```py\n{(folder / 'jupyterhub_config.py').read_text('utf-8')}```\n",
        *others,
        "## The command\n",
        "```console\n$ gpuspawner migrate jupyterhub_config.py\n```\n",
        "## The result\n",
        f"`migrated/jupyterhub_config.py`:\n\n```py\n{configuration(migration)}```\n",
        f"`migrated/{PROFILES}`:\n\n```yaml\n{profiles_yaml(migration.in_files)}```\n",
        f"## The differences\n{differences_tables(migration.differences, '###')}",
    ]
    return "\n".join(parts).replace(str(folder), AT)
