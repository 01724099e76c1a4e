"""Which of JupyterHub's own tests fail with this package in place: each has a reason."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

from benchmarks.jupyterhub_suites import PAGE, REASONS, SUITES


def test_each_reason_is_for_tests_of_jupyterhubs() -> None:
    """A test that a newer JupyterHub no longer has needs none; one test has one reason."""
    spec = find_spec("jupyterhub.tests")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    folder = Path(spec.submodule_search_locations[0])
    theirs = {name for suite in SUITES for name in re.findall(r"def (test_\w+)", (folder / f"{suite}.py").read_text())}
    explained = [name for names in REASONS.values() for name in names]

    assert sorted(set(explained) - theirs) == []
    assert len(set(explained)) == len(explained)


def test_the_page_has_a_reason_for_all_that_failed() -> None:
    """It was written with the reasons of today."""
    lines = PAGE.read_text().splitlines()
    told = {name: line for line in lines for name in re.findall(r"`(test_\w+)` \(", line)}
    reasons = {name: reason for reason, names in REASONS.items() for name in names}

    assert "not explained" not in PAGE.read_text()
    assert {name: line.rstrip(" |").rpartition("| ")[2] for name, line in told.items()} == {
        name: reasons[name] for name in told
    }
