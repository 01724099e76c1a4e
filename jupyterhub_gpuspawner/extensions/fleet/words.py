"""What the section *Health*, below the map of the cluster, says."""

from __future__ import annotations

HEALTH = "Health"
HEALTH_INTRO = (
    "What servers have reported about their nodes: which nodes differ from most nodes of their kind, and how well "
    "Slurm placed jobs on them. A GPU that no job has seen yet is not judged."
)
NO_REPORTS = "No server has reported from a node with GPUs yet."
AS_REPORTED = "Slurm is not responding; its configuration is that of the last reports."
DIFFERS = "differs"
PERHAPS = "perhaps differs"
ALIKE = "as its siblings"
ALONE = "no siblings"
GRANTS = "Grants"
SIMULATED = "simulated"
ALL_GRANTS = "All nodes together: {grants}."
LAST_REPORT = "last report {ago}"
MORE_REPORTS = "{nodes} not shown: use gpuspawner fleet."
GRES_CONF = (
    "“Siblings” are nodes with the same GPUs in Slurm; a majority of at least two defines what is usual. A grant is "
    "compared with the GPUs that were free when the job started."
)
