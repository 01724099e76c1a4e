"""Applications in the place of JupyterLab."""
