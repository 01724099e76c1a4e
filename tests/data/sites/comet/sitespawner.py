"""The site's own spawner, which its jupyterhub_config.py imports."""

from batchspawner import SlurmSpawner


class TunnelSpawner(SlurmSpawner):
    """Starts the job through ssh."""
