"""The job of a server: its state, its log, and how it ended."""
