"""What this version stores and sends, which ``python -m tests.extensions.together.stored`` writes to a folder.

It is ``tests/data/release-0.1``. Later versions have to read these files; ``test_upgrade.py`` compares what they read
with the values here. The files are written once more before 0.1.0 is released, and never after it: what a later version
adds has a folder of its own.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from datetime import datetime
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import yaml
from click import Option
from pydantic import BaseModel
from sqlalchemy import create_engine
from sqlalchemy.orm import Session
from traitlets import HasTraits
from traitlets.config import Config

from docs.reference_pages.commands import walk
from docs.reference_pages.settings import CONFIGURED
from jupyterhub_gpuspawner.cli.main import main as gpuspawner
from jupyterhub_gpuspawner.extensions.courses.additions import keep_additions
from jupyterhub_gpuspawner.extensions.courses.course import Course
from jupyterhub_gpuspawner.extensions.courses.page import keep_actions
from jupyterhub_gpuspawner.extensions.courses.participants import CourseStart, CourseStarts
from jupyterhub_gpuspawner.extensions.courses.participants import Stage as CourseStage
from jupyterhub_gpuspawner.extensions.fleet.health import Grant
from jupyterhub_gpuspawner.extensions.fleet.node_record import View, merged
from jupyterhub_gpuspawner.extensions.fleet.store import FleetStore
from jupyterhub_gpuspawner.extensions.idle.times import IdleTime, IdleTimes
from jupyterhub_gpuspawner.extensions.messages.store import Audience, Message, Messages
from jupyterhub_gpuspawner.extensions.messages.store import Kind as AudienceKind
from jupyterhub_gpuspawner.extensions.records.promises import Promise, PromiseMoment
from jupyterhub_gpuspawner.extensions.records.store import SessionStore
from jupyterhub_gpuspawner.extensions.several_nodes.reports import OtherNodes
from jupyterhub_gpuspawner.extensions.usage.node.summary import GpuUse, UsageSummary
from jupyterhub_gpuspawner.extensions.usage.use import ServerUsage
from jupyterhub_gpuspawner.hub import registration  # noqa: F401 - with it all stores are imported
from jupyterhub_gpuspawner.hub.extension import WithServer
from jupyterhub_gpuspawner.hub.job.cause import Cause, Kind, Stage
from jupyterhub_gpuspawner.hub.job.ending import Ending
from jupyterhub_gpuspawner.hub.job.session import Ended, Event, Placed, Ready, Submitted, Usage
from jupyterhub_gpuspawner.hub.job.session import Session as ServerSession
from jupyterhub_gpuspawner.hub.site.tables import upgrade
from jupyterhub_gpuspawner.hub.spawners.profiles import ChosenProfile, GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.shared_folder import keep_slugs
from jupyterhub_gpuspawner.hub.start.attempt import Attempt, KeptStart, Moment
from jupyterhub_gpuspawner.hub.start.rival import Contest, Rival
from jupyterhub_gpuspawner.hub.start.submission import RecordedStart, StartRecords
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology, NumaNode, to_document
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles
from jupyterhub_gpuspawner.profiles.resolve import resolve
from jupyterhub_gpuspawner.slurm.estimate import Estimate
from jupyterhub_gpuspawner.slurm.estimate import Kind as EstimateKind
from jupyterhub_gpuspawner.slurm.job import End, Job, JobIdentity, Phase
from jupyterhub_gpuspawner.slurm.reason import Words
from jupyterhub_gpuspawner.units import Gres, NodeAllocation
from jupyterhub_gpuspawner.wire.documents import (
    NodeGrant,
    NodeReport,
    PlacedGpu,
    PlacementDocument,
    PortReport,
    StartFailure,
)
from tests.fixtures.extensions import ALL

RELEASE = Path(__file__).parents[2] / "data" / "release-0.1"
NOW = 1_795_600_000.0
FAR = 4_000_000_000.0
"""Until then a message is shown."""

# --- what nodes send ------------------------------------------------------------------------------

TOPOLOGY = NodeTopology(
    hostname="g1.cluster",
    gpus=(
        Gpu(0, "GPU-aa", "0000:07:00.0", "A100", 40960, 0, (0, 1), None, 3, 3, 4, (0,), 2, 16, 16, "GPU is lost"),
        Gpu(1, "MIG-bb", "0000:0a:00.0", "A100", 4864, 1, (2, 3), "1g.5gb", 5, 3, 4, (1,), None, 8, 16, "", "amd", 50),
    ),
    links=(("X", "NV2"), ("NV2", "X")),
    numa_nodes=(NumaNode(0, (0, 1), 65000, (10, 21)), NumaNode(1, (2, 3), 65100, (21, 10))),
    siblings=((0, 1), (2, 3)),
    packages=((0, 1), (2, 3)),
    devices=("0000:07:00.0", "0000:0a:00.0"),
    nics=("mlx5_0",),
    nic_links=(("PIX", "SYS"),),
    nic_numa=(0,),
    source="nvml+sysfs",
    simulated=True,
    driver="550.90",
    problems=("GPU 1 is slow.",),
    notes=("GPU 1 has 8 lanes.",),
)
DOCUMENT: dict[str, Any] = json.loads(json.dumps(to_document(TOPOLOGY)))
GPU = PlacedGpu(1, "MIG-bb", "0000:0a:00.0", "A100", 4864, 1, "1g.5gb", 0, "mlx5_0", "PIX")
OTHER = PlacementDocument(job_id="4711", node="g2", gpus=(GPU,), cpus="0-1", memory_policy="bind:0")
PLACEMENT = PlacementDocument(
    job_id="4711",
    node="g1",
    partition="gpu",
    simulated=True,
    gpus=(replace(GPU, index=0), GPU),
    cpus="0-3",
    memory_mib=16384,
    numa_nodes=(0, 1),
    memory_policy="preferred:0",
    policy="restricted",
    aligned=False,
    weakest_link="NV2",
    why="The two GPUs are linked.",
    problems=("The cores are on both sockets.",),
    started_at="2026-11-25T10:00:00Z",
    ends_at="2026-11-25T18:00:00Z",
    other_nodes=(NodeGrant("g2", (1,), "a100", 4, 16384, OTHER),),
    weakest_link_over_nodes="PIX",
)
ALONE = replace(PLACEMENT, other_nodes=(), weakest_link_over_nodes=None)
FAILURE = StartFailure("module", "CUDA/12.4", "Lmod: unknown module")
REPORTS = {
    "server": NodeReport(20001, ALONE, DOCUMENT, PortReport("process", ("0.0.0.0",))),
    "other-node": NodeReport(0, OTHER, DOCUMENT, other_node=True),
    "failure": NodeReport(0, failure=FAILURE),
}
USAGE = UsageSummary(
    job_id="4711",
    seconds=60.0,
    samples=10,
    interval=6.0,
    final=True,
    simulated=True,
    gpus=(GpuUse(0, "GPU-aa", "1g.5gb", 90.0, 80.0, 99.0, 10, 40960, 1000, 2000, 2, 250.0, 15000.0, 1),),
    cores=3.5,
    cores_mean=3.0,
    cores_max=4.0,
    memory_mib=2000,
    memory_max_mib=3000,
    problems=("NVML does not answer.",),
)
# --- what the hub stores of servers -----------------------------------------------------------------

CONFIG = Config(
    {
        "GPUSlurmSpawner": {
            "clusters": {"juniper": {"slurm_conf": "/etc/juniper/slurm.conf"}, "cedar": {"query_prefix": "ssh cedar"}}
        }
    }
)
PROMISES = (Promise(NOW, PromiseMoment.QUEUED, Estimate(EstimateKind.EXPECTED, NOW, NOW + 9, NOW + 5, NOW + 4), "gpu"),)
SESSION = ServerSession(
    id="0a1b2c3d-11111111",
    username="ada",
    servername="lab",
    begun_at=NOW,
    job_id="4711",
    cluster="cedar",
    profile="course-deep",
    course="deep",
    session_ends_at=NOW + 7200,
    placed=True,
    served=True,
)
ENDING = Ending(
    Cause(Kind.START_FAILED, "module"),
    at=NOW,
    by="ida",
    job_id="4711",
    job=Job(
        "4711",
        Phase.ENDED,
        state="FAILED",
        reason="NonZeroExitCode",
        nodes="g[1-2]",
        batch_host="g1",
        user="ada",
        partition="gpu",
        starts_at=NOW,
        ends_at=NOW + 60,
        exit_code="1:0",
        end=End.FAILED,
        tag="jupyterhub-gpuspawner/jupyter/ada/lab#0a1b2c3d-11111111",
        name="jupyterhub-0a1b2c3d-11111111",
        uid=1001,
        time_limit=28800,
        memory_mib=16384,
        latest_start=NOW + 3600,
        stdout_path="/home/ada/jupyterhub-4711.log",
        allocations=(NodeAllocation("g1", (0, 1), 16384, (Gres("gpu", "a100", 2, (0, 1), (0,), ((0, 1),)),)),),
    ),
    stage=Stage.ALLOCATED,
    seconds=300.0,
    gpus=2,
    ran=60.0,
    said="its GPUs were used 13\N{NO-BREAK SPACE}% on average, and at most 2.9 GiB of memory was in use",
    why="since its GPUs were not used for two hours",
    subject="CUDA/12.4",
    line="Lmod: unknown module",
    session_over=True,
    unconfirmed=True,
    printed="sbatch: error: no",
    log="/home/ada/jupyterhub-4711.log",
    lines="Lmod: unknown module",
    profile="K80",
    slug="k80",
    quoted=Words("It is over.", "Start again.", "See the log."),
)
IDENTITY = JobIdentity("ada", 1001, "jupyterhub-gpuspawner/jupyter/ada/lab#0a1b2c3d-11111111", "jupyterhub-0a1b2c3d")
ATTEMPT = Attempt(
    stage=Stage.QUEUED,
    since=Moment(NOW, 1000.5, "a-boot-id"),
    start_timeout=300.0,
    queue_timeout=3600.0,
    starts_at=NOW + 5,
    reached={Stage.SUBMITTED: NOW, Stage.QUEUED: NOW + 1},
    latest=NOW + 7200,
    reasons={"Resources": None, "Priority": None},
    contest=Contest(Rival(IDENTITY, {"profile": "k80", "kind": "slurm"}, "4712", lost=True), decided=True),
)
KEPT_START = KeptStart(Moment(NOW, 1000.5, "a-boot-id"), 300.0, "cedar", (IDENTITY,))


def spawner() -> GPUProfilesSpawner:
    """The spawner of a hub that offers nothing now."""
    server = GPUProfilesSpawner(config=CONFIG)
    server.server_extensions = ALL.with_server(server)
    return server


def started(**profile: Any) -> GPUProfilesSpawner:
    """The spawner of a server of this profile, whose job is 4711."""
    (parsed,) = parse_profiles([{"display_name": "P", **profile}])
    server = spawner()
    request = resolve(
        [parsed],
        {},
        username="ada",
        groups=(),
        server_name="lab",
        now=datetime(2026, 11, 25, 10),
        defaults=server.defaults(),
    )
    server.prepare(request)
    if parsed.kind == "slurm":
        server.watch.job_id, server.watch.submitted_as = "4711", IDENTITY
    return server


def running() -> GPUProfilesSpawner:
    """A server of a course on two nodes of the second cluster, with all that a hub can know of it."""
    server = started(slurm={"cluster": "cedar"}, extend={"by": "1h", "times": 2})
    server.chosen = ChosenProfile("course-deep", "slurm", "k80", "", "Deep learning", "panel", 1)
    server.wrapper_dir = "/opt/gpuspawner"
    server.attempt = replace(ATTEMPT, stage=Stage.ALLOCATED)
    server.report.port, server.report.topology = 20001, DOCUMENT
    nodes, usage = server.server_extensions.get(OtherNodes), server.server_extensions.get(ServerUsage)
    assert nodes is not None
    assert usage is not None
    nodes.placements["g2"], nodes.topologies["g2"] = OTHER, DOCUMENT
    server.report.place(PLACEMENT)
    server.life.session = SESSION
    for promise in PROMISES:
        server.server_extensions.each(WithServer.expects, promise.estimate, promise.partition, now=promise.at)
    usage.used_at = NOW + 60
    return server


def waiting() -> GPUProfilesSpawner:
    """A server whose job is pending; its node has said why an earlier run of the job failed."""
    server = started(slurm={"gpus": 1})
    server.attempt = ATTEMPT
    server.report.claimed, server.report.failure = ALONE, FAILURE
    return server


def ended() -> GPUProfilesSpawner:
    """A server that did not start."""
    server = spawner()
    server.ended.keep(ENDING)
    return server


def kept() -> GPUProfilesSpawner:
    """A server whose start is kept, since Slurm did not answer; its last sbatch may have made a job."""
    server = spawner()
    server.attempt.kept = KEPT_START
    return server


def local() -> GPUProfilesSpawner:
    """A server on the hub's machine."""
    server = started(kind="local")
    server.child_spawner.pid = 4321
    return server


def of_another_package() -> GPUProfilesSpawner:
    """A server of JupyterHub's own class, with a setting by which it is found again."""
    name = "jupyterhub.spawner.SimpleLocalProcessSpawner"
    server = started(kind="other", spawner_class=name, traits={"home_dir_template": "/srv/{username}"})
    server.child_spawner.pid = 4321
    return server


SERVERS = {make.__name__: make for make in (running, waiting, kept, ended, local, of_another_package)}


def state_of(server: GPUProfilesSpawner) -> dict[str, Any]:
    """The state as JupyterHub stores it."""
    state: dict[str, Any] = json.loads(json.dumps(server.get_state()))
    return state


# --- what the hub stores in its database and in the file of records ----------------------------------

START = RecordedStart("ada", "lab")
COURSE_START = CourseStart("ada", CourseStage.FAILED, 2, NOW, NOW + 60, "sbatch: error: no")
ACTION = "Stopped 2 servers."
MESSAGE = Message(Audience(AudienceKind.COURSE, "deep", "ada"), "ida", "Lunch at noon.", NOW, FAR)
SLUGS = {"k80": "gpu.yaml"}
IDLE = IdleTime("ada", "lab", "k80", "4711", 2, NOW, NOW + 60, 1.5, 400, FAR, "stop", NOW, 1, 1800.0, True, False, 1)
VIEWS = tuple(
    View("g1", NOW + n, replace(TOPOLOGY, driver=driver, links=links), granted=2, gres="gpu:a100:2(S:0-1)", user=user)
    for n, (user, driver, links) in enumerate(
        [
            ("ada", "550.90", TOPOLOGY.links),
            ("eve", "550.90", TOPOLOGY.links),
            ("ida", "550.91", (("X", "SYS"), ("SYS", "X"))),
        ]
    )
)
NODE = merged(merged(merged(None, VIEWS[0]), VIEWS[1]), VIEWS[2])
"""Two views agree, and the third contradicts them."""
GRANT = Grant("4711", "g1", NOW, 2, aligned=True, across=True, loss=12.5)
ADDED = {"deep": ("eve",)}


def fill_database(session: Session) -> None:
    """Write a row to each table."""
    upgrade(session, ALL.tables)
    asyncio.run(StartRecords(session).add(SESSION.id, START))
    CourseStarts(session).keep("deep", "2026-11-25", COURSE_START)
    keep_actions(session, "deep", [ACTION], NOW)
    Messages(session).keep([MESSAGE])
    keep_slugs(session, SLUGS)
    IdleTimes(session).write([replace(IDLE, id=None)])
    for view in VIEWS:
        FleetStore(session.get_bind(), "cedar").add(view, lambda _: GRANT)
    for course, users in ADDED.items():
        keep_additions(session, course, users, by="ida")


_SERVER = {"session": SESSION.id, "username": "ada", "servername": "lab", "job_id": "4711", "cluster": "cedar"}
EVENTS: tuple[Event, ...] = (
    Submitted(
        **_SERVER,
        at=NOW + 1,
        begun_at=NOW,
        profile="course-deep",
        course="deep",
        partition="gpu",
        nodes=2,
        gpus=2,
        gpu_type="a100",
        shards=1,
        cpus=4,
        memory_mib=16384,
        seconds=28800,
    ),
    Placed(
        **_SERVER,
        at=NOW + 10,
        profile="course-deep",
        allocated_at=NOW + 5,
        node="g1",
        nodes=2,
        partition="gpu",
        gpus=4,
        gpu_model="A100",
        cpus=4,
        memory_mib=16384,
        aligned=True,
        weakest_link="NV2",
        simulated=True,
        reasons=("Resources", "Priority"),
        promises=PROMISES,
    ),
    Ready(**_SERVER, at=NOW + 12, profile="course-deep", queue_seconds=4.0, start_seconds=5.0, ready_seconds=2.0),
    Usage(
        **_SERVER,
        at=NOW + 60,
        seconds=48.0,
        gpu_seconds_measured=96.0,
        gpu_seconds_busy=48.0,
        gpu_memory_max_mib=2000,
        memory_max_mib=3000,
        joules=15000.0,
        simulated=True,
    ),
    Ended(
        **_SERVER,
        at=NOW + 90,
        begun_at=NOW,
        profile="course-deep",
        course="deep",
        served=True,
        cause=Cause(Kind.START_FAILED, "module"),
        reasons=("Resources", "Priority"),
        node="g1",
        promises=PROMISES,
        subject="CUDA/12.4",
    ),
)

# --- what people write --------------------------------------------------------------------------------

PROFILES: tuple[dict[str, Any], ...] = (
    {
        "display_name": "Everything",
        "slug": "everything",
        "description": "Each field of a profile of Slurm's.",
        "default": True,
        "kind": "slurm",
        "traits": {"mem_limit": "16G"},
        "slurm": {
            "cluster": "cedar",
            "partition": "gpu",
            "nodes": 1,
            "gpus": 2,
            "gpu_type": "a100",
            "cpus": 4,
            "memory": "16G",
            "time": "8:00:00",
            "account": "physics",
            "qos": "interactive",
            "reservation": {"2026-11-25": "opening", "default": "course"},
            "constraint": "nvlink",
            "nice": 10,
            "exclusive": False,
            "extra": ["--signal=USR1@60"],
        },
        "environment": {
            "login_shell": True,
            "module_use": ["/apps/modules"],
            "modules": ["CUDA/12.4"],
            "conda": "torch",
            "variables": {"HF_HOME": "/scratch/hf"},
            "setup": ["ulimit -c 0"],
        },
        "placement": {"policy": "restricted", "claim": 1},
        "allow": {"groups": ["physics"], "users": ["ada"], "from": "2026-11-01", "until": "2026-12-24"},
        "courses": ["deep"],
        "alternatives": ["in-a-container"],
        "rescue": True,
        "profile_options": {
            "gpu": {
                "display_name": "GPU",
                "description": "Which one.",
                "choices": {
                    "a100": {"display_name": "A100", "description": "Fast.", "default": True},
                    "k80": {
                        "slurm": {"gpu_type": "k80", "cpus": 2},
                        "environment": {"modules": ["CUDA/11.4"]},
                        "placement": {"policy": "none"},
                        "command": ["jupyterhub-singleuser", "--debug"],
                        "default_url": "/tree",
                    },
                },
                "unlisted_choice": {
                    "enabled": True,
                    "display_name": "Another",
                    "validation_regex": "[a-z]+",
                    "validation_message": "A type.",
                    "sets": "slurm.gpu_type",
                },
            },
            "hours": {"range": {"min": 1, "max": 8, "step": 1, "default": 2, "sets": "slurm.time", "unit": "hours"}},
        },
        "start_timeout": 300,
        "queue_timeout": "12:00:00",
        "extend": {"by": "1h", "times": 2},
        "idle": {"gpu": "2h", "kernel": "1h", "action": "stop", "keep": {"by": "1h", "times": 3}},
        "lab": False,
        "command": ["jupyterhub-singleuser"],
        "default_url": "/lab",
        "port_range": "20000-20999",
    },
    {
        "display_name": "In a container",
        "slurm": {"shards": 1},
        "profile_options": {
            "qos": {
                "choices_from": {
                    "slurm": "qos",
                    "match": "gpu.*",
                    "except": "gpu-test",
                    "default": "gpu",
                    "labels": {"gpu": "For a day"},
                    "none": "Slurm's own",
                    "otherwise": ["gpu"],
                }
            }
        },
        "environment": {
            "venv": "/srv/venv",
            "container": {"image": "/srv/torch.sif", "binds": ["/scratch"], "nv": True, "runtime": "singularity"},
        },
    },
    {
        "display_name": "An application",
        "app": {
            "kind": "panel",
            "name": "Plots",
            "icon": "chart",
            "command": ["panel", "serve"],
            "args": ["app.py"],
            "socket": ["--unix-socket", "{socket}"],
            "ready": "/app",
            "absolute_url": True,
            "auth": "hub",
        },
    },
    {"display_name": "Elsewhere", "kind": "other", "spawner_class": "jupyterhub.spawner.SimpleLocalProcessSpawner"},
)
COURSES: dict[str, dict[str, Any]] = {
    "deep": {
        "name": "Deep learning",
        "instructors": {"users": ["ida"], "groups": ["teachers"]},
        "roster": {"names": "train[01-03]", "groups": ["physics"], "file": "roster.csv", "column": "user"},
        "profile": [
            {"slug": "everything", "options": {"gpu": "k80"}, "gpus": 1, "cpus": 2, "memory": "8G", "time": "2:00:00"}
        ],
        "sessions": [
            {"date": "2026-11-25", "from": "9:00", "to": "17:00", "reservation": "opening", "profile": "everything"},
            {
                "weekly": ["monday"],
                "first": "2026-11-30",
                "last": "2026-12-14",
                "except": ["2026-12-07"],
                "from": "13:30",
                "to": "17:00",
            },
        ],
        "zone": "Europe/Brussels",
        "start_ahead": "10min",
        "unvisited_after": "30min",
        "outside_sessions": "without_reservation",
        "materials": {"git": "https://example.org/course", "branch": "main", "open": "start.ipynb"},
        "message": "Bring your own questions.",
    },
}


def settings() -> dict[str, list[str]]:
    """The settings of this package that each class has."""
    return {
        cls.__name__: sorted(
            name
            for base in cls.__mro__
            if base.__module__.startswith("jupyterhub_gpuspawner") and issubclass(base, HasTraits)
            for name in base.class_own_traits(config=True)
        )
        for cls in CONFIGURED
    }


def commands() -> dict[str, list[str]]:
    """The options of each command."""
    return {
        words: sorted(name for param in command.params if isinstance(param, Option) for name in param.opts)
        for words, command in walk("gpuspawner", gpuspawner)
    }


# --- writing it -------------------------------------------------------------------------------------------


def dump(connection: sqlite3.Connection) -> str:
    """A database as SQL, with the version that SQLite keeps beside it."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return "\n".join([*connection.iterdump(), f"PRAGMA user_version = {version};", ""])


def restore(text: str, path: Path) -> None:
    """Make the file of a dump."""
    connection = sqlite3.connect(path)
    connection.executescript(text)
    connection.close()


def databases(folder: Path) -> Iterator[tuple[str, str]]:
    """The hub's tables and the file of records."""
    engine = create_engine(f"sqlite:///{folder / 'hub.sqlite'}")
    with Session(engine) as session:
        fill_database(session)
    engine.dispose()
    store = SessionStore(folder / "sessions.sqlite")
    for event in EVENTS:
        store.take(event)
    store.close()
    for name in ("hub", "sessions"):
        connection = sqlite3.connect(folder / f"{name}.sqlite")
        yield f"{name}.sql", dump(connection)
        connection.close()


def files(folder: Path) -> dict[str, str]:
    """All files, by their names; ``folder`` is for the databases while they are made."""

    def in_json(document: object) -> str:
        return json.dumps(document, indent=1) + "\n"

    return {
        **dict(databases(folder)),
        **{f"servers/{name}.json": in_json(state_of(make())) for name, make in SERVERS.items()},
        **{f"reports/{name}.json": in_json(json.loads(report.dumps())) for name, report in REPORTS.items()},
        "usage.json": in_json(json.loads(USAGE.dumps())),
        "topology.json": in_json(DOCUMENT),
        "profiles/site.yaml": yaml.safe_dump(list(PROFILES), sort_keys=False),
        **{f"courses/{slug}.yaml": yaml.safe_dump(course, sort_keys=False) for slug, course in COURSES.items()},
        "courses/roster.csv": "user\nada\n",
        "settings.json": in_json(settings()),
        "commands.json": in_json(commands()),
    }


NOT_STORED = {
    *(f"Attempt.{name}" for name in ("start_id", "boot_timeout", "restored_at", "certificates", "unanswered")),
    *(f"Attempt.{name}" for name in ("kept", "submissions", "submitted_on")),  # of these a KeptStart is stored
    *("Attempt.wait", "Attempt.at_click", "Wait._estimate", "Wait._half_at", "Wait._view", "Wait.change"),
    "IdleTime.over",  # a hub does not go on with a time that is over
}
"""Fields that no file has, and one that no value can set."""


def fields_of(value: object) -> Iterator[tuple[str, bool]]:
    """The fields of all values within this one, and whether they differ from their defaults."""
    if isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield f"{type(value).__name__}.{name}", name in value.model_fields_set
            yield from fields_of(getattr(value, name))
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            default = field.default_factory() if field.default_factory is not MISSING else field.default
            inner = getattr(value, field.name)
            yield f"{type(value).__name__}.{field.name}", inner != default
            yield from fields_of(inner)
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from fields_of(inner)
    elif isinstance(value, Iterable) and not isinstance(value, (str, Enum)):
        for inner in value:
            yield from fields_of(inner)


def left_out(values: Iterable[object]) -> list[str]:
    """The fields that no value sets: a change of their names would not be noticed."""
    is_set: dict[str, bool] = defaultdict(bool)
    for name, differs in fields_of(tuple(values)):
        is_set[name] |= differs
    return sorted(name for name, differs in is_set.items() if not (differs or name in NOT_STORED))


def all_values() -> Iterator[object]:
    """Every value that the files are made of."""
    yield from (TOPOLOGY, REPORTS, PLACEMENT, USAGE, SESSION, ENDING, ATTEMPT, KEPT_START, IDENTITY, START)
    yield from (COURSE_START, MESSAGE, IDLE, NODE, GRANT, EVENTS, parse_profiles(PROFILES))
    yield from (Course.model_validate(course) for course in COURSES.values())
    yield from (make().chosen for make in SERVERS.values())


def main(folder: Path) -> None:
    """Write the files, unless they would not show everything."""
    if missing := left_out(all_values()):
        sys.exit(f"No value sets {', '.join(missing)}.")
    with TemporaryDirectory() as temporary, patch.object(time, "time", return_value=NOW):
        for name, text in files(Path(temporary)).items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")


if __name__ == "__main__":
    main(RELEASE)
