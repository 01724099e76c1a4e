"""Slurm's job reasons: a sentence and advice for participants, a hint for admins, and whether waiting helps.

They stand in ``reason.yaml``. The names of limits are parsed by their grammar: scope, kind, measure, and what the
limit applies to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from jupyterhub_gpuspawner.slurm.text import SIGNATURE, epoch
from jupyterhub_gpuspawner.units import fold_nodelist
from jupyterhub_gpuspawner.words import moment

NAME_LENGTH = 60
"""Characters of a reason's name that are kept."""


@dataclass(frozen=True)
class Words:
    """What is shown of a reason, a job or an end; each may be empty."""

    sentence: str = ""
    """For a participant."""
    advice: str = ""
    """What a participant may do, without Slurm's terms; ``{contact}`` in it stands for whom they may ask."""
    hint: str = ""
    """For an admin."""


NO_WORDS = Words()


@dataclass(frozen=True)
class Meaning(Words):
    """What one reason means."""

    clears: bool = True
    """False: waiting alone never lets the job start."""
    of_nodes: bool = False
    """Nodes that could run it may be out of service: which are, and why, is told with it."""
    for_resources: bool = False
    """The job starts as soon as its resources are free."""


def table(module: str) -> dict[str, Any]:
    """The table in YAML beside a module (its ``__file__``).

    Read it as the module is imported: a hub that is asked for its words later may have no file left to read it.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    contents: dict[str, Any] = yaml.load(Path(module).with_suffix(".yaml").read_bytes(), loader)  # noqa: S506
    return contents


_TABLE = table(__file__)
_MEASURES: Mapping[str, str] = _TABLE["measures"]
REASONS = {name: Meaning(**words) for name, words in _TABLE["reasons"].items()}
PHRASES = {
    words.pop("pattern"): REASONS[words["like"]] if "like" in words else Meaning(**words) for words in _TABLE["phrases"]
}
"""By a regular expression of how the reason begins."""
_LIMITS = {name: Meaning(**words) for name, words in _TABLE["limits"].items()}
"""What the names of limits mean, with fields in braces."""
_LIMIT = re.compile(
    r"(?P<scope>QOS|Assoc|)(?P<kind>Grp|Max|Min)"
    r"(?P<what>Cpu|CPU|GRES|SubmitJobs?|Jobs|Mem(?:ory)?|Node|Wall(?:Duration)?|Energy|License|BB|Billing|Unknown)"
    r"(?P<minutes>RunMinutes|Minutes)?(?P<per>PerJob|PerNode|PerUser|PerAccount)?(?:Limit|NotSatisfied)?"
)


def reason_name(reason: str) -> str:
    """The name of a reason without what Slurm adds for one job: nodes, or a time."""
    return re.split(r"[,(]", reason, maxsplit=1)[0].strip()[:NAME_LENGTH]


@lru_cache(maxsize=1024)
def meaning(reason: str) -> Meaning:
    """What one of Slurm's reasons means; an unknown one is quoted, and may be one for which the job starts soon."""
    if (reason or "None") in REASONS:
        return REASONS[reason or "None"]
    for pattern, phrase in PHRASES.items():
        if re.match(pattern, reason):
            return phrase
    limit = _LIMIT.fullmatch(reason)
    return _limit(limit) if limit is not None else Meaning(f"Waiting: Slurm says '{reason}'.", for_resources=True)


def _limit(limit: re.Match[str]) -> Meaning:
    of_account, per = limit["scope"] == "Assoc", limit["per"]
    what = next(words for name, words in _MEASURES.items() if limit["what"].startswith(name))
    kind = "together" if per == "PerAccount" or limit["kind"] == "Grp" else "own"
    kind = "least" if limit["kind"] == "Min" else "most" if per in ("PerJob", "PerNode") else kind
    values = {
        "name": limit[0],
        "what": f"{what} times minutes" if limit["minutes"] else what,
        "fewer": "less" if what in ("memory", "time", "energy") and not limit["minutes"] else "fewer",
        "whose": "its account" if of_account else "its QOS",
        "table": "assoc" if of_account else "qos",
        "one": "one job" if per == "PerJob" else "one node",
        "holder": "jobs of this QOS" if limit["scope"] == "QOS" else "jobs of this account",
    }
    words = _LIMITS[kind]
    return replace(words, sentence=words.sentence.format_map(values), hint=words.hint.format_map(values))


def never_clears(reason: str) -> bool:
    """Whether waiting cannot help, so that the job, its limits or its partition have to change.

    True only where this is certain: a limit shared with other jobs and an unknown reason may clear.
    """
    return not meaning(reason).clears


# Why a node is out of service: what an admin, or Slurm itself, has written (scontrol(1), ``Reason``).

_SIGNED = re.compile(rf"(.*?)\s*{SIGNATURE}(?:\s{{5,}}(.*))?", re.DOTALL | re.ASCII)
"""A node's reason as scontrol prints it: the signature stands behind its first line, and before each of the others as
many blanks as the name of the parameter has characters.
"""
_NODES_REASONS = {"Not responding": "it does not respond"}
"""Slurm's own reasons in words for participants."""


class NodeReason(NamedTuple):
    """Why a node is out of service."""

    text: str
    by: str = ""
    """Who set it; empty where Slurm does not report it."""
    at: float | None = None
    """When, in seconds since the epoch; None where Slurm does not report it."""

    @property
    def clause(self) -> str:
        """Why, since when and by whom, such as ``maintenance, since 1 Jul 2026, 11:38 CEST, by root``."""
        since = moment(datetime.fromtimestamp(self.at).astimezone()) if self.at is not None else ""
        parts = (_NODES_REASONS.get(self.text, self.text), since and f"since {since}", self.by and f"by {self.by}")
        return ", ".join(filter(None, parts))


def node_reason(text: str) -> NodeReason:
    """Read a node's reason, with who set it and when where these stand behind it."""
    signed = _SIGNED.fullmatch(text)
    if signed is None:
        return NodeReason(text)
    return NodeReason(" ".join([signed[1], *(signed[4] or "").split()]), signed[2], epoch(signed[3]))


class OutOfService(NamedTuple):
    """Nodes that are out of service, for a job that waits for them."""

    clause: str = ""
    """See :func:`out_of_service`."""
    all: bool = False
    """They are all that its partitions have, so that it waits for nothing else."""


IN_SERVICE = OutOfService()
_LISTED = 4
"""Kinds of reasons that are told at most."""


def out_of_service(nodes: Iterable[tuple[str, str]]) -> str:
    """Which nodes are out of service, why, since when and by whom, as a clause; ``nodes`` are names with their reasons.

    Such as ``g[1-2] and d1 (maintenance, since 1 Jul 2026, 11:38 CEST, by root) are out of service``. Empty for none.
    """
    alike: dict[str, list[str]] = {}
    for name, reason in nodes:
        alike.setdefault(node_reason(reason).clause, []).append(name)
    told = [_listed(fold_nodelist(names)) + (f" ({why})" if why else "") for why, names in alike.items()]
    number = sum(map(len, alike.values()))
    if len(told) > _LISTED:
        told[_LISTED - 1 :] = [f"{sum(map(len, list(alike.values())[_LISTED - 1 :]))} more"]
    return f"{_listed(told)} {'is' if number == 1 else 'are'} out of service" if told else ""


def _listed(parts: Sequence[str]) -> str:
    """``a, b and c``."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))
