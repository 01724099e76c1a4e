"""What servers use of their GPUs, cores and memory: on their cards, over REST, and as metrics."""

from __future__ import annotations

from jupyterhub_gpuspawner.extension import Extension

EXTENSION = Extension(
    name="usage",
    about="Samples what servers use of their GPUs, cores and memory, and shows it.",
    hub=".hub:HUB",
    spawner_settings=".settings:UsageSettings",
    launcher=".carried:CARRIED",
)
