"""Trait types with bounds: a value outside them is refused when the hub starts, and the message names the bounds."""

from __future__ import annotations

import re
from typing import Any

from traitlets import Dict, Enum, Float, HasTraits, Integer, List, TraitError, Unicode, validate

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.placement.choice import POLICIES
from jupyterhub_gpuspawner.profiles.environment import policy_in_use
from jupyterhub_gpuspawner.profiles.idle import Idle
from jupyterhub_gpuspawner.profiles.schema import dotted, validated
from jupyterhub_gpuspawner.units import parse_wait
from jupyterhub_gpuspawner.wire.documents import DEADLINE_LIMIT

_PORT_RANGE = re.compile(r"([0-9]{1,5})-([0-9]{1,5})", re.ASCII)


class Seconds(Float[float, Any]):
    """A number of seconds from ``low`` to ``high``, both included; with ``or_zero`` also 0."""

    def __init__(self, default: float, *, low: float, high: float, or_zero: bool = False, **metadata: Any) -> None:
        self.low, self.high, self.or_zero = low, high, or_zero
        super().__init__(default, **metadata)

    @property
    def bounds(self) -> str:
        """``0.2 to 60 seconds``."""
        return f"{self.low:g} to {self.high:g} seconds{', or 0' if self.or_zero else ''}"

    def validate(self, obj: Any, value: Any) -> float:
        """Return the value; raises TraitError, also for another type, infinity and NaN."""
        found: float = super().validate(obj, value)
        if not (self.low <= found <= self.high or (self.or_zero and found == 0)):
            raise TraitError(f"{self.name}: {found:g} must be from {self.bounds}.")
        return found


class CheckedTimeouts(HasTraits):
    """A mixin for spawners: time-outs that JupyterHub defines without bounds, and with which every start would fail."""

    @validate("start_timeout", "http_timeout")
    def _at_least_a_second(self, proposal: Any) -> int:
        value: int = proposal["value"]
        if value < 1:
            raise TraitError(f"{proposal['trait'].name}: {value} must be at least 1 second.")
        return value


class UsageInterval(Seconds):
    """The setting ``usage_interval`` of both spawners."""

    def __init__(self, **metadata: Any) -> None:
        super().__init__(
            30.0,
            low=1,
            high=DEADLINE_LIMIT,
            or_zero=True,
            help="""Seconds between two samples of what a server uses of its GPUs, cores and memory; 0: none are taken.
            A process beside the server takes them, and sends a summary of ten at a time to the hub, which shows the
            last hour.""",
            **metadata,
        )


class Count(Integer[int, Any]):
    """A whole number from ``low`` to ``high``, both included."""

    def __init__(self, default: int, *, low: int, high: int, **metadata: Any) -> None:
        self.low, self.high = low, high
        super().__init__(default, **metadata)

    @property
    def bounds(self) -> str:
        """``1 to 64``."""
        return f"{self.low} to {self.high}"

    def validate(self, obj: Any, value: Any) -> int:
        """Return the value; raises TraitError."""
        found: int = super().validate(obj, value)
        if isinstance(value, bool) or not self.low <= found <= self.high:
            raise TraitError(f"{self.name}: {value!r} must be a whole number from {self.bounds}.")
        return found


class Minutes(List[int]):
    """At most ten whole numbers of minutes, each from 1 to 1440."""

    bounds = "at most 10 whole numbers from 1 to 1440"

    def validate(self, obj: Any, value: Any) -> list[int]:
        """Return the list; raises TraitError."""
        found: list[Any] = super().validate(obj, value) or []
        good = all(type(each) is int and 1 <= each <= 1440 for each in found)
        if not good or len(found) > 10:
            raise TraitError(f"{self.name}: {value!r} must be {self.bounds}.")
        return found


class IdleFields(Dict):
    """The fields of a profile's ``idle``."""

    bounds = "the fields of a profile's `idle`"

    def validate(self, obj: Any, value: Any) -> dict[str, Any]:
        """Return the dict; raises TraitError, which names the field at fault."""
        found: dict[str, Any] = super().validate(obj, value) or {}
        try:
            validated(Idle, found, lambda path: dotted([str(self.name), *path]))
        except ConfigError as error:
            raise TraitError(str(error)) from None
        return found


class Policy(Enum[str]):
    """A placement policy; that of an earlier version is read as the one that has taken its place."""

    def __init__(self, **metadata: Any) -> None:
        super().__init__(POLICIES, "best-effort", **metadata)

    def validate(self, obj: Any, value: Any) -> str:
        """Return the policy; raises TraitError."""
        policy: str = super().validate(obj, policy_in_use(value))
        return policy


class PortRange(Unicode[str, Any]):
    """``FIRST-LAST`` within 1024 to 65535, or empty for any port."""

    bounds = "two ports from 1024 to 65535"

    def validate(self, obj: Any, value: Any) -> str:
        """Return the text; raises TraitError."""
        found: str = super().validate(obj, value)
        ports = _PORT_RANGE.fullmatch(found)
        if found and not (ports and 1024 <= int(ports[1]) <= int(ports[2]) <= 65535):
            raise TraitError(f"{self.name}: {found!r} must be FIRST-LAST within 1024-65535, such as 20000-20999")
        return found


class OptionText(Unicode[str, Any]):
    """A text in an option of sbatch, which would interpret a quote or a backslash in it."""

    bounds = "one printable line without double quotes and backslashes"

    def validate(self, obj: Any, value: Any) -> str:
        """Return the text; raises TraitError."""
        found: str = super().validate(obj, value)
        if not found.isprintable() or set(found) & set('"\\'):
            raise TraitError(f"{self.name}: {found!r} must be {self.bounds}: it becomes part of an sbatch option.")
        return found


class Wait(Unicode[str, Any]):
    """A time to wait, in the grammar of :func:`parse_wait`."""

    bounds = "a time such as 4:00:00, or UNLIMITED"

    def validate(self, obj: Any, value: Any) -> str:
        """Return the text; raises TraitError."""
        try:
            parse_wait(value)
        except ValueError as error:
            raise TraitError(f"{self.name}: {error}.") from None
        found: str = super().validate(obj, value)
        return found


BOUNDED = (Seconds, Count, Minutes, IdleFields, PortRange, OptionText, Wait)
"""The types of this module. Each has ``bounds``, in words."""
