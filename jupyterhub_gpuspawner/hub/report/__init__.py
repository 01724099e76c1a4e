"""What a node reports of a server, and how the hub checks it."""
