"""A hub's configuration, read without running a hub: for every command that needs one."""
