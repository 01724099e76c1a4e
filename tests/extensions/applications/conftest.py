"""The launcher, and the stand-in NVML, as the core's tests have them."""

from tests.node.conftest import archive

__all__ = ["archive"]
