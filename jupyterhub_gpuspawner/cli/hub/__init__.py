"""Commands that read the configuration of a hub, without a running hub."""
