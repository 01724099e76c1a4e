"""The session document: what a running server may know of itself."""

from __future__ import annotations

from dataclasses import asdict, replace

from jupyterhub_gpuspawner.hub.messages.store import EVERYBODY, Audience, Kind, Message
from jupyterhub_gpuspawner.hub.server.api import session_document
from jupyterhub_gpuspawner.hub.spawners.server import Server
from jupyterhub_gpuspawner.wire.documents import PlacedGpu, PlacementDocument

NOW = 1_772_442_000.0
SERVER = Server(
    user="ada",
    ready=True,
    profile="k80",
    profile_name="A GPU (K80)",
    job_id="12",
    placement=PlacementDocument(
        job_id="12",
        node="g1",
        gpus=(PlacedGpu(index=1, name="Tesla K80", memory_mib=11441),),
        cpus="0-3",
        ends_at="2026-03-02T10:00:00+00:00",
    ),
)
MESSAGES = (
    Message(EVERYBODY, "root", "Down at 12.", NOW - 30, NOW + 60),
    Message(Audience(Kind.COURSE, "dl"), "tea", "Open notebook 3.\nNow.", NOW - 60, NOW + 60),
    Message(Audience(Kind.COURSE, "gone", "ada"), "tea", "Hello", NOW - 120, NOW + 60),
)
MINUTES = {"notices": (30, 10, 2), "saves": (10,)}
DOCUMENT = {
    "version": 1,
    "now": "2026-03-02T09:00:00+00:00",
    "ends_at": "2026-03-02T10:00:00+00:00",
    "profile": "A GPU (K80)",
    "job_id": "12",
    "node": "g1",
    "has": ("1 \N{MULTIPLICATION SIGN} K80 (12 GB)", "4 CPUs"),
    "gpus": ("1 \N{MULTIPLICATION SIGN} K80 (12 GB)",),
    "more_time": {"version": 1, "possible": False, "ends_at": "2026-03-02T10:00:00+00:00"},
    "messages": (
        {"course": "", "at": "2026-03-02T08:59:30+00:00", "text": "Down at 12.", "sender": "root"},
        {"course": "Deep learning", "at": "2026-03-02T08:59:00+00:00", "text": MESSAGES[1].text, "sender": "tea"},
        {"course": "gone", "at": "2026-03-02T08:58:00+00:00", "text": "Hello", "sender": "tea"},
    ),
    "notices": (30, 10, 2),
    "saves": (10,),
    "picture": False,
    "idle": None,
}


def test_a_running_server_with_messages() -> None:
    """Its end, GPUs and more time as on the home page; a message with the title of its course."""
    found = session_document(SERVER, MESSAGES, now=NOW, titles={"dl": "Deep learning"}, **MINUTES)

    assert asdict(found) == DOCUMENT


def test_a_server_whose_placement_is_not_known() -> None:
    """The end is unknown, and nothing is guessed."""
    found = session_document(replace(SERVER, placement=None), (), now=NOW, titles={}, **MINUTES)

    assert asdict(found) == {
        **DOCUMENT,
        "ends_at": None,
        "node": "",
        "has": (),
        "gpus": (),
        "messages": (),
        "more_time": {"version": 1, "possible": False, "ends_at": None},
    }
