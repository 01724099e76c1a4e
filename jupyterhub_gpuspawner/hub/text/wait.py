"""The page of a server that starts, and of one that did not."""
