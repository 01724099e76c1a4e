"""What people read where a server does not answer."""

from jupyterhub_gpuspawner.extension import Extension

EXTENSION = Extension(
    "no_answer",
    "Says what is known of a server that does not answer: whether its job runs, and what Slurm says of its node.",
    hub=".hub:HUB",
)
