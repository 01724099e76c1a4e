"""What a server's card and JupyterLab show of its being idle."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timezone
from types import SimpleNamespace

import pytest

from jupyterhub_gpuspawner.extensions.idle.fields import IdleAction, IdleRule
from jupyterhub_gpuspawner.extensions.idle.part import IdleNotice, letters, parts_of
from jupyterhub_gpuspawner.extensions.idle.policy import IdleServer, State, Verdict
from jupyterhub_gpuspawner.extensions.idle.servers import IdleServers
from jupyterhub_gpuspawner.hub.extension import Letter
from jupyterhub_gpuspawner.hub.site.state import KEY, HubState
from jupyterhub_gpuspawner.hub.spawners.server import Server

NOW = datetime(2026, 5, 4, 10, 0, tzinfo=timezone.utc).timestamp()
RUNNING = Server(user="ada", ready=True, job_id="12")


@pytest.mark.parametrize(
    ("action", "keeps", "expected"),
    [
        ("report", 0, None),
        (
            "tell",
            0,
            IdleNotice(
                "The GPUs of this server have not been used since {time}.",
                "2026-05-04T09:10:00+00:00",
                "Others may be waiting for them: please stop the server if you do not need it.",
                None,
                2,
                "30 min more. You can do this twice.",
                can_keep=True,
            ),
        ),
        (
            "stop",
            2,
            IdleNotice(
                "The GPUs of this server have not been used since {time}.",
                "2026-05-04T09:10:00+00:00",
                "It will be stopped at {time} unless they are used before then.",
                "2026-05-04T10:10:00+00:00",
                2,
                "This server cannot be kept again. It is not stopped if you use it.",
                can_keep=False,
            ),
        ),
    ],
)
def test_an_idle_server_is_told_as_its_profile_says(action: str, keeps: int, expected: IdleNotice | None) -> None:
    """Nothing where the policy only takes notes; *Keep* as often as it is allowed."""
    rule = IdleRule(action=IdleAction(action))
    verdict = Verdict(State.WARNED, NOW - 3000, NOW + 600, 2)
    idle = IdleServer("12", gpus=True, rule=rule, verdict=verdict, keeps_before=keeps)

    state = HubState()
    state.of(IdleServers)["ada", ""] = idle
    spawner = SimpleNamespace(user=SimpleNamespace(settings={KEY: state}))
    (part,) = parts_of(spawner, RUNNING)

    assert (part.shown, bool(part.template)) == (expected, expected is not None)
    assert part.document == {"idle": asdict(expected) if expected is not None else None}


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (
            "tell",
            "Server lab has not been used for a while. Others may be waiting: please stop it if you do not need it.",
        ),
        ("stop", "Server lab has not been used for a while. It will be stopped soon unless it is used or kept."),
    ],
)
def test_who_looks_at_no_page_is_told_once_for_each_time_without_use(action: str, text: str) -> None:
    """No more of the server than its name, and nothing where the policy only takes notes."""
    state = HubState()
    for name, of_server in (("lab", action), ("quiet", "report")):
        verdict = Verdict(State.WARNED, NOW - 3000, NOW + 600, 2)
        state.of(IdleServers)["ada", name] = IdleServer(
            "12", gpus=True, rule=IdleRule(action=IdleAction(of_server)), verdict=verdict
        )
    assert list(letters({KEY: state}, NOW)) == [
        Letter("ada", f"idle 12 {NOW - 3000:.0f}", "Server lab is idle", text, until=NOW + 1800, server="lab")
    ]
