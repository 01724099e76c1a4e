"""When servers would start: beside each profile and choice of the form, in the line, and what is free instead."""

from __future__ import annotations

from jupyterhub_gpuspawner.extension import Extension

EXTENSION = Extension(
    name="availability",
    about="Says of each profile whether it is free now, and when it would start, and tells who waits their place.",
    hub=".hub:HUB",
    checks=".checks",
    judge=".faults:judge",
)
