"""What a server's launcher told the hub, kept with the server: the port and the placement."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import inspect

from jupyterhub_gpuspawner.hub.report.reader import ReportError, parse_placement
from jupyterhub_gpuspawner.hub.site import metrics
from jupyterhub_gpuspawner.hub.site.database import AWAY, TO_STOP, fault, roll_back, takes_changes, written
from jupyterhub_gpuspawner.hub.site.tasks import in_background

if TYPE_CHECKING:
    import logging
    from collections.abc import Mapping

    from sqlalchemy.orm import Session

    from jupyterhub_gpuspawner.wire.documents import NodeReport, PlacementDocument


_PENDING = 0.1
"""Seconds between two looks whether the hub is done with a server's start."""


class ReportTooEarly(ReportError):
    """A report that cannot be judged yet; it may be sent again in a second."""


class ReportedPlacement:
    """A mixin for spawners whose server is started by our launcher.

    The report is stored in the spawner's state, and the state in the database, at once: what
    has been said is not lost with the hub. ``wrapper`` is the spawner that JupyterHub knows,
    if that is another one. What the report claims is shown once :meth:`place` is told so.
    """

    if TYPE_CHECKING:  # what a spawner has
        log: logging.Logger
        orm_spawner: Any
        _log_name: str

        def get_state(self) -> dict[str, Any]: ...  # noqa: D102

    wrapper: Any = None
    claimed: PlacementDocument | None = None
    """The node's own word, before the hub has compared it."""
    placement: PlacementDocument | None = None
    """What is shown."""
    topology: Mapping[str, Any] | None = None
    reported_port: int = 0
    """Where the server listens; 0 while it does not, or another process has its port."""
    address: str = ""
    """The server's host as the hub reaches it; empty until it is known."""
    _reported: asyncio.Event | None = None
    _placed: asyncio.Event | None = None
    _accepted: NodeReport | None = None
    _handed_over = False
    """The hub has been told address and port, and goes there by itself."""
    _taken = False
    """Another process had the port in this start."""

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

    @property
    def placed(self) -> asyncio.Event:
        """Set once the placement is there to be shown."""
        if self._placed is None:
            self._placed = asyncio.Event()
        return self._placed

    def accept_report(self, report: NodeReport) -> None:
        """Take the launcher's word: its port, and its placement as a claim; the address stays the hub's decision.

        The last report has the port that counts, at any time: only the job has the token, and whoever listens at
        another port may be anyone. The placement of a server that is ready stays; a report of another one is refused.
        Raises ReportError, ReportTooEarly where the report may be sent again, or SQLAlchemyError where it was not
        stored.
        """
        self.check_report(report)
        moved = report.port != self.reported_port
        if self.known.ready and not moved:
            if self._accepted is None or replace(report, door=None) != replace(self._accepted, door=None):
                raise ReportError("server: it is ready, and has reported")
            return
        self._accepted = report
        self._notice(report)
        if not self.known.ready:
            self.claimed = report.placement
            self.topology = report.topology
            self.take_claim()
        if moved and (self._handed_over or self.known.ready):
            self._lead_to(report)
        self.reported_port = report.port
        self.store()
        self.reported.set()

    def _notice(self, report: NodeReport) -> None:
        """Log what was seen at the port, where that is not the server, and count it once a start."""
        if report.door is None or report.door.seen in ("process", "user"):
            return
        for problem in report.placement.problems:
            self.log.warning("The node of %s reports: %s", self._log_name, problem)
        if report.door.seen == "taken" and not self._taken:
            self._taken = True
            metrics.port_lost("taken")

    def _lead_to(self, report: NodeReport) -> None:
        """Lead the hub, and the proxy where it leads to the server already, to the port of this report; 0: nowhere."""
        known = self.known
        self.log.warning(
            "%s was expected at port %d and reports %s: whoever listens at the first port may be somebody else",
            self._log_name,
            self.reported_port,
            f"port {report.port}" if report.port else "that another process has it",
        )
        metrics.port_lost("moved")
        if known.server is not None and known.server.port == self.reported_port:
            known.server.port = report.port
        in_background(self._reroute(report.port))

    async def _reroute(self, port: int) -> None:
        """Change the proxy's route once there is one; the hub's own check of routes may be minutes away."""
        known = self.known
        while known.pending:  # noqa: ASYNC110 - JupyterHub does not tell of its end
            await asyncio.sleep(_PENDING)
        if known.ready and self.reported_port == port:  # still
            known.server.port = port
            self.store()
            proxy = known.user.settings["proxy"]
            await (proxy.add_user if port else proxy.delete_user)(known.user, known.name)

    def hand_over(self) -> None:
        """Have later reports followed: the hub is being given the server's address and port."""
        self._handed_over = True

    def check_report(self, report: NodeReport) -> None:
        """Raise ReportError where ``report`` is of another start."""

    def take_claim(self) -> None:
        """Show what the node says at once; for those who compare it first, later."""
        if self.claimed is not None:
            self.place(self.claimed)

    def place(self, placement: PlacementDocument) -> None:
        """Show this placement from now on."""
        self.placement = placement
        self.placed.set()

    def forget_report(self) -> None:
        """Begin a new start: nothing has been reported."""
        self.reported_port = 0
        self.address = ""
        self.claimed = self.placement = self.topology = None
        self._reported = self._placed = self._accepted = None
        self._handed_over = self._taken = False

    def store(self) -> None:
        """Write this server's state to the hub's database now, not only after ``start()``."""
        orm_spawner = self.known.orm_spawner
        session = inspect(orm_spawner).session if orm_spawner is not None else None
        if session is not None:
            orm_spawner.state = self.known.get_state()
            session.commit()

    def store_soon(self) -> None:
        """As :meth:`store`; where the database takes no changes now, in the background as soon as it does."""
        try:
            self.store()
        except AWAY as error:
            session = inspect(self.known.orm_spawner).session
            roll_back(session)
            self.log.warning("The state of %s is not in the hub's database yet: %s", self._log_name, fault(error))
            in_background(self._store_later(session))

    async def _store_later(self, session: Session) -> None:
        if not await written(session, self.store, TO_STOP):
            self.log.error("The state of %s could not be stored in the hub's database", self._log_name)

    async def noted(self, patience: float) -> bool:
        """Whether the hub can note what happens to this server within ``patience`` seconds.

        True for a child: its wrapper asks.
        """
        return self.wrapper is not None or await takes_changes(self.known.orm_spawner, patience)

    def report_state(self) -> dict[str, Any]:
        """The report's part of the spawner's state."""
        state: dict[str, Any] = {}
        if self.reported_port:
            state["port"] = self.reported_port
        if self.placement is not None:
            state["placement"] = self.placement.to_json()
        elif self.claimed is not None:
            state["claimed"] = self.claimed.to_json()
        if self.topology is not None:
            state["topology"] = self.topology
        return state

    def load_report(self, state: Mapping[str, Any]) -> None:
        """Read the report's part of the state back; what does not parse is dropped with a warning."""
        port = state.get("port", 0)
        self.reported_port = port if isinstance(port, int) and 1024 <= port <= 65535 else 0
        topology = state.get("topology")
        self.topology = topology if isinstance(topology, dict) else None
        self.claimed = self._stored(state, "claimed")
        placement = self._stored(state, "placement")
        if placement is not None:
            self.place(placement)
        if self.reported_port or self.claimed is not None or placement is not None:
            self.reported.set()

    def _stored(self, state: Mapping[str, Any], name: str) -> PlacementDocument | None:
        try:
            return parse_placement(state[name]) if name in state else None
        except ReportError as error:
            self.log.warning("The stored placement of %s is dropped: %s", self._log_name, error)
            return None
