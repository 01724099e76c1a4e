"""The report to the hub, and the port on which the server listens."""
