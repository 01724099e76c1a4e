"""What the card of a server and the document of its session say of the course that it is for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from jupyterhub_gpuspawner.extensions.courses import part
from jupyterhub_gpuspawner.extensions.courses.part import CourseNow
from jupyterhub_gpuspawner.hub.extension import Place, ServerPart
from jupyterhub_gpuspawner.hub.spawners.server import Server
from jupyterhub_gpuspawner.profiles.offered import Occasion, Times

END = 4_102_444_800.0
"""In the year 2100."""
DEEP = Occasion("deep", "Deep learning", "course-deep", (Times(0.0, 0.0, END),))
NOW_DEEP = CourseNow("Deep learning", END)


def test_the_card_of_a_courses_server_names_the_course_and_the_end_of_the_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And the card of no other; the end of the session need not be that of the server."""
    monkeypatch.setattr(part, "occasion", lambda _settings, slug: DEEP if slug == "course-deep" else None)
    spawner = SimpleNamespace(user=SimpleNamespace(settings={}))
    parts = [list(part.parts_of(spawner, Server(ready=True, profile=slug))) for slug in ("course-deep", "k80")]
    deep = {"course": "Deep learning", "session_ends_at": "2100-01-01T00:00:00+00:00"}

    assert parts == [
        [ServerPart("course", Place.HEADING, "course_card.html", NOW_DEEP, repr(NOW_DEEP), document=deep)],
        [ServerPart("course", Place.HEADING, "", None, "None", document={"course": "", "session_ends_at": None})],
    ]
