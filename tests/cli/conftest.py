"""Texts and machines for the commands about topology."""

from __future__ import annotations

from pathlib import Path

import jupyterhub_gpuspawner

TEXTS = Path(__file__).parents[1] / "data" / "topo-m"
MACHINES = Path(jupyterhub_gpuspawner.__file__).parent / "demo" / "machines"
