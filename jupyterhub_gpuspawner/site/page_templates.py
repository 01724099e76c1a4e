"""What pages lose where a site's templates leave out a part of ours, or use one that has gone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, TemplateError, TemplateNotFound, nodes

from jupyterhub_gpuspawner.extension import installed
from jupyterhub_gpuspawner.hub.jupyterhub_compat import STOCK_TEMPLATES
from jupyterhub_gpuspawner.hub.site.templates import TEMPLATES, loader_with_ours

_NOTICES = "pages do not show what is told to users"
_LINKS = "pages have no links to those of extensions"
_CARDS = "the home page does not show the cards of servers"
LOST = {
    "page.html": {"nav_bar": f"{_NOTICES}, and {_LINKS}", "nav_bar_left_items": _LINKS},
    "home.html": {"main": _CARDS},
}
"""By template and block: what pages lose where a site's template replaces the block; the first one is all of it."""
_CARD = "gpuspawner_card.html"
_CARD_OF = "_card.html"
_WHOLE_CARD = "home_card.html"
MOVED = {
    "home.html": {
        "for_whom": _CARD,
        "node_details": _CARD,
        "path": _CARD,
        "server": _WHOLE_CARD,
        "actions": _WHOLE_CARD,
        "details": _WHOLE_CARD,
    }
}
"""By template and macro that it had once: the template that has its content now. So has ``NAME_card.html`` of an
extension what the macro ``NAME`` of ``home.html`` had, if there was one."""


def lost_parts(template_paths: Sequence[str], extensions: Sequence[str] = ()) -> Iterator[str]:
    """For each template of the site's that leaves out a part of ours its path, what pages lose, and why.

    So for each that has a block, or uses a macro, that the templates it names no longer have. A template that cannot be
    read or parsed here is left out. ``extensions``: their folders of templates.
    """
    stock = [str(STOCK_TEMPLATES)]
    folders = [folder for folder in template_paths if Path(folder).resolve() not in (TEMPLATES, STOCK_TEMPLATES)]
    every = Environment(autoescape=True, loader=loader_with_ours(folders, stock, extensions))
    own = Environment(autoescape=True, loader=FileSystemLoader(folders))
    for name in own.list_templates(["html"]):
        texts: list[str] = []
        try:
            tree = _tree(own, name)
            parents = _parents(every, tree)
            texts += _lost(name, tree, parents)
            texts += _gone_blocks(tree, parents or {})
            texts += _gone_macros(every, tree, parents or {}, extensions)
        except TemplateNotFound as error:
            texts.append(f'it names "{error.name}", which no template of this hub is called')
        except (OSError, UnicodeError, TemplateError):  # perhaps an extension of Jinja's that the site has configured
            pass
        for text in texts:
            yield f"{_first(name, folders)}: {text}"


def _first(name: str, folders: Sequence[str]) -> Path | None:
    return next((path for folder in folders if (path := Path(folder) / name).is_file()), None)


def _tree(environment: Environment, name: str) -> nodes.Template:
    """A template; raises OSError, UnicodeError and TemplateError."""
    assert environment.loader is not None
    return environment.parse(environment.loader.get_source(environment, name)[0])


def _parents(environment: Environment, tree: nodes.Template) -> dict[str, nodes.Template] | None:
    """The templates that this one extends, by their names; None if one is named by a variable. Raises as `_tree`."""
    parents: dict[str, nodes.Template] = {}
    while (extends := tree.find(nodes.Extends)) is not None:
        if not isinstance(extends.template, nodes.Const):
            return None
        name = extends.template.value
        if name in parents:  # which Jinja refuses when the page is shown
            break
        tree = parents[name] = _tree(environment, name)
    return parents


def _lost(name: str, tree: nodes.Template, parents: Mapping[str, nodes.Template] | None) -> Iterator[str]:
    parts = LOST.get(name, {})
    if parts and parents is not None and f"templates/{name}" not in parents:
        yield f'{next(iter(parts.values()))}: it does not extend "templates/{name}"'
        return
    replaced = {block.name for block in tree.find_all(nodes.Block) if not _calls_super(block)}
    for block, lost in parts.items():
        if block in replaced:
            yield f"{lost}: its block {block} has no {{{{ super() }}}}"


def _calls_super(block: nodes.Block) -> bool:
    return any(isinstance(call.node, nodes.Name) and call.node.name == "super" for call in block.find_all(nodes.Call))


def _gone_blocks(tree: nodes.Template, parents: Mapping[str, nodes.Template]) -> Iterator[str]:
    blocks = {block.name for parent in parents.values() for block in parent.find_all(nodes.Block)}
    for part in tree.body if parents else ():
        if isinstance(part, nodes.Block) and part.name not in blocks:
            yield f"its block {part.name} is shown nowhere: no template that it extends has a block of this name"


def _gone_macros(
    environment: Environment, tree: nodes.Template, parents: Mapping[str, nodes.Template], extensions: Sequence[str]
) -> Iterator[str]:
    """Macros that it imports, or calls as one of a template that it extends."""
    for template, macro in _imported(tree):
        there = _tree(environment, template)
        if macro not in _exported([there, *(_parents(environment, there) or {}).values()]):
            yield _gone_macro(template, macro, extensions)
    own = {*_exported([tree]), *(name for _, name in _imported(tree))}
    called = {call.node.name for call in tree.find_all(nodes.Call) if isinstance(call.node, nodes.Name)}
    for template, parent in parents.items():
        known = {*_exported([parent]), *(name for _, name in _imported(parent))}
        for macro in sorted(called & _moved(template).keys() - own - known):
            yield _gone_macro(template, macro, extensions)


def _imported(tree: nodes.Template) -> Iterator[tuple[str, str]]:
    """Of each name that the template takes from another one: the other template's name, and the name."""
    for taken in tree.find_all(nodes.FromImport):
        if isinstance(taken.template, nodes.Const):
            for name in taken.names:
                yield taken.template.value, name if isinstance(name, str) else name[0]
    modules = {
        module.target: module.template.value
        for module in tree.find_all(nodes.Import)
        if isinstance(module.template, nodes.Const)
    }
    for attribute in tree.find_all(nodes.Getattr):
        if isinstance(attribute.node, nodes.Name) and attribute.node.name in modules:
            yield modules[attribute.node.name], attribute.attr


def _exported(trees: Iterable[nodes.Template]) -> set[str]:
    """The names that an import of templates finds: their macros and what they set."""
    macros = {macro.name for tree in trees for macro in tree.find_all(nodes.Macro)}
    names = (name for tree in trees for name in tree.find_all(nodes.Name))
    return macros | {name.name for name in names if name.ctx == "store"}


def _moved(template: str) -> Mapping[str, str]:
    """The macros that a template had once, also those that are in extensions which this hub does not have."""
    name = template.removeprefix("templates/")
    folders = (extension.folder / "templates" for extension in installed()) if name == "home.html" else ()
    cards = (path.name for folder in folders for path in folder.glob(f"*{_CARD_OF}"))
    return {card.removesuffix(_CARD_OF): card for card in cards} | MOVED.get(name, {})


def _gone_macro(template: str, macro: str, extensions: Sequence[str]) -> str:
    text = f'it uses the macro {macro} of "{template}", which has none of this name'
    now_in = _moved(template).get(macro)
    if now_in is None:
        return text
    folder = _first(now_in, [str(TEMPLATES), *extensions])
    if folder is None:
        return f"{text}: its content is now in {now_in} of an extension that this hub does not have"
    owner = "" if folder.parent == TEMPLATES else f" of the extension {folder.parent.parent.name}"
    return f"{text}: its content is now in {now_in}{owner}"
