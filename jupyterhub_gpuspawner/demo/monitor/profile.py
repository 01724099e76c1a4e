"""The profile of the demo's web application."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from jupyterhub_gpuspawner.node.gate import PROXY

PROGRAM = Path(__file__).with_name("page.py")
_TEXT = """\
# A web application in the place of JupyterLab, behind the hub's sign-in.
- display_name: GPU monitor
  slug: monitor
  description: "Not JupyterLab but a small web page of its job's GPUs. Profiles can also start VS Code or a dashboard."
  slurm: {{partition: gpu, gpus: 2, gpu_type: k80, cpus: 2, memory: 1G, time: "0:30:00"}}
  app:
    name: Web application
    icon: chart
    command: {command}
    socket: "{{socket}}"
"""


def profile_file() -> str | None:
    """The text of its file; None where jupyter-server-proxy, which such applications need, is not installed."""
    if shutil.which(PROXY, path=str(Path(sys.executable).parent)) is None:
        return None
    return _TEXT.format(command=json.dumps([sys.executable, str(PROGRAM)]))
