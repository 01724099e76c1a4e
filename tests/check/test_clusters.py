"""A hub with several clusters: each is checked, and what is found of one names it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest
from jupyterhub import orm

from jupyterhub_gpuspawner.check import profiles
from jupyterhub_gpuspawner.check.clusters import check_clusters
from jupyterhub_gpuspawner.check.finding import Options, Severity, Verdict
from jupyterhub_gpuspawner.check.requests import REFUSED, check_requests
from jupyterhub_gpuspawner.check.run import contexts_of, findings_of_all, line
from jupyterhub_gpuspawner.check.run_as import check_prefix
from jupyterhub_gpuspawner.check.slurm import check_slurm
from jupyterhub_gpuspawner.check.submit import check_submit
from jupyterhub_gpuspawner.errors import SlurmUnavailable
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.site.configuration import load_site
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot
from tests.check.sites import HEAD, RecordedClient, context, findings_in
from tests.cli.runner import run
from tests.fixtures.databases import hub_session
from tests.snapshots import recorded_snapshot

TWO = """
c.GPUSlurmSpawner.clusters = {
    "juniper": {"req_partition": "gpu"},
    "cedar": {"slurm_conf": "/etc/cedar/slurm.conf", "req_partition": "batch"},
}
"""
BOTH = """
c.GPUProfilesSpawner.profiles = [
    {"display_name": "One", "slug": "one", "profile_options": {"where": {"choices": {
        "a": {"display_name": "A", "slurm": {"cluster": "juniper"}},
        "b": {"display_name": "B", "slurm": {"cluster": "cedar"}},
    }}}},
]
"""


def configuration(folder: Path, lines: str) -> Path:
    """The configuration of a hub with these lines, and a database of its own."""
    config = folder / "jupyterhub_config.py"
    config.write_text(f"{HEAD}c.JupyterHub.db_url = 'sqlite:///{folder}/hub.sqlite'\n{lines}\n")
    return config


AS_ROOT = """
c.GPUSlurmSpawner.exec_prefix = ''
c.GPUSlurmSpawner.dangerously_run_servers_as_root = True
"""
JUNIPER = {"slurm_conf": "/etc/juniper/slurm.conf"}
CEDAR = {"slurm_conf": "/etc/cedar/slurm.conf"}
MIXED = {
    "display_name": "B",
    "profile_options": {"where": {"choices": {"j": {}, "c": {"slurm": {"cluster": "cedar"}}}}},
}
CHOICE = "profile b: profile_options.where.choices.c.slurm.cluster"
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
ALL_CHOSEN = {
    "display_name": "B",
    "profile_options": {
        "where": {
            "choices": {
                "j": {"default": True, "slurm": {"cluster": "juniper"}},
                "c": {"slurm": {"cluster": "cedar"}},
            }
        }
    },
}
CEDER = {"where": {"choices": {"j": {}, "c": {"slurm": {"cluster": "ceder"}}}}}


@pytest.mark.parametrize(
    ("clusters", "profile", "alarms"),
    [
        ({"juniper": JUNIPER, "cedar": CEDAR}, MIXED, []),
        ({"juniper": JUNIPER, "cedar": CEDAR}, {"display_name": "G"}, [UNUSED]),
        ({"juniper": {}, "cedar": {"req_partition": "gpu"}}, MIXED, [SAME]),
        ({"juniper": JUNIPER, "cedar": {**JUNIPER, "req_cluster": "cedar"}}, MIXED, []),
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
        ({"juniper": JUNIPER, "cedar": CEDAR}, {**ALL_CHOSEN, "slurm": {"cluster": "ceder"}}, []),
    ],
    ids=["right", "unused", "the same", "of one slurmdbd", "unknown", "unknown in a choice", "unknown, and never used"],
)
def test_a_mistake_in_the_clusters_is_found(
    tmp_path: Path, clusters: dict[str, object], profile: dict[str, object], alarms: list[str]
) -> None:
    """Each with its place, and what would be right."""
    lines = f"c.GPUSlurmSpawner.clusters = {clusters}\nc.GPUProfilesSpawner.profiles = [{profile}]"
    findings = findings_in(context(tmp_path, lines))

    assert [line(finding) for finding in findings if finding.severity is not Severity.OK] == alarms


def test_servers_on_a_cluster_that_is_named_no_longer(tmp_path: Path) -> None:
    """Those of the hub's database; one that has ended does not count."""
    with hub_session(f"sqlite:///{tmp_path}/hub.sqlite") as session:
        for name, cluster, runs in (("ada", "oak", True), ("bob", "oak", False), ("cyd", "cedar", True)):
            server = orm.Server() if runs else None
            server_state = {"job_id": "7", "cluster": {"name": cluster}}
            session.add(orm.Spawner(name="", user=orm.User(name=name), state=server_state, server=server))
        session.commit()

    async def alarms() -> list[str]:
        contexts = await contexts_of(load_site(configuration(tmp_path, TWO + BOTH)))
        return [line(finding) for finding in await findings_of_all(contexts, (check_clusters,))]

    assert asyncio.run(alarms()) == [
        "warn  c.GPUSlurmSpawner.clusters: oak: the hub no longer names it, and servers of ada run there. They are "
        "kept. Name it until they have ended, or stop them. [cluster-removed]"
    ]


def needs_its_partition(resources: Resources, snapshot: ClusterSnapshot, _now: float) -> Verdict | None:
    """A judge who knows the cluster's partitions."""
    is_there = (resources.partition or "") in snapshot.partition_by_name
    return None if is_there else Verdict("partition", "there is none", REFUSED, "Name another one.")


def test_each_cluster_judges_its_own_requests_and_one_is_silent(tmp_path: Path) -> None:
    """juniper has no partition batch, and cedar is down: what its requests depend on is not checked."""
    lines = TWO + BOTH.replace('"cluster": "juniper"', '"cluster": "juniper", "partition": "batches"')
    silent = SlurmUnavailable("slurmctld cannot be reached.")

    async def codes() -> list[tuple[str, str, str]]:
        juniper, cedar = await contexts_of(load_site(configuration(tmp_path, lines)))
        snapshot = recorded_snapshot("22.05")
        contexts = [
            replace(
                juniper,
                client=RecordedClient(),  # type: ignore[arg-type]
                snapshot=snapshot,
                slurm_error=None,
                version="22.05.8",
                now=datetime.fromtimestamp(snapshot.taken_at, timezone.utc),
                judges=(needs_its_partition,),
            ),
            replace(cedar, slurm_error=silent, judges=(needs_its_partition,)),
        ]
        checks = (check_requests, profiles.check_allowed, check_slurm)
        return [(finding.cluster, finding.where, finding.code) for finding in await findings_of_all(contexts, checks)]

    assert asyncio.run(codes()) == [
        ("juniper", "profile one: profile_options.where.choices.a.slurm.partition", "request-refused"),
        ("juniper", "Slurm", "slurm"),
        ("cedar", "profile one", "profile"),
        ("cedar", "Slurm", "slurm-silent"),
    ]


def test_a_setting_of_one_cluster_is_found_there_and_that_of_all_once(tmp_path: Path) -> None:
    """As the admin reads them: `on` the cluster, after the place."""
    own = TWO.replace('"req_partition": "batch"', '"req_partition": "batch", "req_homedir": "/home/{user}"')
    checked = run(tmp_path, f"{HEAD}{own}{BOTH}c.GPUSlurmSpawner.log_dir = '$HOME'\n", "check")

    assert [text for text in checked.stdout.splitlines() if "path-not" in text] == [
        "WRONG c.GPUSlurmSpawner.log_dir: $HOME in '$HOME' is not replaced, so jobs would look for a folder that is "
        "called so. Write {homedir} or {username}, or the path itself. [path-not-replaced]",
        "WRONG c.GPUSlurmSpawner.clusters: req_homedir on cedar: {user} in '/home/{user}' is not replaced, so jobs "
        "would look for a folder that is called so. Write {username}, or the path itself. [path-not-replaced]",
    ]


def test_one_cluster_alone(tmp_path: Path) -> None:
    """The other is not asked; a name that is none has the names that are."""
    lines = f"{HEAD}{TWO}{BOTH}"
    checked = run(tmp_path, lines, "check", "--cluster", "cedar")
    unknown = run(tmp_path, lines, "check", "--cluster", "oak")

    assert (checked.exit_code, [text[:28] for text in checked.stdout.splitlines() if " on " in text]) == (
        3,
        ["ok    profile one on cedar: ", "WRONG Slurm on cedar: Slurm'"],
    )
    assert (unknown.exit_code, unknown.stderr) == (
        1,
        "gpuspawner: there is no cluster 'oak'. Clusters are juniper, cedar.\n",
    )


def test_only_options_of_a_named_cluster(tmp_path: Path) -> None:
    """Options() has none: each cluster of the hub has a context of its own."""

    async def names(options: Options) -> list[str]:
        contexts = await contexts_of(load_site(configuration(tmp_path, TWO + BOTH)), options)
        return [context.cluster for context in contexts]

    assert asyncio.run(names(Options())) == ["juniper", "cedar"]
    assert asyncio.run(names(Options(cluster="cedar"))) == ["cedar"]


def with_commands(folder: Path, scripts: dict[str, str], settings: str = "") -> str:
    """Lines of a hub with two clusters, whose commands are these scripts, and a profile that has a choice on each."""
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    partitions = {"juniper": "gpu", "cedar": "batch"}
    own = {
        name: {"slurm_conf": f"/etc/{name}/slurm.conf", "req_partition": partition}
        for name, partition in partitions.items()
    }
    return f"c.GPUSlurmSpawner.clusters = {own}\nc.GPUSlurmSpawner.slurm_bin_dir = '{folder}'\n{settings}{BOTH}"


def test_commands_are_tried_as_a_user_on_each_cluster(tmp_path: Path) -> None:
    """By the slurm.conf of each, with which its servers are submitted and cancelled."""
    records = f'echo "$SLURM_CONF" >>{tmp_path}/asked'
    scripts = {"as": 'shift\nexec "$@"', "sbatch": records, "scancel": records}
    lines = with_commands(tmp_path, scripts, f"c.GPUSlurmSpawner.exec_prefix = '{tmp_path}/as {{username}}'\n")

    async def codes() -> list[tuple[str, str]]:
        contexts = await contexts_of(load_site(configuration(tmp_path, lines)), Options(user="daemon"))
        return [(finding.cluster, finding.code) for finding in await findings_of_all(contexts, (check_prefix,))]

    assert asyncio.run(codes()) == [("juniper", "run-as-user"), ("cedar", "run-as-user")]
    assert sorted((tmp_path / "asked").read_text().split()) == [
        *["/etc/cedar/slurm.conf"] * 3,
        *["/etc/juniper/slurm.conf"] * 3,
    ]


def test_a_job_is_submitted_on_each_cluster(tmp_path: Path, unused_tcp_port: int) -> None:
    """In the partition of each that the profile's choices use; both have the same partitions and nodes."""
    sbatch = f"""partition=$(sed -n 's/^#SBATCH --partition=//p')
echo "$SLURM_CONF" "$partition" >>{tmp_path}/asked
echo 'sbatch: error: Batch job submission failed: Access/permission denied' >&2
exit 1"""
    lines = with_commands(tmp_path, {"sbatch": sbatch}, f"{AS_ROOT}c.JupyterHub.hub_port = {unused_tcp_port}\n")

    async def codes() -> list[tuple[str, str, str]]:
        contexts = await contexts_of(load_site(configuration(tmp_path, lines)), Options(submit=True))
        with_snapshots = [
            replace(context, snapshot=recorded_snapshot("22.05"), slurm_error=None) for context in contexts
        ]
        return [
            (finding.cluster, finding.where, finding.code)
            for finding in await findings_of_all(with_snapshots, (check_submit,))
        ]

    assert asyncio.run(codes()) == [
        ("juniper", "partition gpu", "job-refused"),
        ("cedar", "partition batch", "job-refused"),
    ]
    assert sorted((tmp_path / "asked").read_text().splitlines()) == [
        "/etc/cedar/slurm.conf batch",
        "/etc/juniper/slurm.conf gpu",
    ]
