"""The launcher, and the stand-in NVML, as the core's tests have them."""

from tests.node.conftest import archive, ask_nvml, hub, nvml_folder, own_descriptors, standin

__all__ = ["archive", "ask_nvml", "hub", "nvml_folder", "own_descriptors", "standin"]
