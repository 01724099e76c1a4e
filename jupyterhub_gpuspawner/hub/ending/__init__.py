"""How a start failed or a server ended, and what its page says of it."""
