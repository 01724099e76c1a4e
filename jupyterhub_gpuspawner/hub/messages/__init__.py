"""Messages of instructors and administrators to people, shown on the hub's pages and in JupyterLab."""
