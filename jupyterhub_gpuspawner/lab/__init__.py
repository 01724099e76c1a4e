"""The companion: what the launcher brings to JupyterLab on the node, a browser extension and a server extension."""
