"""``gpuspawner why`` and ``failures``."""

from __future__ import annotations

import json
import re
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from jupyterhub import orm

from jupyterhub_gpuspawner.cli.main import main
from jupyterhub_gpuspawner.errors import (
    ConfigError,
    GPUSpawnerError,
    RequestError,
    SlurmOutputError,
    SlurmUnavailable,
    SubmitRejected,
)
from jupyterhub_gpuspawner.extensions.records.explanation import explanation
from jupyterhub_gpuspawner.extensions.records.store import SessionStore
from jupyterhub_gpuspawner.hub.job.cause import JOB_KILLED, JOB_SILENT, Cause, Kind, Stage, job_ended_in_start
from jupyterhub_gpuspawner.hub.job.ending import Ending, ending_state
from jupyterhub_gpuspawner.hub.job.session import Ended
from jupyterhub_gpuspawner.slurm.job import End, Job, Phase
from jupyterhub_gpuspawner.slurm.reason import meaning
from jupyterhub_gpuspawner.wire.bounds import FAULTS
from tests.cli.runner import cli_runner
from tests.extensions.records.events import LIFE, PLACED
from tests.slurm.recorded import recorded
from tests.standins.session_events import READY, SUBMITTED

GUIDE = Path(__file__).parents[3] / "docs/howto/when-a-server-does-not-start.md"
NOW = time.time()
WORKS = replace(SUBMITTED, begun_at=NOW - 601)
MODULE = Ending(
    Cause(Kind.START_FAILED, "module"),
    at=NOW - 60,
    job_id="43",
    job=Job("43", Phase.ENDED, batch_host="g1", state="FAILED", end=End.FAILED, exit_code="1:0"),
    stage=Stage.ALLOCATED,
    subject="CUDA/99",
    log="/home/ben/.local/share/gpuspawner/logs/jupyterhub-43.log",
    lines="Lmod has detected an error\ngpuspawner: module CUDA/99 cannot be loaded",
)


def failed(session: str, user: str, fault: str, node: str, *, job_id: str = "", subject: str = "") -> list[Any]:
    """The events of a start that failed, two minutes ago."""
    facts: dict[str, Any] = {"session": session, "username": user, "servername": "", "job_id": job_id}
    begun: dict[str, Any] = {"begun_at": NOW - 120, "profile": "two-k80", "course": ""}
    ended = Ended(**facts, **begun, at=NOW - 60, cause=Cause(Kind.START_FAILED, fault), node=node, subject=subject)
    submitted = replace(SUBMITTED, **facts, **begun, at=NOW - 119)
    return [submitted, ended] if job_id else [ended]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A hub's configuration, and beside it its database and the records of its sessions."""
    path = tmp_path / "jupyterhub_config.py"
    path.write_text(
        'c.JupyterHub.spawner_class = "gpu-profiles"\nc.JupyterHub.db_url = "sqlite:///jupyterhub.sqlite"\n'
    )
    events = [
        *LIFE,
        *(replace(event, session="w", username="gil", at=NOW - 600) for event in (WORKS, PLACED, READY)),
        *failed("b", "ben", "module", "g1", job_id="43", subject="CUDA/99"),
        *failed("c", "cid", "module", "g1", job_id="44", subject="CUDA/99"),
        *failed("d", "dot", "module", "g1", job_id="45", subject="CUDA/99"),
        *failed("e", "eve", "submit_rejected", ""),
    ]
    with closing(SessionStore(tmp_path / "sessions.sqlite")) as store:
        for event in events:
            store.take(event)
    session = orm.new_session_factory(f"sqlite:///{tmp_path / 'jupyterhub.sqlite'}")()
    for name, ending in (("ben", MODULE), ("fay", Ending(Cause(Kind.START_FAILED, "hook"), at=NOW))):
        session.add(orm.Spawner(user=orm.User(name=name), name="", state=ending_state(ending)))
    session.commit()
    session.close()
    session.get_bind().dispose()
    return path


def run(config: Path, *words: str) -> Result:
    return cli_runner().invoke(main, [*words, "--config", str(config)])


def test_why_a_start_failed_is_said_with_what_mends_it(config: Path) -> None:
    """Asked for, waited, ran on, ended, to do, and the end of the log."""
    lines = run(config, "why", "ben").stdout.splitlines()

    assert [line.strip().partition("  ")[0] for line in lines[1:]] == [
        *("asked for", "waited", "ran on", "ended", "to do", "log"),
        "| Lmod has detected an error",
        "| gpuspawner: module CUDA/99 cannot be loaded",
    ]
    assert lines[0] == "ben: the last server did not start, profile two-k80, job 43"
    assert lines[3] == "  ran on     g1"
    assert lines[4].endswith(": The module CUDA/99 cannot be loaded on g1.")
    assert lines[5].endswith("Correct `environment.modules` of profile two-k80; on g1: `module avail`.")
    assert lines[6] == "  log        /home/ben/.local/share/gpuspawner/logs/jupyterhub-43.log"


def test_why_names_gpus_as_the_pages_do(config: Path) -> None:
    """The server of gil had GPUs, and that of hal a slice; the records have the driver's names."""
    sliced = replace(PLACED, gpus=1, gpu_model="NVIDIA A100-SXM4-80GB MIG 1g.10gb")
    with closing(SessionStore(config.parent / "sessions.sqlite")) as store:
        for event in (WORKS, sliced, READY):
            store.take(replace(event, session="h", username="hal", at=NOW - 600))
    on = [
        next(line for line in run(config, "why", user).stdout.splitlines() if "ran on" in line).rpartition(",")[0]
        for user in ("gil", "hal")
    ]

    assert on == [f"  ran on     {PLACED.node}, {what}" for what in ("2 x K80, 12 GB", "1 x A100 slice, 10 GB")]


@pytest.mark.parametrize("command", ["why ben", "failures --since 1h"])
def test_the_guide_shows_what_the_commands_print(config: Path, command: str) -> None:
    """Line by line, at other times."""
    example = GUIDE.read_text().partition(f"$ gpuspawner {command}\n")[2].partition("```")[0]

    assert without_times(example) == without_times(run(config, *command.split()).stdout)


def without_times(text: str) -> str:
    """Without dates, times of day and how long ago that was."""
    return re.sub(r"\d{4}-\d\d-\d\d|\d\d:\d\d|\d+ \w+ ago", "TIME", text)


HOOK = "The hub could not prepare your server. A hook of this hub's configuration failed; its log says more."
SERVERS = {
    "ran": ("ada", "ended", "42", "", "Time limit."),
    "refused by Slurm": ("eve", "failed", "", "submit_rejected", "Slurm refused the job."),
    "without a record": ("fay", "failed", "", "hook", HOOK),
}


@pytest.mark.parametrize(("user", "state", "job_id", "fault", "sentence"), SERVERS.values(), ids=SERVERS)
def test_why_is_a_document_too(config: Path, user: str, state: str, job_id: str, fault: str, sentence: str) -> None:
    """Of a server that ran, of one that Slurm refused, and of one that only the hub's database knows."""
    document = json.loads(run(config, "why", user, "--json").stdout)

    assert (document["version"], document["user"], document["state"], document["job_id"]) == (1, user, state, job_id)
    assert (document["cause"].get("fault", ""), document["sentence"]) == (fault, sentence)


@pytest.mark.usefixtures("utc")
@pytest.mark.parametrize(
    ("reason", "waits"),
    [
        (
            "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions",
            "Waiting: g1 (GPU 3 fell off the bus, xid=79 State=IDLE Comment=forged [eve@1732184088] x=1, since 28 Nov "
            "2026, 22:38 UTC, by root) and g2 (line one line two ecc.errors=12 State=bad, since 28 Nov 2026, 22:38 "
            "UTC, by root) are out of service.",
        ),
        ("JobHeldUser", meaning("JobHeldUser").sentence),
    ],
)
def test_why_a_server_does_not_start_yet_is_what_slurm_says_now(config: Path, reason: str, waits: str) -> None:
    """And where its nodes are out of service, which, why, since when and by whom."""
    job = re.sub(r" Reason=\S+", f" Reason={reason}", recorded("24.11", "scontrol", "job_pend_resources").stdout)
    job_id = re.match(r"JobId=(\d+)", job)
    assert job_id is not None
    answers = {
        "job": re.sub(r" Partition=\S+", " Partition=gpu", job),
        "node": recorded("24.11", "free_text", "node").stdout,
        "partition": "PartitionName=gpu Nodes=g[1-2] State=UP\n",
        "reservation": "No reservations in the system\n",
        "config": "PrivateData = none\n",
    }
    for name, text in answers.items():
        (config.parent / name).write_text(text)
    commands = {
        "scontrol": f"cd {config.parent}\nfor word; do [ ! -f $word ] || exec cat $word; done",
        "squeue": "",
    }
    for name, text in commands.items():
        (config.parent / name).write_text(f"#!/bin/sh\n{text}\n")
        (config.parent / name).chmod(0o755)
    with config.open("a") as file:
        file.write(f'c.GPUSlurmSpawner.slurm_bin_dir = "{config.parent}"\n')
    with closing(SessionStore(config.parent / "sessions.sqlite")) as store:
        store.take(replace(WORKS, session="z", username="zoe", servername="", job_id=job_id[1], at=NOW - 60))
    lines = run(config, "why", "zoe").stdout.splitlines()

    assert lines[0].startswith("zoe: the last server is starting")
    assert f"  now        {waits}" in lines
    assert json.loads(run(config, "why", "zoe", "--json").stdout)["sentence"] == waits


def test_nothing_is_known_of_somebody(config: Path) -> None:
    """Exit code 1, and whose name it must be."""
    answer = run(config, "why", "zoe")

    assert (answer.exit_code, answer.stdout) == (1, "")
    assert answer.stderr == (
        "gpuspawner: nothing is known of a server of zoe. The name is that of JupyterHub. A start that the form "
        "refused leaves no record; one that is kept until Slurm answers has none yet, but a line in the hub's log.\n"
    )


def test_failures_are_listed_by_cause_with_the_node_that_several_people_met(config: Path) -> None:
    """For people and for programs."""
    text = run(config, "failures").stdout
    document = json.loads(run(config, "failures", "--json").stdout)

    assert text.startswith("4 of 5 starts failed since ")
    for part in (
        "3 x The module CUDA/99 cannot be loaded. [module]\n  profile    two-k80\n  nodes      g1 (3)\n",
        "1 x Slurm refused the job. [submit_rejected]\n",
        "node g1: the last 3 starts failed, of 3 people\n"
        '  drain it   scontrol update NodeName=g1 State=DRAIN Reason="gpuspawner: the last 3 starts failed"\n',
    ):
        assert part in text
    assert [(group["fault"], group["subject"], group["nodes"]) for group in document["failures"]] == [
        ("module", "CUDA/99", {"g1": 3}),
        ("submit_rejected", "", {}),
    ]
    assert ([node["node"] for node in document["nodes"]], document["starts"], document["version"]) == (["g1"], 5, 1)
    assert json.loads(run(config, "failures", "--since", "2026-01-01", "--json").stdout)["starts"] == 6


def test_a_profile_that_has_never_started_a_server_may_be_what_is_wrong(config: Path) -> None:
    """Three people, three broken profiles, the node that Slurm fills first: the node is not named."""
    with closing(SessionStore(config.parent / "sessions.sqlite")) as store:
        for number, fault in enumerate(("conda", "server", "home")):
            user = f"new{number}"
            for event in failed(user, user, fault, "c1", job_id=str(50 + number)):
                store.take(replace(event, profile=f"new-{number}"))
    text = run(config, "failures").stdout

    perhaps = "  perhaps    the profile: no server of it has started yet\n"
    assert (text.count(perhaps), "node c1" in text, "node g1" in text) == (3, False, True)


def test_a_hub_of_several_clusters_says_on_which(config: Path) -> None:
    """Nodes, jobs and profiles of the same names; what mends a cause is typed for its cluster."""
    with config.open("a") as file:
        file.write(
            'c.GPUSlurmSpawner.clusters = {"juniper": {}, "cedar": {"query_prefix": "ssh cedar", '
            '"exec_prefix": "ssh cedar sudo -n -u {username}", "wrapper_dir": "/opt"}}\n'
        )
    works = [
        replace(event, session="x", username="hal", at=NOW - 600, job_id="43", cluster="cedar")
        for event in (WORKS, PLACED, READY)
    ]
    people = (("b", "ben"), ("c", "cid"), ("d", "dot"))
    ended = [event for session, user in people for event in failed(session + "2", user, "launcher", "g1", job_id="43")]
    with closing(SessionStore(config.parent / "sessions.sqlite")) as store:
        for event in (*works, *(replace(event, cluster="cedar") for event in ended)):
            store.take(event)
    assert json.loads(run(config, "why", "hal", "--json").stdout)["cluster"] == "cedar"
    why, text = run(config, "why", "hal").stdout, run(config, "failures").stdout
    document = json.loads(run(config, "failures", "--json").stdout)

    assert why.startswith("hal (server second): the last server is running, profile two-k80, job 43 on cedar\n")
    assert f"  ran on     {PLACED.node} on cedar, 2 x K80, 12 GB" in why
    for part in (
        "\n  profile    two-k80 on juniper\n  nodes      g1 (3)\n",
        "\n  profile    two-k80 on cedar\n  nodes      g1 (3)\n",
        "\nnode g1 on juniper: the last 3 starts failed, of 3 people\n  drain it   scontrol update NodeName=g1 ",
        "\nnode g1 on cedar: the last 3 starts failed, of 3 people\n  drain it   ssh cedar scontrol update NodeName=g1",
        "  afterwards ssh cedar scontrol update NodeName=g1 State=RESUME\n",
    ):
        assert part in text
    assert [(group["cluster"], group["fault"], group["nodes"]) for group in document["failures"]] == [
        ("juniper", "module", {"g1": 3}),
        ("cedar", "launcher", {"g1": 3}),
        ("juniper", "submit_rejected", {}),
    ]
    assert [(node["cluster"], node["node"]) for node in document["nodes"]] == [("cedar", "g1"), ("juniper", "g1")]


def test_each_fault_has_words_and_a_remedy() -> None:
    """Of a job's report, of this package's errors, and of how a job ends."""
    errors = (GPUSpawnerError, ConfigError, RequestError, SubmitRejected, SlurmUnavailable, SlurmOutputError)
    ends = [job_ended_in_start(end).fault for end in (None, *End)]
    of_hub = ("hook", "timeout", "queue_timeout", "unreachable", "hub_restarted", "database", JOB_KILLED, JOB_SILENT)
    unknown = explanation("no such fault").sentence
    faults = [*FAULTS, *ends, *of_hub, *(error.reason for error in errors)]

    assert [fault for fault in faults if explanation(fault).sentence == unknown] == []
