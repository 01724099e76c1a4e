"""The admin's settings for session records: ``c.GPUSessions``."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError
from traitlets import Bool, Unicode
from traitlets.config import Configurable

from jupyterhub_gpuspawner.hub.site.bounded import Count
from jupyterhub_gpuspawner.hub.site.database_file import full_url

FILE = "sessions.sqlite"


class GPUSessions(Configurable):
    """Whether, where and for how long a record of each session is kept: what `gpuspawner sessions` reads."""

    enabled = Bool(
        True,  # noqa: FBT003 - traitlets' signature
        config=True,
        help="""Keep a record of each session of a server that is a Slurm job: who started it, how long it waited, what
        it got and used, and why it ended. No file names, and nothing of what runs in notebooks.""",
    )
    path = Unicode(
        "",
        config=True,
        help=f"""The SQLite file of the records, on a local disk. Empty: `{FILE}` in the folder of the hub's database,
        or in the hub's working directory if that is not a file.""",
    )
    keep_sessions = Count(
        400, low=1, high=36500, config=True, help="Days for which the record of a session is kept after its end."
    )

    def file(self, db_url: str) -> Path:
        """The file of the records in a hub with this database."""
        if self.path:
            return Path(self.path)
        try:
            url = make_url(full_url(db_url))
        except ArgumentError:
            return Path(FILE)
        beside = url.get_backend_name() == "sqlite" and url.database and not url.database.startswith((":", "file:"))
        return Path(url.database or "").parent / FILE if beside else Path(FILE)
