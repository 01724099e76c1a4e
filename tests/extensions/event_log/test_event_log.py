"""Events in JupyterHub's event log."""

from __future__ import annotations

import io
import json
import logging
from dataclasses import fields, replace
from typing import Any

import pytest
import yaml
from jupyter_events.logger import EventLogger
from traitlets.config import Config

from jupyterhub_gpuspawner.extensions.event_log.hub import emitter, register_schemas
from jupyterhub_gpuspawner.hub.job.cause import Kind
from jupyterhub_gpuspawner.hub.job.session import EVENTS, SCHEMAS, Ended, Event
from tests.standins.session_events import LIFE

pytestmark = pytest.mark.oldest


def logged(*events: Event) -> list[dict[str, object]]:
    sink = io.StringIO()
    config = Config()
    config.EventLogger.handlers = [logging.StreamHandler(sink)]
    log = EventLogger(config=config)
    register_schemas(log)
    emit = emitter(log)
    for event in events:
        emit(event)
    return [json.loads(line) for line in sink.getvalue().splitlines()]


def test_each_event_is_logged_by_its_schema() -> None:
    """The log validates it; its time is the event's own."""
    entries = logged(*LIFE)

    assert [entry["__schema__"] for entry in entries] == [event.schema_id() for event in LIFE]
    assert str(entries[0]["__timestamp__"]).startswith("2026-03-02T12:00:01")
    assert (entries[-1]["cause"], entries[-1]["fault"], entries[1]["reasons"]) == (
        "time limit",
        "",
        ["Priority", "Resources"],
    )


@pytest.mark.parametrize("event", LIFE, ids=lambda event: event.NAME)
def test_a_schema_has_the_fields_of_its_event(event: Event) -> None:
    """All are required but the cluster, which only a hub has that names some; a field more or less is noticed here."""
    schema, named = yaml_of(event), replace(event, cluster="cedar")
    names = {field.name for field in fields(event)} - {"at"} | ({"fault"} if isinstance(event, Ended) else set())

    assert schema["$id"] == event.schema_id()
    assert set(schema["properties"]) == names == set(named.to_json())
    assert set(schema["required"]) == names - {"cluster"} == set(event.to_json())
    assert [entry.get("cluster") for entry in logged(event, named)] == [None, "cedar"]


def test_the_schemas_are_those_of_the_events_and_know_every_cause() -> None:
    """No more files, and no cause that could not be logged."""
    assert {path.stem for path in SCHEMAS.iterdir()} == {event.NAME for event in EVENTS}
    assert yaml_of(LIFE[-1])["properties"]["cause"]["enum"] == [kind.value for kind in Kind]


def yaml_of(event: Event) -> Any:
    return yaml.safe_load((SCHEMAS / f"{event.NAME}.yaml").read_text())
