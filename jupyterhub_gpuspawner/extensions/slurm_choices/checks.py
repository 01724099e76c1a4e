"""Whether the options that list names of Slurm's have something to list."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from jupyterhub_gpuspawner.check.finding import Code, Context, Finding
from jupyterhub_gpuspawner.extensions.slurm_choices.accounting import Accounting, read_accounting
from jupyterhub_gpuspawner.extensions.slurm_choices.fields import SlurmChoices, sources_of
from jupyterhub_gpuspawner.words import some

LISTED = Code("choices", "What an option with `choices_from` lists, for all users together.")
ABSENT = Code(
    "choices-no-accounting",
    "An option lists accounts or QOS of a cluster without slurmdbd, which has none, so the form does not show it.",
)
HIDDEN = Code(
    "choices-hidden",
    "PrivateData hides from the hub what an option lists, so users have to type a name, or get those of `otherwise`.",
)
NONE_LEFT = Code("choices-none", "`match` and `except` of an option leave out every name that Slurm lists.")
NOT_THERE = Code("choices-missing", "`default`, `labels` or `otherwise` of an option name what Slurm does not list.")
OPERATOR = (
    "Make the hub's account an operator (sacctmgr modify user NAME set adminlevel=operator), or name what to offer in "
    "`otherwise`."
)


async def check_choices(context: Context) -> AsyncIterator[Finding]:
    """Look at each option that lists names of Slurm's."""
    profiles = [(profile, sources_of(profile)) for profile in context.of_slurm()]
    if not any(sources for _, sources in profiles):
        return
    accounting = await read_accounting(context.client)
    for profile, sources in profiles:
        for name, source in sources.items():
            where = context.location(profile, "profile_options", name, "choices_from")
            for finding in _of_option(where, source, accounting, context):
                yield finding


def _of_option(where: str, source: SlurmChoices, accounting: Accounting, context: Context) -> Iterator[Finding]:
    of_accounting = source.slurm in ("accounts", "qos")
    if of_accounting and not accounting.exists:
        yield ABSENT.warning(
            where,
            f"the cluster has no slurmdbd, so there are no {_words(source)} to list, and the form does not show this.",
            "Set up accounting in Slurm, or take the option out.",
        )
        return
    if accounting.hidden if of_accounting else source.slurm in accounting.hides:
        yield HIDDEN.warning(where, f"PrivateData hides the {_words(source)} of others from this account.", OPERATOR)
        return
    names = _all_names(source, accounting, context)
    if names is None:
        return
    offered = [name for name in names if source.offers(name)]
    if offered or (not names and source.slurm in ("qos", "reservations")):
        yield LISTED.ok(where, f"it lists the {_words(source)} {some(offered, at_most=6) or '(none now)'}")
    else:
        yield NONE_LEFT.error(
            where,
            f"none of the {len(names)} {_words(source)} of the cluster is left: {some(names, at_most=6) or 'none'}.",
            "Correct match or except: each must match a name as a whole.",
        )
    lost = [name for name in (source.default, *source.labels, *source.otherwise) if name and name not in names]
    if lost and source.slurm != "reservations":
        named = some(list(dict.fromkeys(lost)), at_most=6)
        yield NOT_THERE.warning(
            where, f"the cluster has no {_words(source)} {named}.", "Correct the name, or remove it."
        )


def _words(source: SlurmChoices) -> str:
    return "QOS" if source.slurm == "qos" else source.slurm


def _all_names(source: SlurmChoices, accounting: Accounting, context: Context) -> list[str] | None:
    """The names of this kind that any user has; None where the cluster has not answered."""
    rows = [row for rows in accounting.associations.values() for row in rows]
    if source.slurm == "accounts":
        return sorted({row.account for row in rows})
    if source.slurm == "qos":
        return sorted({name for row in rows for name in row.qos})
    if context.snapshot is None:
        return None
    if source.slurm == "partitions":
        return [partition.name for partition in context.snapshot.partitions]
    return [reservation.name for reservation in context.snapshot.reservations]
