"""One server, whoever looks at it: its card, pages, state and actions, and the same over REST."""
