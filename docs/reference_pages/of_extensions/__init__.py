"""What the reference says of single extensions: a module with the name of each that has more than its registry tells.

It may have ``PAGES``, as in :mod:`docs.reference_pages`; ``PARTS``, what comes after the pages with these names;
``DOCUMENTS``, sections of the page of documents; ``ALSO``, types in the document with this name of another, and where
they are in it; ``NAMES``, types that documents name and their modules import for type checkers alone; and ``METRICS``.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from jupyterhub_gpuspawner.extension import installed


def all_of(name: str) -> list[Any]:
    """What the modules of the installed extensions have under this name, in the order of the extensions."""
    modules = [f"{__name__}.{extension}" for extension in installed().names]
    values = [getattr(import_module(module), name, None) for module in modules if find_spec(module)]
    return [value for value in values if value is not None]
