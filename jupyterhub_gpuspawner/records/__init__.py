"""Records of sessions: a server's life as events, a row for each, their export and a report."""
