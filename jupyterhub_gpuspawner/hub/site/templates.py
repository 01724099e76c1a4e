"""Page templates: ours stand between a site's own and JupyterHub's.

A site's ``page.html`` in JupyterHub's documented form begins with ``{% extends "templates/page.html" %}``. That name
leads to our template, and ours extend JupyterHub's by names with the prefix ``jupyterhub/``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from jinja2 import (
    BaseLoader,
    ChoiceLoader,
    Environment,
    FileSystemLoader,
    PrefixLoader,
    TemplateError,
    TemplateSyntaxError,
    nodes,
)

from jupyterhub_gpuspawner.hub.jupyterhub_compat import STOCK_TEMPLATES

TEMPLATES = Path(__file__).resolve().parents[1] / "web" / "templates"
_MESSAGES = "pages do not show the messages of instructors and administrators"
_LINKS = "pages have no links to the cluster's map and the courses"
_CARDS = "the home page does not show the cards of servers"
LOST = {
    "page.html": {"nav_bar": f"{_MESSAGES}, and {_LINKS}", "nav_bar_left_items": _LINKS},
    "home.html": {"main": _CARDS},
}
"""By template and block: what pages lose where a site's template replaces the block; the first one is all of it."""


def loader_with_ours(loader: BaseLoader, stock: Sequence[str], extensions: Sequence[str] = ()) -> BaseLoader:
    """JupyterHub's loader, with ``templates/`` for our templates before those in ``stock``, JupyterHub's folders.

    ``extensions``: the folders of extensions, of which a site replaces a template as it replaces one of ours.
    """
    ours = [str(TEMPLATES), *extensions]
    prefixes = {"templates": FileSystemLoader([*ours, *stock]), "jupyterhub": FileSystemLoader(stock)}
    return ChoiceLoader([PrefixLoader(prefixes), loader, FileSystemLoader(extensions)])


def use_our_templates(environment: Environment, stock: Sequence[str], extensions: Sequence[str] = ()) -> None:
    """Have pages use our templates and those in these folders of extensions, and compile those of all pages now.

    Jinja would compile a template when it is first shown, and the hub would answer nobody meanwhile. A template that
    cannot be compiled is left to the page that shows it. The environment that is not asynchronous renders JupyterHub's
    error pages alone, and is not prepared.
    """
    assert environment.loader is not None
    environment.loader = loader_with_ours(environment.loader, stock, extensions)
    for name in environment.list_templates(["html"]) if environment.is_async else ():
        with suppress(OSError, UnicodeError, TemplateError):
            environment.get_template(name)


def lost_parts(template_paths: Sequence[str]) -> Iterator[str]:
    """For each template of the site's that leaves out a part of ours its path, what pages lose, and why.

    A template that cannot be read or parsed here is left out.
    """
    folders = [folder for folder in template_paths if Path(folder).resolve() not in (TEMPLATES, STOCK_TEMPLATES)]
    for name, parts in LOST.items():
        path = _first(name, folders)
        tree = _parsed(path) if path is not None else None
        if path is None or tree is None:
            continue
        if not _extends_ours(tree, name, folders):
            yield f'{path}: {next(iter(parts.values()))}: it does not extend "templates/{name}"'
            continue
        replaced = {block.name for block in tree.find_all(nodes.Block) if not _calls_super(block)}
        for block, lost in parts.items():
            if block in replaced:
                yield f"{path}: {lost}: its block {block} has no {{{{ super() }}}}"


def _first(name: str, folders: Sequence[str]) -> Path | None:
    return next((path for folder in folders if (path := Path(folder) / name).is_file()), None)


def _parsed(path: Path) -> nodes.Template | None:
    try:
        return Environment(autoescape=True).parse(path.read_text())
    except (OSError, UnicodeError, TemplateSyntaxError):  # an extension of Jinja's that the site has configured
        return None


def _extends_ours(tree: nodes.Template, name: str, folders: Sequence[str], depth: int = 5) -> bool:
    """Whether the template extends ours, directly or by others of the site's; True where that cannot be seen."""
    extends = tree.find(nodes.Extends)
    if extends is None or depth == 0:
        return extends is not None
    parent = extends.template.as_const() if isinstance(extends.template, nodes.Const) else ""
    if parent in ("", f"templates/{name}"):
        return True
    path = _first(parent, folders)
    next_tree = _parsed(path) if path is not None else None
    return next_tree is not None and _extends_ours(next_tree, name, folders, depth - 1)


def _calls_super(block: nodes.Block) -> bool:
    return any(isinstance(call.node, nodes.Name) and call.node.name == "super" for call in block.find_all(nodes.Call))
