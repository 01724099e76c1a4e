"""Slurm's job states and reasons."""

from __future__ import annotations

from jupyterhub_gpuspawner.slurm import job as jobs
from jupyterhub_gpuspawner.slurm import reason

from .wording import code, table


def page() -> str:
    """The page of job states and reasons."""
    rows = []
    for state, phase in jobs.PHASES.items():
        job = jobs.Job("1", phase, state=state, end=jobs.end_of(state))
        end = jobs.ENDS[state].value if state in jobs.ENDS else ""
        rows.append((code(state), phase.value, end, jobs.job_words(job).sentence))
    reasons = [_reason(name, meaning) for name, meaning in reason.REASONS.items()]
    phrases = [_reason(pattern, meaning) for pattern, meaning in reason.PHRASES.items()]
    limits = [_reason(name, reason.meaning(name)) for name in LIMITS]
    head = ("Reason", "What a participant reads", "For the admin", "Waiting helps")
    return "\n".join(
        [
            "# States and reasons\n",
            "## Job states\n",
            "A state that is not in this table is *unknown*, and a server with such a job is kept.\n",
            table(("Slurm's state", "Phase", "End", "What a participant reads"), rows),
            "## Reasons\n",
            "For a queued job, the sentence is that of its reason. An unknown reason is shown unchanged.\n",
            table(head, reasons),
            "## Reasons that contain names or numbers\n",
            "As regular expressions.\n",
            table(head, phrases),
            "## Limits\n",
            "Names of limits consist of scope, kind, resource and entity. Some of them:\n",
            table(head, limits),
        ]
    )


LIMITS = (
    "QOSMaxGRESPerUser",
    "QOSMaxJobsPerUserLimit",
    "QOSMaxWallDurationPerJobLimit",
    "QOSGrpGRES",
    "QOSMinGRES",
    "AssocGrpCpuLimit",
    "AssocGrpGRESMinutes",
    "AssocMaxJobsLimit",
    "MaxCpuPerAccount",
)
"""An example of each form."""


def _reason(name: str, meaning: reason.Meaning) -> tuple[str, str, str, str]:
    return code(name), meaning.sentence, meaning.hint, "yes" if meaning.clears else "no"
