"""Commands that look at a compute node: its topology, the placement of a job, its bandwidth."""
