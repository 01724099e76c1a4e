"""The document of the map."""

from __future__ import annotations

from docs.reference_pages.document import Document
from jupyterhub_gpuspawner.extensions.cluster_map import survey

DOCUMENTS = (
    Document(
        "Cluster map",
        survey.VERSION,
        survey.ClusterMap,
        "In addition to the fields below it has `totals` of all nodes; `age_s`, its age in seconds; `silent`, true "
        "while Slurm does not answer; in a hub that names its clusters `cluster`, its own, and `clusters`, the names "
        "of all of them; `holders_known`, false if Slurm did not say which job has which GPU; and "
        "`failing_nodes`, the nodes on which the last starts of several people failed, each with `node`, the number of "
        "`starts`, the `people`, and the commands or lines that `drain` and `exclude` it. A partition also has "
        "`waiting`, the number of its pending jobs, and `queue`, the first "
        f"{survey.WAITING_AT_MOST} of them.",
        also=(
            (survey.WaitingJob, "One of a partition's `queue`."),
            (survey.Holder, "One of a node's `jobs`, and of a GPU's `holders`."),
            (survey.MapGpu, "One of a node's `gpus`."),
            (survey.Totals, "`totals`."),
        ),
    ),
)
