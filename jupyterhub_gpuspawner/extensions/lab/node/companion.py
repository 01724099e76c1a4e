"""The companion of JupyterLab: unpacked beside the launcher, and found by JUPYTER_PATH and JUPYTER_CONFIG_PATH."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.node.folder import launcher_folder

if TYPE_CHECKING:
    from collections.abc import MutableMapping, Sequence

COMPANION = "lab"
"""The folder of the companion."""
_MEMBER = "lab.json"
"""In the archive: paths and texts of the companion's files."""
CONTAINERS = ("apptainer", "singularity")
"""Commands that run a server in a container."""
USUALLY_BOUND = ("/tmp", "/var/tmp", "/dev/shm")
"""What Apptainer makes available in every container, beside the home."""


def provide(_settings: object, environ: MutableMapping[str, str], command: Sequence[str]) -> None:
    """Unpack the companion beside the launcher, and name its folder to Jupyter; raises OSError.

    Where the launcher has no folder of its own (it is kept in memory) there is no companion. If the server
    runs in a container, it gets the folder bound, read-only, unless Apptainer binds it anyway.
    """
    if not launcher_folder(environ):
        return
    folder = os.path.join(launcher_folder(environ), COMPANION)
    _unpack_companion(environ["GPUSPAWNER_LAUNCHER"], folder)
    environ["GPUSPAWNER_USAGE_FILE"] = os.path.join(folder, "usage.json")  # which the companion shows
    for name in ("JUPYTER_PATH", "JUPYTER_CONFIG_PATH"):
        paths = [path for path in environ.get(name, "").split(os.pathsep) if path and path != folder]
        environ[name] = os.pathsep.join([*paths, folder])
    usual = (*USUALLY_BOUND, *filter(None, [environ.get("HOME")]))
    in_container = os.path.basename(command[0]) in CONTAINERS
    if in_container and not any(folder.startswith(f"{prefix}/") for prefix in usual):
        for name in ("APPTAINER_BIND", "SINGULARITY_BIND"):
            environ[name] = ",".join(filter(None, [environ.get(name), f"{folder}:{folder}:ro"]))


def _unpack_companion(launcher: str, folder: str) -> None:
    import json
    from zipimport import zipimporter

    for path, text in json.loads(zipimporter(launcher).get_data(_MEMBER)).items():
        file = os.path.join(folder, *path.split("/"))
        os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
        with open(file, "w", encoding="utf-8") as writing:
            writing.write(text)
