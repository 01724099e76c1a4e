"""JupyterHub's application object for a configuration, which is not started."""

from __future__ import annotations

import logging
import re
import warnings
from typing import TYPE_CHECKING, Any

from jupyterhub.app import JupyterHub
from traitlets import TraitError

from jupyterhub_gpuspawner.errors import ConfigError

if TYPE_CHECKING:
    from traitlets.config import Config

_OBJECT = re.compile(r"<[\w.]*?(\w+) object at 0x[0-9a-f]+>( instance)?")
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
        raise ConfigError(told(error), where="c.JupyterHub") from error
    return app


def told(error: TraitError) -> str:
    """traitlets' sentence, with the names of classes in the place of objects."""
    return f"{_OBJECT.sub(_class, str(error)).rstrip('.')}."


def _class(found: re.Match[str]) -> str:
    return found[1]
