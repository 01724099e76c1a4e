"""Nodes on which starts fail, on the map of the cluster."""

from __future__ import annotations

from jupyterhub_gpuspawner.extensions.records.failures import FailingNode
from jupyterhub_gpuspawner.extensions.records.keeper import FromRecords
from jupyterhub_gpuspawner.extensions.records.marks import marks_of
from jupyterhub_gpuspawner.extensions.records.record import SessionRecord
from jupyterhub_gpuspawner.hub.extension import NodeMark, NodeMarks
from jupyterhub_gpuspawner.hub.job.cause import Cause, Kind
from jupyterhub_gpuspawner.hub.site.state import HubState


def test_a_node_on_which_the_starts_of_several_people_failed_is_marked() -> None:
    """With the command that drains it, on its own cluster."""
    cause = Cause(Kind.START_FAILED, "launcher")
    starts = tuple(SessionRecord(user, user, node="g1", ended_at=1e9, cause=cause) for user in ("ada", "bob", "cid"))
    failing = FailingNode("", "g1", starts)
    hub = HubState()
    hub.keep(FromRecords(failing_nodes={"": {"g1": failing}}))

    sentence = "The last 3 starts here failed, those of 3 people."
    drain = 'scontrol update NodeName=g1 State=DRAIN Reason="gpuspawner: the last 3 starts failed"'
    assert marks_of(hub, "") == NodeMarks("failing_nodes", {"g1": (NodeMark(sentence, drain),)}, [failing.to_json()])
    assert marks_of(hub, "other") == NodeMarks("failing_nodes", {}, [])
