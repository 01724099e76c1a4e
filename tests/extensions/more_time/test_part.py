"""What a server's card, REST and JupyterLab show of more time."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest

from jupyterhub_gpuspawner.extensions.more_time import part
from jupyterhub_gpuspawner.extensions.more_time.bounds import MoreTime, Reason
from jupyterhub_gpuspawner.extensions.more_time.extending import Extended, ServerTime
from jupyterhub_gpuspawner.extensions.more_time.part import Shown, parts_of
from jupyterhub_gpuspawner.hub.extension import ServerPart
from jupyterhub_gpuspawner.hub.server.card import server_card
from jupyterhub_gpuspawner.hub.spawners.server import Server
from jupyterhub_gpuspawner.hub.start.progress import StartFacts
from jupyterhub_gpuspawner.hub.times import parse_time
from jupyterhub_gpuspawner.slurm.job import Job, Phase
from jupyterhub_gpuspawner.wire.documents import PlacementDocument

NOW = datetime(2026, 5, 4, 10, 0, tzinfo=timezone.utc).timestamp()
PLACEMENT = PlacementDocument(job_id="12", node="g1", ends_at="2026-05-04T10:10:30Z")
RUNNING = Server(ready=True, job_id="12", placement=PLACEMENT, start=StartFacts("12"))


class OfServer(ServerTime):
    """A server that can have this, and had this."""

    def __init__(self, more: MoreTime | None = None, last: Extended | None = None) -> None:
        super().__init__(None)
        self.more, self.last = more, last

    def offer(self) -> MoreTime | None:
        """What a test says."""
        return self.more


def the_part(monkeypatch: pytest.MonkeyPatch, server: Server, of_server: ServerTime | None) -> ServerPart:
    """The part of this server."""
    monkeypatch.setattr(part, "kept_with", lambda _spawner, _kind: of_server)
    (made,) = parts_of(None, server)
    return made


OFFERS = {
    "an hour": (MoreTime(3600, NOW + 4230, None, "", 2), ("1 h more, until {time}.", True, "You can do this twice.")),
    "the last time": (
        MoreTime(60, NOW + 690, None, "", 1),
        ("1 min more, until {time}.", True, "You can do this once."),
    ),
    "less, because of a reservation": (
        MoreTime(1500, NOW + 2130, Reason.RESERVATION, "course-<1>", 1),
        ("25 min more, until {time}, when reservation course-<1> ends.", True, "You can do this once."),
    ),
    "less, because of a partition": (
        MoreTime(1500, NOW + 2130, Reason.PARTITION, "gpu", 1),
        (
            "25 min more, until {time}, which is the longest time that partition gpu allows.",
            True,
            "You can do this once.",
        ),
    ),
    "used up": (MoreTime(0, NOW, Reason.USED), ("This server cannot be extended again.", False, "")),
    **{
        reason.value: (MoreTime(0, NOW, reason, "day-1", 1), (sentence, False, ""))
        for reason, sentence in {
            Reason.RESERVATION: "No more time: reservation day-1 ends then.",
            Reason.PARTITION: "No more time: this is the longest time that partition day-1 allows.",
            Reason.MAINTENANCE: "No more time: maintenance of the node begins then.",
            Reason.RESERVED: "No more time: the node is reserved for others from then on.",
            Reason.LEAVING: "No more time: the node is being taken out of service.",
            Reason.OTHERS_WAIT: "No more time: others are waiting for these resources.",
            Reason.UNKNOWN: "Whether there is more time is not known at the moment. Try again in a minute.",
            Reason.NO_LIMIT: "This server has no time limit.",
            Reason.NOT_RUNNING: "Only a running server can be extended.",
        }.items()
    },
}


@pytest.mark.parametrize(("more", "button"), OFFERS.values(), ids=OFFERS.keys())
def test_more_time(monkeypatch: pytest.MonkeyPatch, more: MoreTime, button: tuple[str, bool, str]) -> None:
    """What the button does and how often, or why it does nothing."""
    assert the_part(monkeypatch, RUNNING, OfServer(more)).shown == Shown(more)
    assert (more.words, more.possible, more.uses) == button


HOUR = MoreTime(3600, NOW + 4230, None, "", 2)
NOT_ON_CARD = {
    "one that cannot be extended": (RUNNING, OfServer()),
    "one of another package's spawner": (RUNNING, None),
    "one whose placement is not known": (replace(RUNNING, placement=None), OfServer(HOUR)),
    "one that is suspended": (replace(RUNNING, job=Job("12", Phase.RUNNING, state="SUSPENDED")), OfServer(HOUR)),
    "one that is stopping": (replace(RUNNING, pending="stop"), OfServer(HOUR)),
    "one among all those of a hub": (replace(RUNNING, start=None), OfServer(HOUR)),
}


@pytest.mark.parametrize(("server", "of_server"), NOT_ON_CARD.values(), ids=NOT_ON_CARD.keys())
def test_what_has_no_button(monkeypatch: pytest.MonkeyPatch, server: Server, of_server: ServerTime | None) -> None:
    """Its card shows nothing of more time, and REST still answers."""
    made = the_part(monkeypatch, server, of_server)

    assert (made.template, made.shown, made.document["more_time"]["version"]) == ("", Shown(), 1)


DONE = {
    "": "Extended by 1 h at {time}.",
    "tea": "Extended by 1 h at {time}, by tea.",
}


@pytest.mark.parametrize(("by", "sentence"), DONE.items())
def test_an_extension_is_told(monkeypatch: pytest.MonkeyPatch, by: str, sentence: str) -> None:
    """When it was made, by how much, and by whom if not by the server's user; another card version shows it."""
    done = Extended(3600, NOW, by)
    made = the_part(monkeypatch, RUNNING, OfServer(last=done))

    assert (made.shown, done.words) == (Shown(last=done), sentence)
    assert server_card(replace(RUNNING, parts=(made,))).version != server_card(RUNNING).version


MORE = {
    "some": (
        MoreTime(1500, NOW, Reason.PARTITION, "gpu", 2),
        {
            "possible": True,
            "seconds": 1500,
            "uses_left": 2,
            "reason": "partition",
            "message": "",
            "words": "25 min more, until {time}, which is the longest time that partition gpu allows. "
            "You can do this twice.",
        },
    ),
    "none": (
        MoreTime(0, NOW, Reason.USED),
        {
            "possible": False,
            "seconds": 0,
            "uses_left": 0,
            "reason": "used",
            "message": "This server cannot be extended again.",
            "words": "",
        },
    ),
}


@pytest.mark.parametrize(("more", "document"), MORE.values(), ids=MORE.keys())
def test_more_time_over_rest(monkeypatch: pytest.MonkeyPatch, more: MoreTime, document: dict[str, Any]) -> None:
    """How much there is until when, how often, and why it is not more; beside the server's end as it is now."""
    ends = {"ends_at": PLACEMENT.ends_at, "until": parse_time(NOW).isoformat()}

    made = the_part(monkeypatch, RUNNING, OfServer(more))

    assert made.document == {"more_time": {"version": 1, **ends, **document}}
