"""Who would get a server: Slurm's own scheduler is asked, on a copy of the cluster that has no nodes."""

from jupyterhub_gpuspawner.extension import Command, Extension

EXTENSION = Extension(
    name="seats",
    about="Asks a copy of the cluster's scheduler which servers would run together, today and after a change.",
    needs=("availability",),
    commands={
        "what-if": Command(
            ".cli:what_if", "Show which servers of a profile would run, and on what: today, and after a change."
        )
    },
    login_scripts={"twin": "controller.py"},
)
