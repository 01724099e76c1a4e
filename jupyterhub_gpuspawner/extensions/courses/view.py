"""A tile for each participant of a course, in words. Pure."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cached_property
from typing import NamedTuple
from urllib.parse import quote, unquote

from jupyterhub_gpuspawner.extensions.courses.actions import Outcome, Result
from jupyterhub_gpuspawner.extensions.courses.book import HubCourse
from jupyterhub_gpuspawner.extensions.courses.check import CourseInputs, estimated_seats, plans
from jupyterhub_gpuspawner.extensions.courses.course import CourseDate
from jupyterhub_gpuspawner.extensions.courses.course_profile import profiles_of
from jupyterhub_gpuspawner.extensions.courses.evening import SessionCheck
from jupyterhub_gpuspawner.extensions.courses.participants import Participant, ServerKey, State, since, totals
from jupyterhub_gpuspawner.extensions.courses.report import SessionReport
from jupyterhub_gpuspawner.extensions.seats.count import seats_left
from jupyterhub_gpuspawner.hub.server.card import TimeLeft, got, time_left
from jupyterhub_gpuspawner.hub.spawners.server import Server
from jupyterhub_gpuspawner.hub.start.progress import document
from jupyterhub_gpuspawner.placement.topology import gpu_name
from jupyterhub_gpuspawner.slurm.job import Phase
from jupyterhub_gpuspawner.wire.documents import PlacementDocument
from jupyterhub_gpuspawner.words import counted, people, some

START, STOP, MESSAGE, EXTEND = "start", "stop", "message", "extend"
_ACTIONS = {
    State.RUNNING: (MESSAGE, EXTEND, STOP),
    State.STARTING: (MESSAGE, STOP),
    State.WAITING: (MESSAGE, STOP),
    State.STOPPING: (MESSAGE,),
    State.FAILED: (START, MESSAGE),
    State.ENDED: (START, MESSAGE),
    State.OVER: (START, MESSAGE),
    State.ABSENT: (START, MESSAGE),
    State.ELSEWHERE: (MESSAGE,),
}
"""The actions that do anything for a participant in each state."""
ELSEWHERE = "Their own server, which is not of this course, is in the way: only they can stop it."


class Line(NamedTuple):
    """A sentence; ``at`` (seconds since the epoch) is for its ``{time}``."""

    text: str
    at: float | None = None


@dataclass(frozen=True)
class Tile:
    """One participant."""

    user: str
    state: str
    """The value of a :class:`State`."""
    needs_help: bool = False
    where: str = ""
    """Node and GPUs."""
    left: TimeLeft | None = None
    lines: tuple[Line, ...] = ()
    log: str = ""
    """The last lines of the log of a start that failed."""
    actions: tuple[str, ...] = ()
    server: str = ""
    """The name of the server that the tile and its actions are about; empty for the default server."""

    @property
    def key(self) -> ServerKey:
        """The server that the tile and its actions are about."""
        return ServerKey(self.user, self.server)

    @property
    def anchor(self) -> str:
        """The end of the tile's ids on the page."""
        return quote(self.user, safe="")

    @cached_property
    def version(self) -> str:
        """A checksum of everything on the tile except the time left."""
        ends = self.left.ends if self.left is not None else None
        return f"{zlib.crc32(repr((replace(self, left=None), ends)).encode()):08x}"


def tile(participant: Participant, *, now: float, since: float = 0.0) -> Tile:
    """The tile of a participant; a stop before ``since`` is not told. Both in seconds since the epoch."""
    server, state = participant.server, participant.state
    plain = Tile(participant.user, state.value, participant.needs_help, actions=_ACTIONS[state], server=server.name)
    placement = server.placement
    if state is State.RUNNING and placement is not None:
        lines = (Line(server.brief),) if server.brief else ()
        return replace(
            plain, where=_where(placement, server.cluster), left=time_left(placement.ends_at, now), lines=lines
        )
    if participant.queued:
        done = "started" if state is State.STARTING else "stopped"
        return replace(plain, lines=(Line(f"It is {done} when its turn comes."),))
    if state is State.ELSEWHERE:
        return replace(plain, lines=(Line(ELSEWHERE),))
    if state in (State.WAITING, State.STARTING):
        return replace(plain, lines=tuple(_of_start(participant, now)))
    if state in (State.FAILED, State.ENDED, State.OVER):
        # what a server wrote while it ran is its participant's own
        log = server.ending.lines if server.ending is not None and state is State.FAILED else ""
        return replace(plain, lines=tuple(_of_ending(participant)), log=log)
    ending = server.ending
    if state is State.ABSENT and ending is not None and ending.stopped and (ending.at is None or ending.at >= since):
        return replace(plain, lines=(Line(server.end_words().sentence, ending.at),))
    return plain


def _where(placement: PlacementDocument, cluster: str) -> str:
    """``g1, GPU 0, 1`` or ``m1 on cedar, slice 0 of GPU 2``; the number of CPUs where there is no GPU."""
    gpus = placement.gpus
    names = ", ".join(gpu_name(gpu.index, gpu.mig, gpu.mig_device) for gpu in gpus)
    if gpus and all(gpu.mig is None for gpu in gpus):
        names = f"GPU {', '.join(str(gpu.index) for gpu in gpus)}"
    node = f"{placement.node} on {cluster}" if placement.node and cluster else placement.node
    return ", ".join(filter(None, (node, names or next(iter(got(placement, None)), ""))))


def _of_start(participant: Participant, now: float) -> Iterator[Line]:
    facts, job = participant.server.start, participant.server.job
    if participant.too_late and not participant.stuck:
        yield Line("The expected start is after the session.")
    if facts is None:
        if participant.stuck:
            yield Line("Waiting does not help.")
        return
    progress = document(facts, now=now, own=False)
    if participant.state is State.STARTING:
        current = next(stage for stage in progress["stages"] if stage["state"] == "current")
        node = facts.placement.node if facts.placement is not None else job.batch_host if job is not None else ""
        asks = current["name"] == "submitted" and facts.kept_until is None
        title = f"{current['title']}: {node}" if node else current["title"]
        yield Line("Submitting the job" if asks else title)
        return
    if participant.stuck:
        yield Line(progress["reason"])
        yield Line("Waiting does not help.")
        return
    if facts.queue_position is not None and facts.line.waits:
        others, position = facts.queue_position.people, facts.queue_position.position
        own = "next in line" if position <= 1 else "their own job is ahead"  # nobody is ahead of themselves
        yield Line(f"{people(others)} ahead" if others else own)
    if progress["estimate"]["words"]:
        yield Line(f"expected start: {progress['estimate']['words']}")
    if progress["reason"]:
        yield Line(progress["reason"])
    if progress["change"]:
        yield Line(progress["change"])


def _of_ending(participant: Participant) -> Iterator[Line]:
    if participant.state is not State.OVER:  # which says it all
        yield Line(participant.why or "The server failed to start.")
    ending = participant.server.ending
    if ending is not None and ending.served and ending.at is not None:
        yield Line("It ended at {time}.", ending.at)


# What an instructor asks for on the page of a course, and the question before it is done.

ACTIONS = {START: "Start", MESSAGE: "Message", EXTEND: "Extend", STOP: "Stop"}
"""What their buttons say."""


@dataclass(frozen=True)
class PendingAction:
    """An action, and those whom it concerns as things are now: what the question before it tells."""

    action: str
    """``start``, ``message``, ``extend`` or ``stop``."""
    servers: tuple[ServerKey, ...]
    """The servers that it concerns."""
    everybody: bool = False
    """It is for everybody on the course, also those who are concerned only when it is confirmed."""
    chosen: int = 0
    """How many it is for; those whom it does not concern are left out."""
    moved: int = 0
    """How many of the selected have another server now than when they were selected; they are left out, too."""
    running: int = 0
    """How many of those concerned have a server that runs."""
    jupyter: bool = True
    """All of these servers are Jupyter's."""


def servers_in(fields: Iterable[str]) -> frozenset[str]:
    """The servers (``USER/SERVER``) that fields of a form name (:attr:`ServerKey.field`); a bare name is a user's."""
    return frozenset(unquote(field) for field in fields)


def wish_of(action: str, room: Sequence[Participant], chosen: Collection[str] | None) -> PendingAction:
    """The question before ``action``; ``chosen`` are the servers that were selected (as text), None for everybody.

    Participants with another server than the selected one are left out, except for a message.
    """
    users = {name.partition("/")[0] for name in chosen or ()}
    those = [
        participant
        for participant in room
        if chosen is None
        or {participant.user, str(participant.key)} & set(chosen)
        or (action == MESSAGE and participant.user in users)
    ]
    moved = sum(participant.user in users for participant in room) - len(those) if chosen is not None else 0
    concerned = [participant for participant in those if action in _ACTIONS[participant.state]]
    running = [participant.server for participant in concerned if participant.state is State.RUNNING]
    return PendingAction(
        action,
        tuple(participant.key for participant in concerned),
        chosen is None,
        chosen=len(those),
        moved=moved,
        running=len(running),
        jupyter=not any(server.app for server in running),
    )


REASONS = 3
"""Different reasons of refusals that are told, at most."""


def result_line(action: str, by: str, outcomes: Sequence[Outcome]) -> list[str]:
    """What the page says afterwards: for how many it was done, and for whom not and why."""
    count = sum(outcome.result in (Result.DONE, Result.BEGUN) for outcome in outcomes)
    refused = [outcome.sentence for outcome in outcomes if outcome.result is Result.REFUSED]
    done = {
        START: f"{by} is starting {counted(count, 'server')}.",
        STOP: f"{by} is stopping {counted(count, 'server')}.",
        MESSAGE: f"{by} sent a message to {people(count)}.",
        EXTEND: f"{by} gave {counted(count, 'server')} more time.",
    }[action]
    lines = []
    if count or not refused:
        lines.append(done if count else f"{by}: {ACTIONS[action]}. There was nothing to do.")
    if refused:
        reasons = list(dict.fromkeys(refused))
        why = f"{' '.join(reasons[:REASONS])}{' …' if len(reasons) > REASONS else ''}"
        lines.append(f"{ACTIONS[action]} was refused for {people(len(refused))}: {why}")
    return lines


# What the page of a course shows at one moment, the same for all who look at it.


@dataclass(frozen=True)
class Help:
    """People who need help for one reason."""

    cause: str
    """The reason, with the nodes and jobs of all of them."""
    tiles: tuple[Tile, ...]
    """Theirs, with one state and so the same actions."""


def help_by_cause(room: Sequence[Participant], tiles: Sequence[Tile]) -> tuple[Help, ...]:
    """Those who need help, by what is the matter; what most people have comes first."""
    alike: dict[tuple[str, str], list[tuple[Server, Tile]]] = {}
    for person, one in zip(room, tiles, strict=True):
        if one.needs_help:
            cause = _cause([person.server]) if one.state != State.WAITING.value else ""
            alike.setdefault((one.state, cause or one.lines[0].text), []).append((person.server, one))
    causes = []
    for those in alike.values():
        servers, of_these = zip(*those, strict=True)
        causes.append(Help(_cause(servers, named=True) or of_these[0].lines[0].text, of_these))
    return tuple(sorted(causes, key=lambda cause: -len(cause.tiles)))


def _cause(servers: Sequence[Server], *, named: bool = False) -> str:
    """Why these servers failed or ended for the same reason; without ``named`` without the nodes and jobs."""
    endings = [server.ending for server in servers if server.ending is not None]
    if not endings:
        return ""
    nodes = (ending.job.batch_host for ending in endings if ending.job is not None)
    jobs, hosts = (
        some(tuple(filter(None, dict.fromkeys(names)))) if named else ""
        for names in ((ending.job_id for ending in endings), nodes)
    )
    job = replace(endings[0].job, batch_host=hosts) if endings[0].job is not None else None
    ending = replace(endings[0], job_id=jobs, job=job)
    return replace(servers[0], ending=ending).end_words(to_user=False).sentence


_WITHOUT_SERVER = (State.STOPPING, State.FAILED, State.ENDED, State.OVER, State.ABSENT, State.ELSEWHERE)


@dataclass(frozen=True)
class SeatsLeft:
    """Whether there is room for those without a server, and whether those who wait get one in time."""

    missing: int
    """How many people have no server."""
    fit: int | None
    """How many more servers fit, by estimate; None where that is not known."""
    all_run: bool
    """Everybody's server runs."""
    late: int
    """How many wait for a server until after the session, by estimate."""
    stuck: int
    """How many wait for something that does not pass by itself."""
    elsewhere: Mapping[str, int]
    """The seats that other profiles have for those who wait too long, by the profile's name."""


@dataclass(frozen=True)
class CourseView:
    """One course."""

    slug: str
    title: str
    session: CourseDate | None
    """The session under way, or the next one; None after the last."""
    under_way: bool
    """That session has begun."""
    opens: float | None
    """From when on its servers are started, in seconds since the epoch; None without ``start_ahead``."""
    states: Mapping[str, int]
    """How many people are in which state."""
    begun: bool
    """There is or was a server of this session."""
    seats: SeatsLeft | None
    """None without people, and where the course's file has never been good."""
    counting: str
    """How the count of the next session's seats stands: see :meth:`.CourseChecks.status`."""
    report: SessionReport | None
    """What the last check of the next session found."""
    counted_at: float | None
    """When that was, in seconds since the epoch."""
    faults: tuple[str, ...]
    """What is wrong with the course's file."""
    in_file: bool
    """It is the file itself that is at fault."""
    offered: bool
    """There is a good version of the file."""
    recent: tuple[Line, ...]
    """What instructors did, and what the hub did for them; the latest first."""
    tiles: tuple[Tile, ...]
    help: tuple[Help, ...] = ()
    """Those who need help, by cause."""
    added: tuple[str, ...] = ()
    """People whom instructors have added on this page."""

    @property
    def version(self) -> str:
        """A checksum of everything but the tiles and the time left."""
        return f"{zlib.crc32(repr(replace(self, tiles=())).encode()):08x}"


def course_view(
    course: HubCourse,
    room: Sequence[Participant],
    *,
    now: float,
    seats: Sequence[FreeSeats] | None = None,
    recent: Sequence[Line] = (),
    counting: str = "",
    check: SessionCheck | None = None,
) -> CourseView:
    """The page of a course; ``seats`` is None where the cluster or the profile is not known.

    ``counting`` and ``check`` are of :meth:`.CourseChecks.status`.
    """
    moment, file = datetime.fromtimestamp(now, timezone.utc), course.file
    under_way = course.session_at(moment)
    session = under_way or course.next_session(moment)
    ahead = file.course.start_ahead if file.course is not None else None
    faults = (*((str(file.fault),) if file.fault is not None else ()), *course.faults)
    tiles = tuple(tile(participant, now=now, since=since(course, now)) for participant in room)
    return CourseView(
        slug=course.slug,
        title=course.title,
        session=session,
        under_way=under_way is not None,
        opens=session.start.timestamp() - ahead if session is not None and ahead else None,
        states={state.value: number for state, number in totals(room).items()},
        begun=under_way is not None or any(person.state is not State.ABSENT for person in room),
        seats=_seats(room, seats) if room and file.course is not None else None,
        counting=counting,
        report=check.report if check is not None else None,
        counted_at=check.at if check is not None else None,
        faults=tuple(dict.fromkeys(faults)),
        in_file=file.fault is not None,
        offered=file.course is not None,
        recent=tuple(recent),
        tiles=tiles,
        help=help_by_cause(room, tiles),
        added=course.added,
    )


def _seats(room: Sequence[Participant], seats: Sequence[FreeSeats] | None) -> SeatsLeft:
    missing = sum(person.state in _WITHOUT_SERVER for person in room)
    queued = sum(person.queued and person.state is State.STARTING for person in room)
    waiting = Counter(person.server.rank for person in room if _holds_nothing(person))
    left = seats_left([profile.number for profile in seats or ()], waiting)
    late = sum(person.too_late and not person.stuck for person in room)
    spare = seats is not None and len(seats) > 1 and late and sum(left) > queued + missing
    return SeatsLeft(
        missing,
        fit=None if seats is None else max(0, sum(left) - queued),
        all_run=all(person.state is State.RUNNING for person in room),
        late=late,
        stuck=sum(person.stuck for person in room),
        elsewhere={seat.name: number for seat, number in zip(seats or (), left, strict=True) if number and spare},
    )


def _holds_nothing(person: Participant) -> bool:
    """Whether somebody's server has been asked for, and its job has no node yet as far as is known."""
    starts = person.state in (State.WAITING, State.STARTING) and not person.queued
    return starts and (person.server.job is None or person.server.job.phase is Phase.QUEUED)


# How many more people of a course fit on the cluster, by the hub's last snapshot of it.


class FreeSeats(NamedTuple):
    """The seats that one profile of a course has, by estimate, whoever waits for them."""

    name: str
    """The profile's slug, and its cluster in a hub with several."""
    number: int


def free_seats(course: HubCourse, inputs: CourseInputs, *, now: float) -> tuple[FreeSeats, ...] | None:
    """How many servers more each profile has room for in the session under way, or at the beginning of the next one.

    They are filled in this order. None where there is no such session, and where nothing could be counted. ``now`` in
    seconds since the epoch.
    """
    moment = datetime.fromtimestamp(now, timezone.utc)
    session = course.session_at(moment) or course.next_session(moment)
    if session is None or course.course is None or not course.people:
        return None
    plan = next(iter(plans(course.file, inputs, only=session.name)), None)
    if plan is None or not plan.requests:
        return None
    counts = estimated_seats(replace(plan, own_jobs={}), inputs.snapshots)
    named = zip(profiles_of(course.course, session), plan.on, counts, strict=True)
    return tuple(FreeSeats(f"{chosen.slug}{on}", number) for chosen, on, number in named)
