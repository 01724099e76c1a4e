"""What a job that runs JupyterLab carries: the companion."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from jupyterhub_gpuspawner.batch.carried import Carried, Use
from jupyterhub_gpuspawner.extensions.lab.files import COMPANION, companion_files
from jupyterhub_gpuspawner.extensions.lab.settings import LAB
from jupyterhub_gpuspawner.profiles.resolve import JobRequest
from jupyterhub_gpuspawner.profiles.sections import program_of
from jupyterhub_gpuspawner.wire.documents import Step

MODULE = "jupyterhub_gpuspawner.extensions.lab.node.companion"


def use(request: JobRequest, settings: Mapping[str, Any]) -> Use | None:
    """Where neither the site nor the profile leaves it out, and the server is no other application."""
    wanted = settings["lab_companion"] and LAB.of(request.profile) and program_of(request.profile) is None
    return Use(before=Step(f"{MODULE}:provide", doing="Unpacking the companion of JupyterLab")) if wanted else None


def files() -> dict[str, str]:
    """The companion's files in one, as a JSON object of paths and texts."""
    return {COMPANION: json.dumps(companion_files())}


CARRIED = Carried((MODULE,), use, settings=("lab_companion",), files=files)
