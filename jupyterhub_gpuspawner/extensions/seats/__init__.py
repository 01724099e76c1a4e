"""The twin: a slurmctld without nodes that answers which jobs a site's Slurm would start, and on what."""
