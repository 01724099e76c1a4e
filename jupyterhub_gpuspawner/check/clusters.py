"""Whether the clusters of a hub are several, are those that its profiles name, and are those that servers run on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

from jupyterhub_gpuspawner.check.finding import Code, Context, Finding, cases_of, names_no_cluster
from jupyterhub_gpuspawner.errors import RequestError
from jupyterhub_gpuspawner.site.people import stored_clusters
from jupyterhub_gpuspawner.words import some

UNKNOWN = Code("cluster-unknown", "A profile, or a choice of an option, names a cluster that is not in `clusters`.")
SAME = Code("clusters-same", "Two clusters of `clusters` are reached in the same way, so they are one.")
UNUSED = Code("cluster-unused", "No profile starts servers on a cluster of `clusters`.")
REMOVED = Code("cluster-removed", "Servers run on a cluster that `clusters` names no longer.")


@names_no_cluster
async def check_clusters(context: Context) -> AsyncIterator[Finding]:
    """Compare the setting `clusters` with the profiles, with itself, and with the hub's database."""
    where = context.spawner.configured_as("clusters")
    for finding in (*_unknown(context), *_same(context, where), *_unused(context, where)):
        yield finding
    servers = await asyncio.to_thread(stored_clusters, context.site.config)
    for name, people in servers.items():
        if name not in context.spawner.clusters:
            yield REMOVED.warning(
                f"{where}: {name}",
                f"the hub no longer names it, and servers of {some(sorted(people))} run there. They are kept.",
                "Name it until they have ended, or stop them.",
            )


def _unknown(context: Context) -> Iterator[Finding]:
    for profile in context.profiles:
        for case in cases_of(profile) if profile.kind == "slurm" else ():
            try:
                context.request(case)
            except RequestError as error:
                if error.field == "slurm.cluster":
                    yield UNKNOWN.error(context.location_of(case, "cluster"), error.message, error.hint)


def _same(context: Context, where: str) -> Iterator[Finding]:
    """Clusters of which one is asked by the same commands as another."""
    site, first_by_commands = context.spawner, dict[tuple[str, ...], str]()
    for name in site.clusters:
        own = site.effective(name)  # Slurm is asked by the script `query` of wrapper_dir where there is a query_prefix
        scripts = own.wrapper_dir if own.query_prefix.strip() else ""
        commands = (own.query_prefix, scripts, own.slurm_bin_dir, own.slurm_conf, own.req_cluster)
        first = first_by_commands.setdefault(commands, name)
        if first != name:
            yield SAME.warning(
                f"{where}: {name}",
                f"Slurm is asked by the same commands as for {first}, so both are one cluster, and its nodes and jobs "
                "are counted twice.",
                "Set slurm_conf, query_prefix or req_cluster of one of them, or remove one.",
            )


def _unused(context: Context, where: str) -> Iterator[Finding]:
    cases = (case for profile in context.profiles if profile.kind == "slurm" for case in cases_of(profile))
    used = {context.cluster_of(case) for case in cases}
    if not context.has_profiles:
        used.add(context.spawner.first_cluster)
    for name in context.spawner.clusters:
        if name not in used:
            yield UNUSED.warning(
                f"{where}: {name}",
                f"no profile starts servers on {name}.",
                f"Write `cluster: {name}` into the slurm block of a profile or of a choice, or remove the cluster.",
            )
