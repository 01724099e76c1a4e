"""What a server's launcher told the hub, kept with the server: the port and the placement."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from sqlalchemy import inspect

from jupyterhub_gpuspawner.wire import NodeReport, PlacementDocument, ReportError, parse_placement

if TYPE_CHECKING:
    import logging
    from collections.abc import Mapping


class ReportedPlacement:
    """A mixin for spawners whose server is started by our launcher.

    The report is stored in the spawner's state, and the state in the database, at once: what
    has been said is not lost with the hub. ``wrapper`` is the spawner that JupyterHub knows,
    if that is another one.
    """

    if TYPE_CHECKING:  # what a spawner has
        log: logging.Logger
        orm_spawner: Any
        _log_name: str

        def get_state(self) -> dict[str, Any]: ...  # noqa: D102

    wrapper: Any = None
    placement: PlacementDocument | None = None
    topology: Mapping[str, Any] | None = None
    reported_port: int = 0
    address: str = ""
    """The server's host as the hub reaches it; empty until it is known."""
    _reported: asyncio.Event | None = None

    @property
    def known(self) -> Any:
        """The spawner that JupyterHub knows: the wrapper, or this one."""
        return self.wrapper if self.wrapper is not None else self

    @property
    def reported(self) -> asyncio.Event:
        """Set once the launcher's report is here."""
        if self._reported is None:
            self._reported = asyncio.Event()
        return self._reported

    def accept_report(self, report: NodeReport) -> None:
        """Take the launcher's word: its port, its placement; the address stays the hub's decision."""
        self.reported_port = report.port
        self.placement = report.placement
        self.topology = report.topology
        self.store()
        self.reported.set()

    def forget_report(self) -> None:
        """Begin a new start: nothing has been reported."""
        self.reported_port = 0
        self.address = ""
        self.placement = None
        self.topology = None
        self._reported = None

    def store(self) -> None:
        """Write this server's state to the hub's database now, not only after ``start()``."""
        orm_spawner = self.known.orm_spawner
        session = inspect(orm_spawner).session if orm_spawner is not None else None
        if session is not None:
            orm_spawner.state = self.known.get_state()
            session.commit()

    def report_state(self) -> dict[str, Any]:
        """The report's part of the spawner's state."""
        state: dict[str, Any] = {}
        if self.reported_port:
            state["port"] = self.reported_port
        if self.placement is not None:
            state["placement"] = self.placement.to_json()
        if self.topology is not None:
            state["topology"] = self.topology
        return state

    def load_report(self, state: Mapping[str, Any]) -> None:
        """Read the report's part of the state back; what does not parse is dropped with a warning."""
        port = state.get("port", 0)
        self.reported_port = port if isinstance(port, int) and 1024 <= port <= 65535 else 0
        topology = state.get("topology")
        self.topology = topology if isinstance(topology, dict) else None
        try:
            self.placement = parse_placement(state["placement"]) if "placement" in state else None
        except ReportError as error:
            self.log.warning("The stored placement of %s is dropped: %s", self._log_name, error)
            self.placement = None
        if self.reported_port:
            self.reported.set()
