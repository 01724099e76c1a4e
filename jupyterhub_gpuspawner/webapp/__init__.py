"""The hub's sign-in before a web application that has none: a module that runs on the node, in the job's environment.

It needs jupyterhub and jupyter-server-proxy there, so it is not one of the launcher's own modules and is not imported.
"""

from pathlib import Path

GATE = "gpuspawner_gate"
"""The module's name in the launcher's archive."""


def gate_source() -> str:
    """The module's text."""
    return Path(__file__).with_name(f"{GATE}.py").read_text("utf-8")
