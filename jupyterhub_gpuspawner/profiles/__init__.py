"""What is offered, what is asked for, and the one job request that comes of it."""
