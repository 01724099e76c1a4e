"""The end of a job's log, as a page may show it."""

from __future__ import annotations

import os
from pathlib import Path

from jupyterhub_gpuspawner.hub.joblog import LINES, last_lines


async def test_the_last_lines_are_shown(tmp_path: Path) -> None:
    """A long log gives its last lines, whole."""
    log = tmp_path / "job.log"
    log.write_text("".join(f"line {n}\n" for n in range(1000)))

    assert await last_lines(str(log)) == "\n".join(f"line {n}" for n in range(1000 - LINES, 1000))


async def test_control_characters_do_not_reach_the_page(tmp_path: Path) -> None:
    """An escape sequence in a log becomes a visible stand-in."""
    log = tmp_path / "job.log"
    log.write_bytes(b"\x1b[31mred\xff\n")

    assert await last_lines(str(log)) == "�[31mred�"


async def test_what_is_no_plain_file_is_not_read(tmp_path: Path) -> None:
    """A missing file, a link and a pipe without a writer give no lines, and do not block."""
    (tmp_path / "target").write_text("secret\n")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    os.mkfifo(tmp_path / "pipe")

    assert [await last_lines(str(tmp_path / name)) for name in ("missing", "link", "pipe")] == ["", "", ""]
