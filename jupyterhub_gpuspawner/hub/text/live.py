"""The home page's running servers, and the admin's map of the cluster."""
