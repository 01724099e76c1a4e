"""Draws GPUs, MIG devices and NICs as boxes; dimensions of the picture in pixels. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.picture.canvas import short
from jupyterhub_gpuspawner.picture.nvlink_lines import Box
from jupyterhub_gpuspawner.words import gpu_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jupyterhub_gpuspawner.picture.canvas import Canvas
    from jupyterhub_gpuspawner.placement.topology import NodeTopology

GPU, MIG, NIC, GAP = 96, 84, 92, 12
"""Widths of a GPU, a MIG device and a NIC, and the gap between them."""
DEVICES, NIC_STEP = 60, 21
"""Height of a row of devices, and of a NIC, of which three fit into a row."""
CORE, STEP, EDGE, MARGIN, BETWEEN = 11, 14, 12, 18, 100
"""Size of a core, distance of cores, padding of a box, margin of the picture, gap between NUMA nodes of a row."""


class Devices:
    """Draws the devices of a node and records the position of each GPU in ``boxes``."""

    def __init__(self, canvas: Canvas, topology: NodeTopology, own: frozenset[int]) -> None:
        """``own``: positions of the GPUs to highlight."""
        self._canvas, self._topology, self._own = canvas, topology, own
        self.boxes: dict[int, Box] = {}

    def gpus(self, gpus: Sequence[int], x: float, y: float, width: float, *, down: int) -> None:
        """Draw a GPU, or all MIG devices of one, with its upper left corner at ``(x, y)``."""
        device = self._topology.gpus[gpus[0]]
        if device.mig is None:
            self._gpu(gpus[0], x, y, width, DEVICES, name=f"GPU {device.index}", down=down)
            return
        self._canvas.rect("card", x, y, width, DEVICES, radius=7)
        self._canvas.text("soft mid", x + width / 2, y + 13, f"GPU {device.index}, divided by MIG")
        for n, gpu in enumerate(gpus):
            self._gpu(gpu, x + 8 + n * (MIG + 6), y + 18, MIG, DEVICES - 24, name=f"MIG {n}", down=down)

    def _gpu(self, gpu: int, x: float, y: float, width: float, height: float, *, name: str, down: int) -> None:
        device, own = self._topology.gpus[gpu], gpu in self._own
        self._canvas.rect("gpu own" if own else "gpu", x, y, width, height, radius=6)
        self.boxes[gpu] = Box(x + width / 2, y + height if down == 1 else y, width, down)
        small = device.mig is not None
        lines = [f"✓ {name}" if own and small else name, device.mig or gpu_memory(device.memory_mib)]
        lines += ["✓ yours"] if own and not small else []
        step = 13.0 if small else 16.0
        first = y + height / 2 - step * (len([line for line in lines if line]) - 1) / 2 + 4
        for n, line in enumerate(line for line in lines if line):
            kind = "mine" if own and line.startswith("✓") else "soft" if n else "name"
            self._canvas.text(f"{kind} mid", x + width / 2, first + n * step, short(line, int(width / 6)))

    def nics(self, nics: Sequence[int], x: float, y: float, *, down: int) -> None:
        """Draw up to three NICs one above the other, the first at the row's edge."""
        for n, nic in enumerate(nics):
            top = y + n * NIC_STEP if down == 1 else y + DEVICES - NIC_STEP * (n + 1) + 3
            self._canvas.rect("nic", x, top, NIC, NIC_STEP - 3, radius=9)
            self._canvas.text("soft mid", x + NIC / 2, top + 13, short(self._topology.nics[nic], 14))
