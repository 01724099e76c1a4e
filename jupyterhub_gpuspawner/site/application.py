"""JupyterHub's application object for a configuration, which is not started."""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING, Any

from jupyterhub.app import JupyterHub
from traitlets import TraitError

from jupyterhub_gpuspawner.site.values import refusal

if TYPE_CHECKING:
    from traitlets.config import Config

_QUIET = logging.getLogger("gpuspawner.check")
_QUIET.disabled = True  # what JupyterHub says of its settings, it says when it starts; misspelt ones are findings


def application(config: Config) -> Any:
    """The hub's application with its settings, and ``hub``, which knows its own address; raises ConfigError."""
    try:
        app = JupyterHub(config=config, log=_QUIET)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # settings that JupyterHub has renamed: it says so itself when it starts
            app.init_hub()
    except TraitError as error:
        raise refusal(config, JupyterHub, error) from error
    return app
