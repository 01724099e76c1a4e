"""Who does not see the map."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.demo.hub import HubProcess
from tests.hub.visitor import Visitor

pytestmark = [pytest.mark.slurm, pytest.mark.hub]


def test_a_participant_sees_no_map(light_hub: HubProcess) -> None:
    """Neither the page, which says so in the product's words, nor its document, nor a link to it."""
    lou = Visitor(light_hub, "lou")
    paths = ("gpuspawner/cluster", "api/gpuspawner/cluster")

    assert [lou.look(f"/hub/{path}").status for path in paths] == [403, 403]
    assert [words.get_text() for words in lou.look("/hub/gpuspawner/cluster").soup.select("main h1 + p")] == [
        "The map of the cluster is for administrators: it names everybody's jobs and servers."
    ]
    assert lou.look("/hub/home").soup.select('a[href$="/gpuspawner/cluster"]') == []
