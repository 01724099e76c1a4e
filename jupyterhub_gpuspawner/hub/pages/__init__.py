"""The hub's HTML pages."""
