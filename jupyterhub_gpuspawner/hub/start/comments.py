"""Whether the site lets the comments of jobs be: the hub's log is told once where it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.jobs.comment import PREFIX

if TYPE_CHECKING:
    import logging

    from jupyterhub_gpuspawner.jobs.identity import JobIdentity
    from jupyterhub_gpuspawner.jobs.status import JobStatus

_TOLD: set[str] = set()
"""What has been said in this process."""


def look_at(job: JobStatus, submitted: JobIdentity, log: logging.Logger) -> None:
    """Compare Slurm's first answer for a job with what was submitted."""
    if job.tag == submitted.tag or "replaced" in _TOLD:
        return
    _TOLD.add("replaced")
    if submitted.name and job.name == submitted.name:
        what = "Jobs are found again by their name instead."
    else:
        what = (
            "Their names do not tell them apart either: a job whose id is lost cannot be found again. "
            "Set c.GPUSlurmSpawner.job_name with {start} in it; an own batch_script must have no --job-name."
        )
    log.warning(
        "Slurm shows the comment %r for job %s, not the one that it was submitted with: something here replaces "
        "comments, such as a plugin of slurm.conf's JobSubmitPlugins or CliFilterPlugins. %s "
        "Let it leave alone comments that begin with %s/.",
        *(job.tag[:80], job.job_id, what, PREFIX),
    )
