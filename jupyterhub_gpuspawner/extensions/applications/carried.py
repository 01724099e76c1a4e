"""What a job that runs a web application carries: what requires the hub's sign-in before it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jupyterhub_gpuspawner.batch.carried import Carried, Use
from jupyterhub_gpuspawner.batch.launcher import bare
from jupyterhub_gpuspawner.extensions.applications.fields import APP
from jupyterhub_gpuspawner.profiles.resolve import JobRequest
from jupyterhub_gpuspawner.wire.documents import Step

MODULE = "jupyterhub_gpuspawner.extensions.applications.node.gate"


def use(request: JobRequest, _settings: Mapping[str, Any]) -> Use | None:
    """For a profile with an ``app`` that does not sign people in itself."""
    app = APP.of(request.profile)
    return Use(instead=Step(f"{MODULE}:command")) if app is not None and app.auth == "hub" else None


def files() -> dict[str, str]:
    """The module that runs beside the application, with the packages of its environment."""
    return {"gpuspawner_gate.py": bare(Path(__file__).with_name("gpuspawner_gate.py").read_text("utf-8"))}


CARRIED = Carried((MODULE,), use, files=files)
