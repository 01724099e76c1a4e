"""Snapshots of the cluster, and when a job would fit into it."""
