"""The bounds of the time between two samples, and bodies that are no summary of use."""

from __future__ import annotations

import pytest
from traitlets import TraitError
from traitlets.config import Config

from jupyterhub_gpuspawner.errors import ReportError
from jupyterhub_gpuspawner.extensions.usage.settings import UsageSettings
from jupyterhub_gpuspawner.extensions.usage.use import parse_usage
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from tests.hub.report.test_reader import BODIES


@pytest.mark.parametrize("section", ["GPUSlurmSpawner", "SlurmSpawner", "BatchSpawnerBase"])
def test_a_time_out_of_bounds_is_refused_with_the_bounds(section: str) -> None:
    """Whichever class the configuration names."""
    with pytest.raises(TraitError) as refused:
        GPUSlurmSpawner(config=Config({section: {"usage_interval": float("inf")}}))
    assert str(refused.value) == "usage_interval: inf must be from 1 to 600 seconds, or 0."


def test_the_bounds_themselves_are_allowed() -> None:
    """So is zero, which means never."""
    assert [UsageSettings(usage_interval=value).usage_interval for value in (0, 1, 600)] == [0, 1, 600]


@pytest.mark.parametrize(("fault", "body"), [(fault, body) for fault, bodies in BODIES.items() for body in bodies])
def test_what_is_no_document_is_refused(fault: str, body: bytes) -> None:
    """Bounded, and one reading only, as of a report."""
    with pytest.raises(ReportError, match=fault):
        parse_usage(body)
