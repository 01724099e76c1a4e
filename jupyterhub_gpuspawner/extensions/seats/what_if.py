"""A site as it would be after a change. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extensions.seats.outcome import SiteOutcome
from jupyterhub_gpuspawner.extensions.seats.site import Site
from jupyterhub_gpuspawner.units import expand_nodelist

SETTABLE = (
    "DefMemPerCPU",
    "DefMemPerNode",
    "EnforcePartLimits",
    "JobDefaults",
    "MaxMemPerCPU",
    "MaxMemPerNode",
    "MaxTasksPerNode",
    "SelectType",
    "SelectTypeParameters",
)
"""Parameters of slurm.conf that the twin takes from the site and that can be set."""
_INSTEAD = {
    "DefMemPerCPU": "DefMemPerNode",
    "DefMemPerNode": "DefMemPerCPU",
    "MaxMemPerCPU": "MaxMemPerNode",
    "MaxMemPerNode": "MaxMemPerCPU",
}
"""Parameters of which slurm.conf(5) allows one."""
_SELECT_TYPES = ("select/cons_tres", "select/linear")
_VALUE = re.compile(r"[\w./:,=-]+", re.ASCII)


def with_parameter(site: Site, setting: str) -> Site:
    """The site with a parameter of slurm.conf, such as ``SelectTypeParameters=CR_Core``; raises ConfigError."""
    name, _, value = setting.partition("=")
    key = next((key for key in SETTABLE if key.lower() == name.lower()), None)
    if key is None:
        allowed = ", ".join(SETTABLE)
        raise ConfigError(f"{name!r} is no parameter that can be set.", where="--set", hint=f"These can: {allowed}.")
    if not _VALUE.fullmatch(value):
        raise ConfigError(f"{setting!r} is not NAME=VALUE, in one word.", where="--set")
    if key == "SelectType" and value not in _SELECT_TYPES:
        raise ConfigError(f"{value!r} cannot be tried.", where="--set", hint=f"Use {' or '.join(_SELECT_TYPES)}.")
    gone = {key, _INSTEAD.get(key, key)}
    kept = {name: text for name, text in site.config.parameters.items() if name not in gone}
    return replace(site, config=replace(site.config, parameters={**kept, key: value}))


def with_gres_conf(site: Site, text: str) -> Site:
    """The site with these lines of gres.conf in the place of all lines of the nodes that they name.

    Lines without ``NodeName=`` are for all nodes. Raises ConfigError for a name that is no host list, and for a file
    without a line.
    """
    nodes = _node_names(site)
    new = [*_gres_lines(text, nodes, "--gres-conf")]
    if not new:
        raise ConfigError("there is no line with Name= in it.", where="--gres-conf")
    changed = {name for names, _ in new for name in names}
    if not changed & set(nodes):
        raise ConfigError(f"Slurm has none of the nodes {', '.join(sorted(changed))}.", where="--gres-conf")
    old = ((tuple(n for n in names if n not in changed), line) for names, line in _gres_lines(site.gres_conf, nodes))
    return replace(site, gres_conf=_written([*old, *new]))


def with_nodes(site: Site, addition: str) -> Site:
    """The site with more nodes like one that it has: ``g[4-5]=g1``. They are in its partitions, and idle.

    Raises ConfigError if that node is not known, or one of the new ones is.
    """
    where = "--add-nodes"
    listed, equals, model = addition.partition("=")
    if not (listed and equals and model):
        raise ConfigError(f"{addition!r} is not NEW=LIKE, such as g[4-5]=g1.", where=where)
    new, nodes = _host_list(listed, where), _node_names(site)
    like = next((node for node in site.nodes if node.name == model), None)
    if like is None:
        raise ConfigError(f"Slurm has no node {model!r} that they could be like.", where=where)
    if existing := [name for name in new if name in nodes]:
        raise ConfigError(f"Slurm has node {existing[0]!r} already.", where=where, hint="Use names that are new.")
    lines = _gres_lines(site.gres_conf, nodes)
    return replace(
        site,
        nodes=(*site.nodes, *(like._replace(name=name, states=frozenset({"IDLE"})) for name in new)),
        partitions=tuple(
            replace(partition, nodes=(*partition.nodes, *new)) if model in partition.nodes else partition
            for partition in site.partitions
        ),
        gres_conf=_written(((*names, *new) if model in names else names, line) for names, line in lines),
    )


def _node_names(site: Site) -> tuple[str, ...]:
    return tuple(node.name for node in site.nodes)


def _host_list(text: str, where: str) -> tuple[str, ...]:
    try:
        return expand_nodelist(text)
    except ValueError as error:
        raise ConfigError(f"{error}.", where=where) from None


def _gres_lines(text: str, nodes: Sequence[str], where: str = "gres.conf") -> Iterator[tuple[tuple[str, ...], str]]:
    """The lines that describe devices: their nodes, and the rest of the line."""
    for line in (line.partition("#")[0].strip() for line in text.splitlines()):
        named = re.search(r"\bNodeName=(\S+)", line, re.IGNORECASE)
        if re.search(r"(?:^|\s)Name=", line, re.IGNORECASE):
            names = tuple(nodes) if named is None else _host_list(named[1], where)
            yield names, re.sub(r"\bNodeName=\S+\s*", "", line, flags=re.IGNORECASE)


def _written(lines: Iterable[tuple[Sequence[str], str]]) -> str:
    return "".join(f"NodeName={','.join(names)} {line}\n" for names, line in lines if names)


VERSION = 1


@dataclass(frozen=True)
class WhatIfDocument:
    """What ``gpuspawner what-if --json`` prints."""

    slurm: str
    """The version of the slurmctld that was asked."""
    options: tuple[str, ...]
    """sbatch's options of each job, those that decide where it runs."""
    today: SiteOutcome
    """With the site as it is."""
    then: SiteOutcome | None
    """With the changes; None where none was given."""
    notes: tuple[str, ...]
    """Sentences: what of the site, the changes or the jobs is left out."""
    version: int = VERSION
