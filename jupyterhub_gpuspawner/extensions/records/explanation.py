"""Why starts failed, in words for whoever mends the cause: what happened, and what to do. Pure.

They stand in ``explanations.yaml``. What the participant reads is another text: that of an ending, in
:mod:`jupyterhub_gpuspawner.hub.job.ending`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from jupyterhub_gpuspawner.slurm.commands import COMMAND


class Explanation(NamedTuple):
    """A cause in words."""

    sentence: str
    fix: str
    """The command or line that mends it, or shows more."""


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("explanations.yaml").read_text("utf-8"))
    return table


def explanation(
    fault: str, *, subject: str = "", node: str = "", profile: str = "", job: str = "", slurm: str = COMMAND
) -> Explanation:
    """A start's fault in words, with what mends it; ``subject`` is the module or environment that it is about.

    ``slurm`` is how a command of Slurm's is typed for the start's cluster, as :data:`COMMAND`.
    """
    facts = {"node": node or "the node", "profile": profile or "(none)", "job": job or "JOB"}
    facts |= {name: slurm.replace(COMMAND, name) for name in ("scontrol", "squeue", "sacct")}
    facts["module"] = f"The module {subject}" if subject else "A module"
    facts["conda"] = f"The conda environment {subject}" if subject else "A conda environment"
    facts |= {name: text.format(**facts) for name, text in _table()["parts"].items()}
    texts = _table()["causes"].get(fault, _table()["unknown"])
    return Explanation(**{name: text.format(**facts) for name, text in texts.items()})
