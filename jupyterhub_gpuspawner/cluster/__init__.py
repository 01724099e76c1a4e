"""One snapshot of the cluster, and whether a job fits it."""
