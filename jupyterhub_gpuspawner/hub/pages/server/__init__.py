"""The pages of one server: its card, its start, its log, its stop."""
