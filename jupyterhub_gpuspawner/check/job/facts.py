"""What a job said about its node, read from its log. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jupyterhub_gpuspawner.check.job.on_node import MARK
from jupyterhub_gpuspawner.wire.documents import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_SAYS = "gpuspawner: "
"""What begins a line of the launcher, or of a profile's environment that failed."""


@dataclass(frozen=True)
class Look:
    """Whether something that a profile needs was found on the node."""

    fact: str
    """``command``, ``runtime`` or ``image``."""
    slug: str
    what: str
    found: bool


@dataclass(frozen=True)
class Facts:
    """The lines of a job's log, as far as it got."""

    began: bool = False
    ended: bool = False
    home: bool = True
    looks: tuple[Look, ...] = ()
    failed: dict[str, str] = field(default_factory=dict)
    """Profiles whose environment could not be set up, and why."""
    python: str = ""
    """The version of the node's Python; empty if there is none, or it was not reached."""
    launched: bool = False
    """Whether the launcher's turn had come."""
    placement: tuple[str, ...] = ()
    """The launcher's own lines: first where it placed itself, then its problems."""
    environment_arrived: bool | None = None
    sbatch_variables: tuple[str, ...] = ()
    hub_reached: bool | None = None
    hub_is_hub: bool = False
    hub_why: str = ""
    port: int | None = None
    """Where the job listened; 0 if no port was free, None while that is not known."""
    tried: int = 0
    """How many ports were tried."""


def parse_facts(text: str) -> Facts:
    """Read a log, which may end anywhere; lines that are not facts are ignored."""
    values: dict[str, Any] = {"looks": (), "failed": {}, "placement": ()}
    slug, said = "", ""
    for line in text.splitlines():
        if line.startswith(_SAYS):
            said = printable(line[len(_SAYS) :].strip())
            if values.get("launched"):
                values["placement"] += (said,)
            continue
        fact, told = _fact(line)
        if fact:  # the first lines may be missing: the script `log` prints the end of a log
            values["began"] = True
        if fact == "profile":
            slug, said = str(told.get("slug", "")), ""
        elif fact == "setup":
            values["failed"] = {**values["failed"], printable(str(told.get("slug", slug))): said}
        elif fact in ("command", "runtime", "image"):
            what = printable(str(told.get("what", "")))
            look = Look(fact, printable(str(told.get("slug", slug))), what, told.get("found") is True)
            values["looks"] += (look,)
        else:
            values.update(_READERS.get(fact, _nothing)(told))
    return Facts(**values)


def _fact(line: str) -> tuple[str, dict[str, Any]]:
    head, _, rest = line.partition(" ")
    fact, _, text = rest.partition(" ")
    if head != MARK:
        return "", {}
    try:
        told = json.loads(text)
    except ValueError:
        return "", {}
    return (fact, told) if isinstance(told, dict) else ("", {})


def _nothing(_told: dict[str, Any]) -> dict[str, Any]:
    return {}


def _of_hub(told: dict[str, Any]) -> dict[str, Any]:
    status = told.get("status")
    why = str(told.get("why", "")) or (f"it answered with HTTP status {status}" if status else "")
    return {
        "hub_reached": told.get("reached") is True,
        "hub_is_hub": told.get("hub") is True,
        "hub_why": printable(why),
    }


def _of_environment(told: dict[str, Any]) -> dict[str, Any]:
    names: Iterable[object] = told.get("sbatch") if isinstance(told.get("sbatch"), list) else ()  # type: ignore[assignment]
    return {
        "environment_arrived": told.get("arrived") is True,
        "sbatch_variables": tuple(printable(str(name)) for name in names),
    }


def _of_port(told: dict[str, Any]) -> dict[str, Any]:
    port, tried = told.get("port"), told.get("tried")
    if type(port) is not int or type(tried) is not int or not 0 <= port <= 65535:
        return {}
    return {"port": port, "tried": tried}


_READERS: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "no-home": lambda _told: {"home": False},
    "launcher": lambda _told: {"launched": True},
    "python": lambda told: {"python": printable(str(told.get("version", "")))},
    "environment": _of_environment,
    "hub": _of_hub,
    "port": _of_port,
    "end": lambda _told: {"ended": True},
}
