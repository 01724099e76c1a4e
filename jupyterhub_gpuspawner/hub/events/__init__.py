"""The life of servers as events, published once for all who want to know."""
