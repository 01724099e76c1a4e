"""The life of one server: from its request to its ending."""
