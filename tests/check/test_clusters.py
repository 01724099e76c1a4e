"""A hub with several clusters: mistakes in its settings and profiles that concern them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jupyterhub_gpuspawner.check.finding import Severity
from jupyterhub_gpuspawner.check.run import line
from tests.check.sites import context, found_in

if TYPE_CHECKING:
    from pathlib import Path

JUNIPER = {"slurm_conf": "/etc/juniper/slurm.conf"}
CEDAR = {"slurm_conf": "/etc/cedar/slurm.conf"}
BOTH = {"display_name": "B", "profile_options": {"where": {"choices": {"j": {}, "c": {"slurm": {"cluster": "cedar"}}}}}}
CHOICE = "profile b: profile_options.where.choices.c"
UNUSED = (
    "warn  c.GPUSlurmSpawner.clusters: cedar: no profile starts servers on cedar. Write `cluster: cedar` into the "
    "slurm block of a profile or of a choice, or remove the cluster. [cluster-unused]"
)
SAME = (
    "warn  c.GPUSlurmSpawner.clusters: cedar: Slurm is asked by the same commands as for juniper, so both are one "
    "cluster, and its nodes and jobs are counted twice. Set slurm_conf, query_prefix or req_cluster of one of them, or "
    "remove one. [clusters-same]"
)
UNKNOWN = "There is no cluster 'ceder'. Did you mean cedar? Clusters of this hub are juniper, cedar. [cluster-unknown]"
CEDER = {"where": {"choices": {"j": {}, "c": {"slurm": {"cluster": "ceder"}}}}}


@pytest.mark.parametrize(
    ("clusters", "profile", "says"),
    [
        ({"juniper": JUNIPER, "cedar": CEDAR}, BOTH, []),
        ({"juniper": JUNIPER, "cedar": CEDAR}, {"display_name": "G"}, [UNUSED]),
        ({"juniper": {}, "cedar": {"req_partition": "gpu"}}, BOTH, [SAME]),
        ({"juniper": JUNIPER, "cedar": {**JUNIPER, "req_cluster": "cedar"}}, BOTH, []),
        (
            {"juniper": JUNIPER, "cedar": CEDAR},
            {"display_name": "G", "slurm": {"cluster": "ceder"}},
            [f"WRONG profile g: slurm.cluster: {UNKNOWN}", UNUSED.replace("cedar", "juniper"), UNUSED],
        ),
        (
            {"juniper": JUNIPER, "cedar": CEDAR},
            {"display_name": "B", "profile_options": CEDER},
            [f"WRONG {CHOICE}: {UNKNOWN}", UNUSED],
        ),
    ],
    ids=["right", "unused", "the same", "of one slurmdbd", "unknown", "unknown in a choice"],
)
def test_a_mistake_in_the_clusters_is_found(
    tmp_path: Path, clusters: dict[str, object], profile: dict[str, object], says: list[str]
) -> None:
    """Each with its place, and what would be right."""
    lines = f"c.GPUSlurmSpawner.clusters = {clusters}\nc.GPUProfilesSpawner.profiles = [{profile}]"
    found = found_in(context(tmp_path, lines))

    assert [line(each) for each in found if each.severity is not Severity.OK] == says
