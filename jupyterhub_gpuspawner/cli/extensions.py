"""``gpuspawner extensions``: the extensions that are installed, and what each adds."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields

import click

from jupyterhub_gpuspawner.check.finding import checks_in
from jupyterhub_gpuspawner.cli.options import printable
from jupyterhub_gpuspawner.extension import Extension, installed
from jupyterhub_gpuspawner.hub.extension import HubExtension

LISTED = ("settings", "tables", "steps", "begin", "api", "pages", "links", "page_tools")
"""The fields of a :class:`HubExtension` whose content is listed; of the others, whether there is something."""


@dataclass(frozen=True)
class Added:
    """What an extension adds: names, by the kind of what they name."""

    name: str
    about: str
    needs: tuple[str, ...]
    package: str
    adds: dict[str, list[str]]


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one document for each extension, on a line.")
def extensions(*, as_json: bool) -> None:
    """List the extensions that are installed, with what each adds.

    A hub has all of them, unless c.GPUProfilesSpawner.extensions names some. The status is 1 if one cannot be used.
    """
    found = installed()
    faults = list(map(str, found.faults))
    for extension in found:
        try:
            added = added_by(extension)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever another's module raises
            faults.append(f"The extension {extension.name} cannot be loaded: {type(error).__name__}: {error}")
            continue
        if as_json:
            click.echo(json.dumps({"version": 1, **asdict(added)}))
        else:
            click.echo("\n".join(map(printable, lines_of(added))) + "\n")
    for fault in faults:
        click.echo(printable(fault), err=True)
    if faults:
        raise SystemExit(1)


def added_by(extension: Extension) -> Added:
    """What an extension adds; raises whatever its modules raise."""
    adds = {
        "commands": sorted(extension.commands),
        "scripts of a login node": sorted(extension.login_scripts),
        "files to install": sorted(extension.files),
    }
    if extension.spawner_settings:
        traits = extension.load(extension.spawner_settings).class_own_traits(config=True)
        adds["settings"] = [f"c.GPUSlurmSpawner.{name}" for name in sorted(traits)]
    if extension.profile_fields:
        adds["fields of a profile"] = [field.name for field in extension.load(extension.profile_fields)]
    if extension.option_fields:
        adds["fields of an option"] = [field.name for field in extension.load(extension.option_fields)]
    if extension.checks:
        adds["checks"] = sorted(check.__name__ for check in checks_in(extension.load(extension.checks)))
    if extension.launcher:
        adds["modules on the node"] = [name.rpartition(".")[2] for name in extension.load(extension.launcher).modules]
    if extension.hub:
        adds |= _in_a_hub(extension.load(extension.hub), settings=adds.get("settings", []))
    return Added(
        extension.name,
        extension.about,
        extension.needs,
        extension.package,
        {kind: names for kind, names in adds.items() if names},
    )


def _in_a_hub(hub: HubExtension, *, settings: list[str]) -> dict[str, list[str]]:
    nothing = HubExtension()
    classes = [f"c.{cls.__name__}.{name}" for cls in hub.settings for name in sorted(cls.class_own_traits(config=True))]
    return {
        "settings": [*settings, *classes],
        "tables": [table.name for table in hub.tables],
        "work": [_first_line(begin) for begin in hub.begin],
        "REST": [path for path, *_ in hub.api],
        "pages": [path for path, *_ in hub.pages],
        "links": [link.text for link in hub.links],
        "hooks": [
            field.name
            for field in fields(hub)
            if field.name not in LISTED and getattr(hub, field.name) != getattr(nothing, field.name)
        ],
    }


def _first_line(value: object) -> str:
    return (inspect.getdoc(value) or str(getattr(value, "__name__", value))).partition("\n")[0]


def lines_of(added: Added) -> Iterator[str]:
    """An extension for people."""
    needs = f" (needs {', '.join(added.needs)})" if added.needs else ""
    yield f"{added.name}{needs}: {added.about}"
    for kind, names in added.adds.items():
        yield f"  {kind}: {', '.join(names)}"
