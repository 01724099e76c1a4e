"""What is known of each node from the reports of its servers: its differences from its siblings, and gres.conf."""

from jupyterhub_gpuspawner.extension import Command, Extension

EXTENSION = Extension(
    name="fleet",
    about="Keeps what servers report of their nodes, and finds nodes that differ from others with the same GPUs.",
    needs=("records", "seats"),
    hub=".hub:HUB",
    commands={
        "fleet": Command(
            ".cli:fleet", "Show which nodes differ from their siblings, and how well Slurm places jobs on them."
        )
    },
    forget=".store:forget_reporter",
    command_options={"topology": ".topology:with_gres_conf"},
)
