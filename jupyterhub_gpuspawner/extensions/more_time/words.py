"""What pages say of more time for a server; the page puts the time in the place of ``{time}``."""

from __future__ import annotations

MORE_TIME = "More time"
EXTEND_MINUTES = "Minutes to add"
EXTENDED_UNTIL = "It ends at {time}."
EXTEND_HEADING = "More time for {title}"
