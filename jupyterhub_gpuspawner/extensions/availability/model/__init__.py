"""A snapshot of the cluster as jobs find it: whether and when one would fit, and why it changed."""
