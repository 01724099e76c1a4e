"""The spawner classes that JupyterHub knows."""
