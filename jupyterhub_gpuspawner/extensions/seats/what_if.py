"""A site as it would be after a change. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extensions.seats.devices import gres_conf, refused_line
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
    nodes, where = _node_names(site), "--gres-conf"
    try:
        new = gres_conf(text, nodes)
    except ValueError as error:
        raise ConfigError(f"{error}.", where=where) from None
    if not new:
        raise ConfigError("there is no line with Name= in it.", where=where)
    if new.keys().isdisjoint(nodes):
        raise ConfigError(f"Slurm has none of the nodes {', '.join(sorted(new))}.", where=where)
    for node in site.nodes:
        if fault := refused_line(node, new.get(node.name, ()), site.config.version):
            raise ConfigError(
                f"Slurm refuses it for node {node.name}: {fault}.",
                where=where,
                hint="Number cores socket by socket, without their threads: lscpu -p=CPU,CORE has both numbers.",
            )
    return replace(site, gres={**site.gres, **new})


def with_nodes(site: Site, addition: str) -> Site:
    """The site with more nodes like one that it has: ``g[4-5]=g1``. They are in its partitions, and idle.

    Raises ConfigError if that node is not known, or one of the new ones is.
    """
    where = "--add-nodes"
    listed, equals, model = addition.partition("=")
    if not (listed and equals and model):
        raise ConfigError(f"{addition!r} is not NEW=LIKE, such as g[4-5]=g1.", where=where)
    nodes = _node_names(site)
    try:
        new = expand_nodelist(listed)
    except ValueError as error:
        raise ConfigError(f"{error}.", where=where) from None
    like = next((node for node in site.nodes if node.name == model), None)
    if like is None:
        raise ConfigError(f"Slurm has no node {model!r} that they could be like.", where=where)
    if existing := [name for name in new if name in nodes]:
        raise ConfigError(f"Slurm has node {existing[0]!r} already.", where=where, hint="Use names that are new.")
    return replace(
        site,
        nodes=(*site.nodes, *(like._replace(name=name, states=frozenset({"IDLE"})) for name in new)),
        partitions=tuple(
            replace(partition, nodes=(*partition.nodes, *new)) if model in partition.nodes else partition
            for partition in site.partitions
        ),
        gres={**site.gres, **(dict.fromkeys(new, site.gres[model]) if model in site.gres else {})},
    )


def _node_names(site: Site) -> tuple[str, ...]:
    return tuple(node.name for node in site.nodes)


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
