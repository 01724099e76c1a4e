"""The tutorial about one's own cluster, followed literally."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.docs.follow import ROOT, blocks
from tests.docs.test_tutorials import cut, plain, report_of


@pytest.fixture
def followed_from_nothing(needs_slurm: None, site_folder: Path) -> dict[str, Any]:
    """By somebody who follows the tutorial about one's own cluster, in an empty folder."""
    return report_of("tests.extensions.init.follow_own_cluster", site_folder, "configurable-http-proxy", "ip")


@pytest.mark.slurm
@pytest.mark.hub
@pytest.mark.users
def test_an_empty_folder_leads_to_a_notebook_in_five_minutes(followed_from_nothing: dict[str, Any]) -> None:
    """Each command prints what the page shows, and the cell what its notebook does, as the user who signed in."""
    done = [step for step in followed_from_nothing["steps"] if step["output"] is not None]

    assert [step for step in done if step["status"] != 0] == []
    assert [(step["command"], plain(cut(step))) for step in done] == [
        (step["command"], plain(step["shown"])) for step in done
    ]
    assert len(done) == 2
    page = (ROOT / "docs/tutorial/your-own-cluster.md").read_text("utf-8")
    assert [text for kind, text in blocks(page) if kind == "yaml"] == [followed_from_nothing["file"]]
    assert (followed_from_nothing["cell"], followed_from_nothing["owner"]) == ("'0'\n", "ada")
    assert sum(followed_from_nothing["seconds"].values()) < 300
