"""JupyterHub's application object for a configuration, which is not started."""

from __future__ import annotations

import logging
import re
import warnings
from typing import TYPE_CHECKING, Any

from jupyterhub.app import JupyterHub
from traitlets import TraitError
from traitlets.utils.importstring import import_item

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.hub.courses.settings import GPUCourses
from jupyterhub_gpuspawner.hub.spawners.local import GPULocalSpawner

if TYPE_CHECKING:
    from traitlets.config import Config

    from jupyterhub_gpuspawner.check.context import Context

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
        raise ConfigError(f"{_OBJECT.sub(_class, str(error)).rstrip('.')}.", where="c.JupyterHub") from error
    return app


def _class(found: re.Match[str]) -> str:
    return found[1]


def classes_in_use(context: Context) -> tuple[type, ...]:
    """The configurable classes of which this hub makes objects."""
    app = application(context.site.config)
    found: list[type] = [JupyterHub, *app.classes, type(context.spawner), type(context.slurm_site)]
    found += [GPULocalSpawner, GPUCourses]
    for name in ("authenticator_class", "proxy_class"):
        try:
            found.append(getattr(app, name))
        except TraitError as error:  # a plugin that is not installed
            raise ConfigError(
                f"{_OBJECT.sub(_class, str(error)).rstrip('.')}.", where=f"c.JupyterHub.{name}"
            ) from error
    for profile in context.profiles:
        if profile.spawner_class is not None:
            found.append(import_item(profile.spawner_class))
    return tuple(dict.fromkeys(found))
