"""What is free, for everybody: how many GPUs of each kind are free, as a page and as JSON for a web site."""

from jupyterhub_gpuspawner.extension import Extension

EXTENSION = Extension(
    "vacancies", "Shows everybody how many GPUs of each kind are free, if it is set to.", hub=".hub:HUB"
)
