"""What a person reads while a server starts: one event from what is known of its job. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jupyterhub_gpuspawner.job import Phase, sentence

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.job import JobStatus
    from jupyterhub_gpuspawner.wire import PlacementDocument

_PERCENT = {Phase.QUEUED: 20, Phase.STARTING: 40, Phase.RUNNING: 60, Phase.ENDING: 60, Phase.ENDED: 60}


def event(
    job_id: str, job: JobStatus | None, placement: PlacementDocument | None, *, silent: bool = False
) -> dict[str, Any]:
    """Percent and sentence; ``job`` and ``placement`` are None until told, ``silent``: Slurm does not answer now."""
    if not job_id:
        return {"progress": 5, "message": "Asking Slurm for a job."}
    if placement is not None:
        return {"progress": 85, "message": f"Job {job_id}: {placed(placement)} The server is starting."}
    if silent:
        return {"progress": 20, "message": f"Job {job_id}: Slurm does not answer at the moment. The job is kept."}
    if job is None:
        return {"progress": 10, "message": f"Submitted as job {job_id}."}
    return {"progress": _PERCENT.get(job.phase, 20), "message": f"Job {job_id}: {sentence(job)}"}


def placed(placement: PlacementDocument) -> str:
    """One sentence for a participant: node, GPUs, cores."""
    names = sorted({gpu.name or "GPU" for gpu in placement.gpus})
    gpus = f", {len(placement.gpus)} x {' and '.join(names)}" if placement.gpus else ""
    cores = f", cores {placement.cpus}" if placement.cpus else ""
    return f"running on {placement.node}{gpus}{cores}."
