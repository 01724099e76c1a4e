"""A node as an SVG picture and as text."""
