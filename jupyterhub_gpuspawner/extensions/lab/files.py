"""The companion of JupyterLab, a browser extension and a server extension, as the launcher brings it.

Its files lie on the node in a folder that ``JUPYTER_PATH`` and ``JUPYTER_CONFIG_PATH`` name. Jupyter finds the browser
extension below ``labextensions``, and reads both configuration files. The server extension is found by a line of
configuration and not by ``PYTHONPATH``, which the kernels would inherit. It runs in the single-user server, with that
server's own packages, and is not imported here.
"""

from __future__ import annotations

import json
from pathlib import Path

from jupyterhub_gpuspawner.hub import web

COMPANION = "lab.json"
"""The file of the launcher's archive that holds the companion's files, as a JSON object of paths and texts."""
EXTENSION = "labextensions/gpuspawner-companion"
SERVER_MODULE = "gpuspawner_companion"
_CONFIG = """\
import os, sys
sys.path.append(os.path.dirname(os.path.abspath(__file__)))
"""
_ENABLED = {"ServerApp": {"jpserver_extensions": {SERVER_MODULE: True}}}
_HERE = Path(__file__).parent
_WORDS = Path(web.__file__).parent / "static" / "words.js"


def companion_files() -> dict[str, str]:
    """Relative paths and texts."""
    return {
        "jupyter_server_config.py": _CONFIG,
        "jupyter_server_config.d/gpuspawner_companion.json": json.dumps(_ENABLED),
        f"{SERVER_MODULE}.py": (_HERE / f"{SERVER_MODULE}.py").read_text("utf-8"),
        f"{EXTENSION}/package.json": (_HERE / "package.json").read_text("utf-8"),
        f"{EXTENSION}/static/companion.js": (_HERE / "companion.js").read_text("utf-8"),
        f"{EXTENSION}/static/{_WORDS.name}": _WORDS.read_text("utf-8"),
    }
