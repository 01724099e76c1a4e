"""Measurements that are run by hand: `make bench`, and the scripts that write tables of the documentation."""
