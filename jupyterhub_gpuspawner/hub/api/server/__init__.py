"""Endpoints about one server: its report, its session, its use, more time, its stop, its progress."""
