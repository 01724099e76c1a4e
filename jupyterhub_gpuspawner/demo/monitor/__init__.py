"""The demo's web application: a page with the GPUs of its job, in the place of JupyterLab."""
