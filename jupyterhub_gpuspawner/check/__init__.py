"""A hub's configuration, read and checked without a running hub."""
