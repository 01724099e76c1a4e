"""Reports of nodes, kept in the hub's database."""
