"""A small job in each partition, which looks at its node as a server would find it, and is cancelled afterwards."""
