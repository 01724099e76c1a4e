"""The four systems, each with its documented configuration (``configs/``) and its own form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class System:
    """A spawner to measure."""

    key: str
    title: str
    packages: tuple[str, ...]
    """Packages whose code counts as the spawner's: its own, and those of its base classes."""
    form: Mapping[str, str]
    """The form data of a user: one GPU, one core."""

    @property
    def config(self) -> str:
        """Name of the file in ``configs/``."""
        return f"config_{self.key}.py"


OURS = System("ours", "jupyterhub-gpuspawner", ("jupyterhub_gpuspawner",), {"profile": "gpu"})
SYSTEMS = (
    OURS,
    System("batchspawner", "batchspawner + wrapspawner", ("batchspawner", "wrapspawner"), {"profile": "gpu"}),
    System(
        "moss",
        "jupyterhub_moss",
        ("jupyterhub_moss", "batchspawner"),
        {"partition": "gpu", "nprocs": "1", "memory": "100M", "ngpus": "1", "runtime": "1:00:00", "default_url": ""},
    ),
    System(
        "form",
        "slurmformspawner",
        ("slurmformspawner", "batchspawner"),
        {
            "account": "",
            "runtime": "1",
            "ui": "lab",
            "nprocs": "1",
            "memory": "100",
            "gpus": "gpu:p100:1",
            "profile": "default",
            "reservation": "",
            "partition": "gpu",
        },
    ),
)
