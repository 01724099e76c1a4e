"""The stand-in NVML, asked in a process of its own through the real pynvml, and through our own functions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from jupyterhub_gpuspawner.placement.topology import NodeTopology, from_document
from tests.standins import nvml

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

WITHOUT_PYNVML = "import sys; sys.modules['pynvml'] = None\n"
"""Code for a process in which pynvml cannot be imported."""
_ASK = """
import json, os, sys
from jupyterhub_gpuspawner.node import nvml
from jupyterhub_gpuspawner.node.nvml import UnavailableError
from jupyterhub_gpuspawner.placement.topology import to_document
for line in sys.stdin:
    text, nodes, devices = json.loads(line)
    with open(os.environ["STANDIN_NVML"], "w") as file:
        file.write(text)
    try:
        print(json.dumps(to_document(nvml.read(nodes, devices))), flush=True)
    except UnavailableError as error:
        print(json.dumps(str(error)), flush=True)
"""


class AskNvml(Protocol):
    """Serve each text in turn; returns what our reader makes of it, or says why NVML is not available."""

    def __call__(
        self, *texts: str, nodes: Sequence[int] = (), devices: Sequence[str] = ()
    ) -> list[NodeTopology | str]: ...


@pytest.fixture(scope="session")
def nvml_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the stand-in, for ``LD_LIBRARY_PATH``."""
    if nvml.compiler() is None:
        pytest.skip("no C compiler to build the stand-in NVML with")
    return nvml.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session", params=["pynvml", "without pynvml"])
def ask_nvml(nvml_folder: Path, request: pytest.FixtureRequest) -> AskNvml:
    """Our NVML reader over the stand-in: over the real pynvml, and over the functions that stand in for it."""
    own = request.param != "pynvml"
    if not own and find_spec("pynvml") is None:
        pytest.skip("pynvml (nvidia-ml-py) is not installed")
    environ = {**os.environ, "LD_LIBRARY_PATH": str(nvml_folder), "STANDIN_NVML": str(nvml_folder / "machine.txt")}

    def ask(*texts: str, nodes: Sequence[int] = (), devices: Sequence[str] = ()) -> list[NodeTopology | str]:
        lines = "".join(json.dumps([text, list(nodes), list(devices)]) + "\n" for text in texts)
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT_PYNVML * own + _ASK],
            input=lines,
            env=environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        answers: list[Any] = [json.loads(line) for line in done.stdout.splitlines()]
        return [answer if isinstance(answer, str) else from_document(answer) for answer in answers]

    return ask
