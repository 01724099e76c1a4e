"""An extension outside the package: the rules of the house."""

from jupyterhub_gpuspawner.extension import Extension

EXTENSION = Extension(
    "house_rules",
    "Shows the rules of the house, and names them on the card of each server that runs.",
    hub=".hub:HUB",
    checks=".checks",
)
