"""What several commands share: options, columns, and how an error ends a command."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import NoReturn

import click

from jupyterhub_gpuspawner.errors import GPUSpawnerError, SlurmUnavailable

CONFIG = click.option(
    "--config",
    "-f",
    default="jupyterhub_config.py",
    show_default=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The hub's configuration file.",
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print a JSON document, with its version.")
JSON_VERSION = 1
"""Of the documents that the commands make themselves."""
OPTION = click.option(
    "--option", "options", multiple=True, metavar="NAME=VALUE", help="Value of a profile option; may be repeated."
)
CLUSTER = click.option(
    "--cluster",
    default="",
    metavar="NAME",
    help="Cluster of the job, if the profile starts servers on several; the choice that leads there is made.",
)
EXIT_CONFIG, EXIT_SLURM = 1, 3
_UNITS = {"min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_AGO = re.compile(r"([0-9]{1,5})(min|h|d|w)", re.ASCII)


def since(_context: click.Context, _option: click.Parameter, value: str | None) -> float | None:
    """A time in seconds since the epoch: ``90min``, ``12h``, ``7d`` and ``4w`` ago, or a date."""
    if value is None:
        return None
    ago = _AGO.fullmatch(value)
    if ago is not None:
        return time.time() - int(ago[1]) * _UNITS[ago[2]]
    try:
        return datetime.strptime(value, "%Y-%m-%d").astimezone().timestamp()
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is not a time: use for example 90min, 12h, 30d, 4w or 2026-03-02."
        ) from None


def choice_of(profile: str, options: Sequence[str]) -> dict[str, object]:
    """The choice of a profile with the values of ``--option``; raises BadParameter."""
    choice: dict[str, object] = {"profile": profile}
    for pair in options:
        name, equals, value = pair.partition("=")
        if not equals:
            raise click.BadParameter(f"{pair!r} must be NAME=VALUE", param_hint="--option")
        choice[name] = value
    return choice


def table(rows: Iterable[Sequence[str]]) -> str:
    """Columns separated by two blanks, each as wide as its longest value, without what a terminal would act on."""
    lines = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def printable(text: str) -> str:
    """The text without characters that a terminal would act on."""
    return "".join(filter(str.isprintable, text))


def fail(error: GPUSpawnerError) -> NoReturn:
    """Print the error and exit: with 3 where Slurm does not answer, else with 1."""
    click.echo(f"gpuspawner: {error}", err=True)
    raise SystemExit(EXIT_SLURM if isinstance(error, SlurmUnavailable) else EXIT_CONFIG)
