"""Where the records of sessions are."""

from __future__ import annotations

import pytest
from traitlets import TraitError
from traitlets.config import Config

from jupyterhub_gpuspawner.hub.records.keeper import GPUSessions, records_file


@pytest.mark.parametrize(
    ("db_url", "expected"),
    [
        ("sqlite:///jupyterhub.sqlite", "sessions.sqlite"),
        ("sqlite:////srv/hub/jupyterhub.sqlite", "/srv/hub/sessions.sqlite"),
        ("sqlite:///:memory:", "sessions.sqlite"),
        ("postgresql://hub@db/hub", "sessions.sqlite"),
        ("/srv/hub/jupyterhub.sqlite", "/srv/hub/sessions.sqlite"),
        ("not an address://", "sessions.sqlite"),
    ],
)
def test_the_file_is_beside_the_hubs_database(db_url: str, expected: str) -> None:
    """Where that is no file of SQLite, it is in the hub's working directory."""
    assert str(records_file(db_url)) == expected


def test_a_time_that_is_none_is_refused() -> None:
    """The message names the bounds."""
    with pytest.raises(TraitError, match="must be a whole number from 1 to 36500"):
        GPUSessions(config=Config({"GPUSessions": {"keep_sessions": 0}}))
