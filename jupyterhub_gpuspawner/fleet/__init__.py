"""What is known about the nodes of a cluster from the reports of their sessions."""
