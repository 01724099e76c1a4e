"""The table of sites: written from results alone, and with a row for each site."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]
sites = runpy.run_path(str(ROOT / "scripts" / "sites_table.py"))
JUNIT = """
<testsuites><testsuite>
<testcase classname="TestMainJob" name="test_choose"/>
<testcase classname="TestMainJob" name="test_time_limit"><failure message="no"/></testcase>
<testcase classname="TestMainJob" name="test_stop"/>
<testcase classname="TestMainJob" name="test_stop"><error message="its end failed"/></testcase>
<testcase classname="test_plain" name="test_the_home_hangs"><skipped message="needs root"/></testcase>
</testsuite></testsuites>
"""


def test_a_test_fails_if_its_end_does_and_one_that_was_skipped_says_why(tmp_path: Path) -> None:
    """The results of one run of pytest, by the names of the tests."""
    (tmp_path / "junit").write_text(JUNIT)
    assert sites["outcomes"](tmp_path / "junit") == {
        "choose": "passed",
        "time_limit": "failed",
        "stop": "failed",
        "the_home_hangs": "not tried: needs root",
    }


def test_the_table_is_what_its_results_say() -> None:
    """Nobody has edited the page, or the results without it."""
    assert sites["TABLE"].read_text("utf-8") == sites["table"](sites["read"]())
