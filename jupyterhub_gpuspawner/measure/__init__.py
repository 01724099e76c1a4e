"""Bandwidth measurements on a compute node: what binding to the wrong socket costs there."""
