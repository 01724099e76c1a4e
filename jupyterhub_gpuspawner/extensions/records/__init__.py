"""A record of each session, and what follows from many: failing starts, failing nodes, how long waits are."""

from jupyterhub_gpuspawner.extension import Command, Extension

EXTENSION = Extension(
    name="records",
    about="Keeps a record of each session, learns from past waits, and finds nodes on which starts fail.",
    hub=".hub:HUB",
    commands={
        "failures": Command(
            ".cli_failures:failures",
            "List starts that failed by cluster, cause and profile, with their nodes, and what mends each cause.",
        ),
        "sessions": Command(".cli:sessions", "Read, export and delete the records of sessions."),
        "why": Command(
            ".cli_failures:why",
            "Say what happened to the last server of USER: how long it waited, where it ran, and why it ended.",
        ),
    },
)
