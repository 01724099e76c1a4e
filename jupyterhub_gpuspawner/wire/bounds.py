"""Bounds of the documents' fields, as pydantic reads them at the hub.

A node does not import this module: pydantic need not be there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_address
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, Field

from jupyterhub_gpuspawner.placement.choice import POLICIES
from jupyterhub_gpuspawner.placement.topology import LIST_LIMIT, TEXT_LIMIT, from_document, is_link
from jupyterhub_gpuspawner.units import parse_cpulist

CPU_LIST_LIMIT = 8192
"""Longest list of CPUs, in characters: firmware may give the CPUs of two sockets numbers by turns."""
SEEN = ("process", "user", "unseen", "taken")
"""What the launcher can find at a server's port: see :class:`~.documents.PortReport`."""
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


def _checked(check: Callable[[Any], object]) -> AfterValidator:
    """A value that ``check`` does not refuse, as it is."""

    def passed(value: Any) -> Any:
        check(value)
        return value

    return AfterValidator(passed)


def _printable(text: str) -> None:
    if not text.isprintable():
        raise ValueError("must be printable text")


def _one_of(words: Sequence[str]) -> AfterValidator:
    def check(word: str) -> None:
        if word not in words:
            raise ValueError(f"must be one of {', '.join(words)}")

    return _checked(check)


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


Text = Annotated[str, Field(max_length=TEXT_LIMIT), _checked(_printable)]
Time = Annotated[Text, _checked(_time)]
Policy = Annotated[Text, _one_of(POLICIES)]
LinkWord = Annotated[Text, _checked(_link)]
CpuList = Annotated[str, Field(max_length=CPU_LIST_LIMIT), _checked(parse_cpulist)]
IPAddress = Annotated[Text, _checked(_address)]
Seen = Annotated[Text, _one_of(SEEN)]
Fault = Annotated[Text, _one_of(FAULTS)]
Topology = Annotated[Mapping[str, object], _checked(from_document)]
Port = Annotated[int, _checked(_port)]
"""0 while the server does not listen."""
GpuIndex = Annotated[int, Field(ge=0, le=1023)]
NumaNumber = Annotated[int, Field(ge=0, le=4095)]
CpuCount = Annotated[int, Field(ge=0, le=65536)]
MiB = Annotated[int, Field(ge=0, le=2**31)]
Count = Annotated[int, Field(ge=0, le=1_000_000)]
Percent = Annotated[float, Field(ge=0, le=100)]
Seconds = Annotated[float, Field(ge=0, le=86400)]
Watts = Annotated[float, Field(ge=0, le=1e5)]
Joules = Annotated[float, Field(ge=0, le=1e10)]
Cores = Annotated[float, Field(ge=0, le=65536)]

Item = TypeVar("Item")
Items = Annotated[tuple[Item, ...], Field(max_length=LIST_LIMIT)]
