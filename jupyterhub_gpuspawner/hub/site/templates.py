"""Page templates: ours stand between a site's own and JupyterHub's.

A site's ``page.html`` in JupyterHub's documented form begins with ``{% extends "templates/page.html" %}``. That name
leads to our template, and ours extend JupyterHub's by names with the prefix ``jupyterhub/``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from jinja2 import BaseLoader, ChoiceLoader, Environment, FileSystemLoader, PrefixLoader, TemplateError

TEMPLATES = Path(__file__).resolve().parents[1] / "web" / "templates"


def loader_with_ours(own: Sequence[str], stock: Sequence[str], extensions: Sequence[str] = ()) -> BaseLoader:
    """Finds templates in a site's folders, then in ours, those of extensions, and ``stock``, JupyterHub's.

    By ``templates/`` it finds ours and those after them, and by ``jupyterhub/`` JupyterHub's.
    """
    ours = [str(TEMPLATES), *extensions, *stock]
    prefixes = {"templates": FileSystemLoader(ours), "jupyterhub": FileSystemLoader(stock)}
    return ChoiceLoader([PrefixLoader(prefixes), FileSystemLoader([*own, *ours])])


def use_our_templates(
    environment: Environment, own: Sequence[str], stock: Sequence[str], extensions: Sequence[str] = ()
) -> None:
    """Have pages use our templates, see :func:`loader_with_ours`, and compile those of all pages now.

    Jinja would compile a template when it is first shown, and the hub would answer nobody meanwhile. A template that
    cannot be compiled is left to the page that shows it. The environment that is not asynchronous renders JupyterHub's
    error pages alone, and is not prepared.
    """
    environment.loader = loader_with_ours(own, stock, extensions)
    for name in environment.list_templates(["html"]) if environment.is_async else ():
        with suppress(OSError, UnicodeError, TemplateError):
            environment.get_template(name)
