"""Why starts failed, in words for whoever mends the cause: what happened, and what to do. Pure.

They stand in ``explanation.yaml``. What the participant reads is another text: that of an ending, in
:mod:`jupyterhub_gpuspawner.hub.job.ending`.
"""

from __future__ import annotations

from typing import NamedTuple

from jupyterhub_gpuspawner.slurm.commands import COMMAND
from jupyterhub_gpuspawner.slurm.reason import table


class Explanation(NamedTuple):
    """A cause in words."""

    sentence: str
    fix: str
    """The command or line that mends it, or shows more."""


_TABLE = table(__file__)


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
    facts |= {name: text.format(**facts) for name, text in _TABLE["parts"].items()}
    texts = _TABLE["causes"].get(fault, _TABLE["unknown"])
    return Explanation(**{name: text.format(**facts) for name, text in texts.items()})
