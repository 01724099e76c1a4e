"""Measurements on a compute node, made by hand: what a wrong socket costs there."""
