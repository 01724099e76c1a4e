"""Whether another hub submits jobs under this hub's name.

Every job's comment names the hub, and ends in a mark made from the hub's cookie secret; see
:mod:`jupyterhub_gpuspawner.jobs.identity`. Jobs with the name and another mark belong to another hub, or to this one
before it lost its secret.
"""

from __future__ import annotations

import binascii
import os
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.check.finding import Code
from jupyterhub_gpuspawner.check.hub.secrets import cookie_secret_file
from jupyterhub_gpuspawner.check.job.script import START
from jupyterhub_gpuspawner.jobs.identity import hub_mark, parse_tag, start_of
from jupyterhub_gpuspawner.jobs.status import Phase

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.check.context import Context
    from jupyterhub_gpuspawner.check.finding import Finding

SAME_NAME = Code(
    "hub-name-shared",
    "Slurm has jobs of this hub's name that another hub submitted, or this one with another cookie secret.",
)


async def check_same_name(context: Context) -> list[Finding]:
    """Look at the marks of the jobs that carry this hub's name."""
    if context.snapshot is None:
        return []
    name, mine = context.slurm_site.hub_name, _own_mark(context)
    others: dict[str, list[str]] = {}
    for job_id, job in (await context.client.every_job()).items():
        named = parse_tag(job.tag)
        mark = start_of(job.tag).partition("-")[0]
        if named is not None and named[0] == name and mark not in ("", START, mine) and job.phase is not Phase.ENDED:
            others.setdefault(mark, []).append(job_id)
    if not others or (mine is None and len(others) < 2):  # one hub: probably this one
        return []
    jobs = [job for each in others.values() for job in each]
    listed = ", ".join(sorted(jobs, key=int)[:3]) + (", ..." if len(jobs) > 3 else "")
    whose = "of another hub, or of this one with an earlier cookie secret" if mine else f"of {len(others)} hubs"
    return [
        SAME_NAME.error(
            context.slurm_site.configured_as("hub_name"),
            f"Slurm has {len(jobs)} jobs {whose} under the name {name!r} (job {listed}).",
            "Give each hub of the cluster a hub_name of its own; after the loss of a cookie secret, cancel these jobs.",
        )
    ]


def _own_mark(context: Context) -> str | None:
    """The mark of this hub; None if its secret is not known to this account, or there is none yet."""
    given = context.site.config.JupyterHub.get("cookie_secret") or os.environ.get("JPY_COOKIE_SECRET")
    if isinstance(given, bytes):
        return hub_mark(given)
    try:
        if not isinstance(given, str):
            file = cookie_secret_file(context)
            given = file.read_text("ascii").strip() if file is not None else ""
        return hub_mark(binascii.a2b_hex(given)) or None
    except (OSError, ValueError):
        return None
