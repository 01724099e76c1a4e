"""The page on which a server is chosen."""
