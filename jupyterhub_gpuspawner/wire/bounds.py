"""Bounds of the documents' fields, as metadata of their types. Pure, standard library only.

The hub reads the documents with pydantic, which asks the metadata of a type for its schema. A node does not import
this module: ``typing`` alone would take milliseconds of every start.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from jupyterhub_gpuspawner.placement.choice import POLICIES
from jupyterhub_gpuspawner.placement.topology import LIST_LIMIT, TEXT_LIMIT, from_document, is_link
from jupyterhub_gpuspawner.units import parse_cpulist

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CPU_LIST_LIMIT = 8192
"""Longest list of CPUs, in characters: firmware may give the CPUs of two sockets numbers by turns."""
SEEN = ("process", "user", "unseen", "taken")
"""What the launcher can find at a server's port: see :class:`~.documents.Door`."""
FOLDER_FAULTS = (
    *("home_full", "home_unwritable", "home_silent", "log_full", "log_silent"),
    *("tmp_full", "tmp_unwritable", "tmp_silent"),
)
"""Faults of a folder that servers write to: the user's home, that of the log, that for temporary files. The server is
started all the same."""
FAULTS = (
    *("module_command", "module_path", "module", "conda_command", "conda", "venv", "setup", "prologue", "launcher"),
    *("script", "command", "command_refused", "server"),
    *FOLDER_FAULTS,
)
"""What keeps a job from running its server, as the job reports it: see :class:`~.documents.StartFailure`.

The steps are those of the batch script, in its order. They are the fault of a :class:`~..hub.job.cause.Cause`, too.
"""

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII)


class Bounds:
    """Limits in pydantic's words (``ge``, ``le``, ``max_length``), and a check that raises ValueError."""

    def __init__(self, check: Callable[[Any], object] | None = None, **limits: float) -> None:
        self._check, self._limits = check, limits

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        schema = {**handler(source), **self._limits}
        if self._check is None:
            return schema
        return {"type": "function-after", "function": {"type": "no-info", "function": self._passed}, "schema": schema}

    def _passed(self, value: Any) -> Any:
        if self._check is not None:
            self._check(value)
        return value


def _printable(text: str) -> None:
    if not text.isprintable():
        raise ValueError("must be printable text")


def _one_of(words: Sequence[str]) -> Bounds:
    def check(word: str) -> None:
        if word not in words:
            raise ValueError(f"must be one of {', '.join(words)}")

    return Bounds(check)


def _time(text: str) -> None:
    if _TIME.fullmatch(text) is None:
        raise ValueError("must be a time such as 2026-05-04T12:30:00Z")


def _link(word: str) -> None:
    if not is_link(word):
        raise ValueError("must be a link word such as NV2 or SYS")


def _address(text: str) -> None:
    try:
        ip_address(text)
    except ValueError:
        raise ValueError("must be an IP address") from None


def _port(number: int) -> None:
    if number and not 1024 <= number <= 65535:
        raise ValueError("must be a whole number from 1024 to 65535")


Text = Annotated[str, Bounds(_printable, max_length=TEXT_LIMIT)]
Time = Annotated[Text, Bounds(_time)]
Policy = Annotated[Text, _one_of(POLICIES)]
LinkWord = Annotated[Text, Bounds(_link)]
CpuList = Annotated[str, Bounds(parse_cpulist, max_length=CPU_LIST_LIMIT)]
IPAddress = Annotated[Text, Bounds(_address)]
Seen = Annotated[Text, _one_of(SEEN)]
Fault = Annotated[Text, _one_of(FAULTS)]
Topology = Annotated[Mapping[str, object], Bounds(from_document)]
Port = Annotated[int, Bounds(_port)]
"""0 while the server does not listen."""
GpuIndex = Annotated[int, Bounds(ge=0, le=1023)]
NumaNumber = Annotated[int, Bounds(ge=0, le=4095)]
CpuCount = Annotated[int, Bounds(ge=0, le=65536)]
MiB = Annotated[int, Bounds(ge=0, le=2**31)]
Count = Annotated[int, Bounds(ge=0, le=1_000_000)]
Percent = Annotated[float, Bounds(ge=0, le=100)]
Seconds = Annotated[float, Bounds(ge=0, le=86400)]
Watts = Annotated[float, Bounds(ge=0, le=1e5)]
Joules = Annotated[float, Bounds(ge=0, le=1e10)]
Cores = Annotated[float, Bounds(ge=0, le=65536)]

Item = TypeVar("Item")
Items = Annotated[tuple[Item, ...], Bounds(max_length=LIST_LIMIT)]
