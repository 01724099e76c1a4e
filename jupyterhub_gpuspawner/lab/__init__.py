"""The companion: what the launcher brings to JupyterLab on the node, a browser extension and a server extension.

Its files lie there in a folder that ``JUPYTER_PATH`` and ``JUPYTER_CONFIG_PATH`` name.

Jupyter finds the browser extension below ``labextensions``, and reads both configuration files. The server extension
is found by a line of configuration and not by ``PYTHONPATH``, which the kernels would inherit.
"""

from __future__ import annotations

import json
from pathlib import Path

MEMBER = "lab.json"
"""The file of the launcher's archive that holds them all, as a JSON object of paths and texts."""
EXTENSION = "labextensions/gpuspawner-companion"
SERVER_MODULE = "gpuspawner_companion"

_CONFIG = """\
import os, sys
sys.path.append(os.path.dirname(os.path.abspath(__file__)))
"""
_ENABLED = {"ServerApp": {"jpserver_extensions": {SERVER_MODULE: True}}}


def companion_files() -> dict[str, str]:
    """Relative paths and texts."""
    here = Path(__file__).parent
    return {
        "jupyter_server_config.py": _CONFIG,
        "jupyter_server_config.d/gpuspawner_companion.json": json.dumps(_ENABLED),
        f"{SERVER_MODULE}.py": (here / f"{SERVER_MODULE}.py").read_text("utf-8"),
        f"{EXTENSION}/package.json": (here / "package.json").read_text("utf-8"),
        f"{EXTENSION}/static/companion.js": (here / "companion.js").read_text("utf-8"),
    }
