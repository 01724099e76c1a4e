"""Whether times of idle policies contradict each other, or those of jobs."""

from __future__ import annotations

from collections.abc import Iterator

from jupyterhub_gpuspawner.check.finding import Code, Context, Finding, names_no_cluster
from jupyterhub_gpuspawner.check.profiles import lengths_of
from jupyterhub_gpuspawner.extensions.idle import fields
from jupyterhub_gpuspawner.extensions.idle.fields import Idle, IdleAction, idle_rule
from jupyterhub_gpuspawner.extensions.usage.node.summary import SAMPLES
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.words import duration

IDLE = Code("idle-too-long", "Servers of a profile end before they could count as idle.")

FINE = Code("idle-too-fine", "Times of an idle policy are shorter than the time between two summaries of use.")


@names_no_cluster
def check_idle(context: Context) -> Iterator[Finding]:
    """Look at each profile's `idle`, and at the site's."""
    for profile in context.profiles:
        if (idle := fields.IDLE.of(profile)) is not None:
            yield from _of_samples(context.location(profile, "idle"), idle, context)
        yield from _of_running(profile, context)
    if any(fields.IDLE.of(profile) is None for profile in context.profiles):
        yield from _of_samples(context.setting("idle"), None, context)


def _of_samples(where: str, idle: Idle | None, context: Context) -> Iterator[Finding]:
    """Whether a time of the policy is shorter than the time after which the hub next knows what a server uses."""
    site = context.spawner
    rule = idle_rule(idle, Idle(**site.idle))
    every = SAMPLES * site.usage_interval
    times = [rule.gpu, rule.kernel, *rule.leads, rule.keep_by if rule.keep_times else None]
    shortest = min((seconds for seconds in times if seconds is not None), default=every)
    if rule.action is not IdleAction.REPORT and shortest < every:
        yield FINE.warning(
            where,
            f"a time of {duration(shortest)} is shorter than the {duration(round(every))} between two summaries of "
            "use: warnings and stops come late by up to that, and Keep may gain nothing.",
            f"Set {context.setting('usage_interval')} to {max(1, shortest // SAMPLES)} s or less, or longer times.",
        )


def _of_running(profile: Profile, context: Context) -> Iterator[Finding]:
    """Whether servers of the unchanged profile end before they could count as idle."""
    resources, snapshot = context.unchanged(profile), context.snapshot
    if snapshot is None or resources is None:
        return
    lengths = lengths_of(resources, snapshot)
    field, longest = "gpu" if resources.gpus else "kernel", max(lengths.values(), default=0)
    limit = getattr(fields.IDLE.of(profile), field, None)  # the site's is for jobs of all lengths
    if lengths and limit is not None and limit >= longest:
        yield IDLE.warning(
            context.location(profile, "idle", field),
            f"servers count as idle after {duration(limit)}, and their jobs end after {duration(round(longest))}.",
            "Set a shorter time, or a longer slurm.time.",
        )
