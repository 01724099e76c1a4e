"""The body of a request that shows or withdraws an administrator's message."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jupyterhub_gpuspawner.extensions.messages.api import MessageRequest, audiences, parse_message, to_json
from jupyterhub_gpuspawner.extensions.messages.store import EVERYBODY, Audience, Kind
from jupyterhub_gpuspawner.slurm.job import Job, Phase
from jupyterhub_gpuspawner.wire.documents import NodeGrant, PlacementDocument
from tests.standins.hub_spawner import HubSpawner

FORMS = (
    'to: must be {"everybody": true}, {"user": name}, {"user": name, "server": name}, {"profile": slug}, '
    '{"cluster": name}, {"node": name} or {"cluster": name, "node": name}.'
)
WHOM: dict[str, tuple[dict[str, Any], Audience]] = {
    "everybody": ({"everybody": True}, EVERYBODY),
    "a user": ({"user": "ada"}, Audience(Kind.USER, user="ada")),
    "a default server": ({"user": "ada", "server": ""}, Audience(Kind.SERVER, "", "ada")),
    "a server": ({"user": "ada", "server": "lab"}, Audience(Kind.SERVER, "lab", "ada")),
    "a profile": ({"profile": "k80"}, Audience(Kind.PROFILE, "k80")),
    "a cluster": ({"cluster": "cedar"}, Audience(Kind.CLUSTER, "cedar")),
    "a node": ({"node": "g1"}, Audience(Kind.NODE, "g1")),
    "a node of a cluster": ({"cluster": "cedar", "node": "g1"}, Audience(Kind.NODE, "cedar/g1")),
}
FAULTS: dict[str, tuple[object, str]] = {
    "no body": (None, "The body must be a JSON object."),
    "an unknown field": ({"text": "x"}, "text: there is no such field; there are message, minutes, to."),
    "to nobody": ({"message": "x"}, FORMS),
    "to two kinds": ({"message": "x", "to": {"profile": "k80", "node": "g1"}}, FORMS),
    "to a server of nobody": ({"message": "x", "to": {"server": "lab"}}, FORMS),
    "not to everybody": ({"message": "x", "to": {"everybody": False}}, FORMS),
    "to a course": ({"message": "x", "to": {"course": "deep"}}, FORMS),
    "a number for a name": ({"message": "x", "to": {"node": 1}}, "to.node: must be a name."),
    "an empty name": ({"message": "x", "to": {"user": "", "server": ""}}, "to.user: must be a name."),
    "a name with a NUL": ({"message": "x", "to": {"node": "g\0"}}, "to.node: must be a name."),
    "a name too long": ({"message": "x", "to": {"node": "g" * 256}}, "to.node: must be a name."),
    "no text": ({"to": {"node": "g1"}}, "message: must be a text."),
    "a text without characters": ({"to": {"node": "g1"}, "message": " \x00 "}, "message: must be a text."),
    "no time": (
        {"to": {"node": "g1"}, "message": "x", "minutes": 0},
        "minutes: must be a whole number from 1 to 43200.",
    ),
    "true": (
        {"to": {"node": "g1"}, "message": "x", "minutes": True},
        "minutes: must be a whole number from 1 to 43200.",
    ),
}


@pytest.mark.parametrize(("to", "audience"), WHOM.values(), ids=WHOM.keys())
def test_everybody_whom_a_message_may_reach_has_one_form(to: dict[str, Any], audience: Audience) -> None:
    """The same in requests and answers; a message is shown for a day, and withdrawn without a text."""
    assert parse_message({"message": "Down\x1b at 12.", "to": to}) == MessageRequest(audience, "Down at 12.", 1440)
    assert parse_message({"to": to}, with_text=False) == MessageRequest(audience)
    assert to_json(audience) == to


@pytest.mark.parametrize(("body", "fault"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_names_the_field(body: object, fault: str) -> None:
    """And says what would be right."""
    with pytest.raises(ValueError) as raised:
        parse_message(body)
    assert str(raised.value) == fault


def test_a_message_about_a_node_is_for_everybody_who_has_a_part_of_it() -> None:
    """The server runs on the first of its job's nodes, and programs that it starts on the others."""
    server = HubSpawner(SimpleNamespace(name="ada"), job=Job("12", Phase.RUNNING), ready=True)
    server.report.placement = PlacementDocument(job_id="12", node="g1", other_nodes=(NodeGrant("g2"),))

    nodes = [audience.name for audience in audiences("ada", [server]) if audience.kind is Kind.NODE]

    assert nodes == ["g1", "g2"]
