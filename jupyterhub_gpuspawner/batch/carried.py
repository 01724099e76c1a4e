"""What extensions add to the launcher that a job carries to its node, and to its launch plan and its script."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from traitlets.log import get_logger

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.wire.documents import LaunchPlan, Step

if TYPE_CHECKING:  # the command line imports the launcher, and needs no pydantic
    from jupyterhub_gpuspawner.profiles.resolve import JobRequest


@dataclass(frozen=True)
class Use:
    """What a job that uses an extension gets of it; the steps are those of the launch plan."""

    choose: Step | None = None
    before: Step | None = None
    beside: Step | None = None
    instead: Step | None = None
    lines: str = ""
    """Shell lines of the batch script, after those that find Python and before the server."""


@dataclass(frozen=True)
class Carried:
    """What an extension adds to the launcher of the jobs that use it."""

    modules: tuple[str, ...]
    """Modules that run on the node, of the standard library alone. What they import of their package is packed, too."""
    use: Callable[[JobRequest, Mapping[str, Any]], Use | None]
    """What a job gets, by its request and the spawner's ``settings``; None: the job does not use it."""
    reader: str = ""
    """The :class:`~.node.hardware.Reader` of a job that uses it, as ``package.module:class``."""
    settings: tuple[str, ...] = ()
    """Names of the spawner's settings that ``use`` reads."""
    files: Callable[[], Mapping[str, str]] = dict
    """Names and texts of further files of the archive."""
    extension: str = ""
    """The name of its extension; set where it is loaded."""


@dataclass(frozen=True)
class Cargo:
    """What one job carries of the extensions that it uses."""

    carried: tuple[Carried, ...] = ()
    uses: tuple[Use, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """The shell lines of each."""
        return tuple(use.lines for use in self.uses if use.lines)

    def on(self, plan: LaunchPlan) -> LaunchPlan:
        """The plan with the steps of each."""
        return replace(
            plan,
            readers=tuple(part.reader for part in self.carried if part.reader),
            choose=next((use.choose for use in self.uses if use.choose), None),
            before=tuple(use.before for use in self.uses if use.before),
            beside=tuple(use.beside for use in self.uses if use.beside),
            instead=next((use.instead for use in self.uses if use.instead), None),
        )


def cargo_of(request: JobRequest, carried: Iterable[Carried], settings: Mapping[str, Any]) -> Cargo:
    """What a job carries; raises ConfigError if it needs what no extension here brings.

    An extension whose ``use`` raises is named in the log and left out.
    """
    uses = {}
    for part in carried:
        try:
            uses[part] = part.use(request, settings)
        except Exception as error:  # noqa: BLE001 - whatever an extension raises, the server starts
            text = "The extension %s is left out here, since its launcher failed: %s: %s"
            get_logger().exception(text, part.extension, type(error).__name__, error)
    used = {part: use for part, use in uses.items() if use is not None}
    cargo = Cargo(tuple(used), tuple(used.values()))
    if request.placement.claim and not any(use.choose for use in cargo.uses):
        raise ConfigError(
            "placement.claim needs an extension to claim GPUs, and this hub has none.",
            where=f"profile {request.profile.slug}",
            hint="Without it the server would use GPUs that belong to others.",
        )
    return cargo
