"""Recognises a server's own job; the job id is not enough, since Slurm may assign the same id again. Pure.

Ids start over after slurmctld loses its state, and after MaxJobId (slurm.conf(5)). Nobody can change a job's owner; its
comment and name can be changed by the owner, by an admin, and by a site's plugins.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote, unquote

from jupyterhub_gpuspawner.slurm.job import Job

# The tag in every job's comment: it names hub, user and server, so that the hub can find the job again.

PREFIX = "jupyterhub-gpuspawner"
START = "{start}"
"""Placeholder for the start id in the setting for job names."""


def hub_mark(cookie_secret: bytes) -> str:
    """Return eight hexadecimal digits that tell this hub from another one of the same name; empty without a secret."""
    return hmac.new(cookie_secret, PREFIX.encode(), hashlib.sha256).hexdigest()[:8] if cookie_secret else ""


def tag(hub: str, user: str, server: str) -> str:
    """``jupyterhub-gpuspawner/<hub>/<user>/<server>``, each percent-encoded; the server's name may be empty.

    It contains no blank, comma, ``|``, ``#``, quote or control character, whatever the names contain.
    """
    return "/".join((PREFIX, *(quote(part, safe="") for part in (hub, user, server))))


def parse_tag(text: str) -> tuple[str, str, str] | None:
    """Hub, user and server of a job's comment; None if it is not a tag. What follows a ``#`` is ignored."""
    match text.strip().partition("#")[0].split("/"):
        case [head, hub, user, server] if head == PREFIX:
            return unquote(hub), unquote(user), unquote(server)
    return None


def start_of(text: str) -> str:
    """The start id, which follows the ``#`` of a tag; empty where there is none."""
    return text.strip().partition("#")[2] if parse_tag(text) else ""


def job_name(template: str, start_id: str) -> str:
    """The job name: ``template`` with the start id filled in, or without it for a trial (empty ``start_id``)."""
    if start_id:
        return template.replace(START, start_id)
    return template.replace(START, "").strip("-_. ") or "jupyterhub"


def start_of_name(template: str, name: str) -> str:
    """The start id in a job name made by :func:`job_name`; empty for any other name."""
    before, placeholder, after = template.partition(START)
    fits = placeholder and name.startswith(before) and name.endswith(after)
    return name[len(before) : len(name) - len(after)] if fits and len(name) > len(before) + len(after) else ""


@dataclass(frozen=True)
class JobIdentity:
    """What is known of the job of one start besides its id. Empty or None: not known."""

    owner: str = ""
    """The account that the job belongs to."""
    uid: int | None = None
    """The owner's uid; takes precedence over the name, which may not resolve on the hub's machine."""
    tag: str = ""
    """The job's comment. One without a start id (``#...``) was stored by an earlier version."""
    name: str = ""
    """The job's name, if it contains the start id as well; for sites that replace comments."""

    def owns(self, job: Job) -> bool | None:
        """Whether the job belongs to the owner; None where that is not known."""
        if self.uid is not None and job.uid is not None:
            return self.uid == job.uid
        # squeue(1) says "nobody", or the number, for an account that this machine does not have
        if not self.owner or job.user in ("", "nobody") or job.user.isdigit():
            return None
        return self.owner == job.user

    def matches(self, job: Job) -> bool:
        """Whether the job with this id is the start's own, as far as is known."""
        return self.owns(job) is not False and self._named_by(job)

    def proves(self, job: Job) -> bool:
        """The same for a job whose id did not come from sbatch: the owner must be certain."""
        return self.owns(job) is True and self._named_by(job)

    def _named_by(self, job: Job) -> bool:
        if self._exact:
            return bool(self.tag and job.tag == self.tag) or bool(self.name and job.name == self.name)
        names, others = parse_tag(self.tag), parse_tag(job.tag)
        # batchspawner's jobs have no tag, so a job without one may be the server's own
        return names is None or others is None or names[1:] == others[1:]

    @property
    def _exact(self) -> bool:
        """Whether comment or name distinguish this start from any other."""
        return bool(start_of(self.tag)) if parse_tag(self.tag) else bool(self.tag or self.name)

    @property
    def complete(self) -> bool:
        """Whether the first answer of Slurm could add nothing."""
        return self._exact and bool(self.owner or self.uid is not None)

    def may_be(self, job: Job) -> bool:
        """Whether the job is the start's own, given that sbatch has just returned this id.

        A job with this start's comment or name is, whoever owns it, since a site's command may submit as another
        account. So is one whose comment and name a plugin has replaced, unless it has another owner.
        """
        if self._exact and self._named_by(job):
            return True
        return self.owns(job) is not False and (self._named_by(job) or parse_tag(job.tag) is None)

    def learnt(self, job: Job) -> JobIdentity:
        """This identity, with unknown values taken from ``job``, which must be the start's own."""
        is_learnt = (self.owner or self.uid is not None) and self.owns(job) is not False
        identity = self if is_learnt else replace(self, owner=job.user, uid=job.uid)
        if self._exact and self._named_by(job):
            return identity
        return replace(identity, tag=job.tag, name="" if start_of(job.tag) else job.name)

    def to_json(self) -> dict[str, Any]:
        """For the spawner's state."""
        fields = {"owner": self.owner, "uid": self.uid, "tag": self.tag, "name": self.name}
        return {key: value for key, value in fields.items() if value not in ("", None)}


def parse_identity(document: object) -> JobIdentity | None:
    """Read what :meth:`JobIdentity.to_json` wrote; None for anything else."""
    if not isinstance(document, dict):
        return None
    texts = [document.get(key, "") for key in ("owner", "tag", "name")]
    uid = document.get("uid")
    if not all(isinstance(text, str) for text in texts) or not (uid is None or type(uid) is int):
        return None
    owner, tag, name = texts
    return JobIdentity(owner=owner, uid=uid, tag=tag, name=name)
