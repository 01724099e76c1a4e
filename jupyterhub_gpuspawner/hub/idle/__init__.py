"""Servers that hold GPUs and do not use them."""
