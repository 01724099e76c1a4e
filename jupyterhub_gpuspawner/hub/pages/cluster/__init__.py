"""The administrators' map of the cluster."""
