"""``gpuspawner course``."""
