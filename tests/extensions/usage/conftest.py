"""The launcher, and the stand-in NVML, as the core's tests have them."""

from tests.node.conftest import launched, nvml_folder, standin

__all__ = ["launched", "nvml_folder", "standin"]
