"""The map of the cluster and the health of its nodes."""
