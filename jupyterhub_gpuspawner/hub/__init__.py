"""What runs inside the JupyterHub process: spawners, API handlers, pages."""
