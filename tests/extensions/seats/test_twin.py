"""The twin: which jobs a site's Slurm would start, from a slurmctld of nodes that do not exist."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from jupyterhub_gpuspawner.extensions.seats import controller
from jupyterhub_gpuspawner.extensions.seats.site import Request, Site, question_of
from jupyterhub_gpuspawner.extensions.seats.twin import Answer, Answers, TwinFailed, TwinMissing, what_runs
from jupyterhub_gpuspawner.slurm.commands import Installation
from jupyterhub_gpuspawner.slurm.scontrol import parse_config
from tests.extensions.seats.site_answers import NOW, VERSION, config, job, node, partition, reservation, site

pytestmark = pytest.mark.slurm


@dataclass(frozen=True)
class Here:
    """A machine's script ``twin``, as on a login node, whose folders are in one of this test."""

    folder: Path
    slurm: Installation

    @property
    def left(self) -> list[str]:
        """What is left of twins: their folders and their processes."""
        folders = [*self.folder.glob("gpuspawner-twin-*")]
        return [*map(str, folders), *map(str, processes_in(self.folder))]

    async def nothing_left(self) -> bool:
        """Whether soon nothing is left."""
        return await reached(lambda: not self.left, 10)

    async def controller(self) -> psutil.Process:
        """The slurmctld of a twin that has begun to answer."""
        await reached(lambda: any("job_state" in str(path) for path in self.folder.glob("*/state/*")), 30)
        return next(process for process in processes_in(self.folder) if process.info["name"].startswith("slurmctld"))


def processes_in(folder: Path) -> list[psutil.Process]:
    """Those of twins in a folder; their facts are as of now, for a process may end at any time."""
    return [
        process
        for process in psutil.process_iter(["name", "environ"])
        if (process.info["environ"] or {}).get("SLURM_CONF", "").startswith(f"{folder}/")
    ]


async def reached(true: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    return true()


def script_in(folder: Path, **constants: str) -> Installation:
    """The script ``twin`` in a folder, with lines of it changed."""
    text = Path(controller.__file__).read_text()
    for name, value in constants.items():
        text = re.sub(rf'^{name} = ".*?"', f'{name} = "{value}"', text, flags=re.MULTILINE)
    (folder / "twin").write_text(text)
    (folder / "twin").chmod(0o755)
    return Installation(query_prefix=(shutil.which("env") or "env",), wrapper_dir=str(folder))


@pytest.fixture
def here(needs_slurm: None) -> Iterator[Here]:
    with tempfile.TemporaryDirectory(prefix="tw-", dir="/tmp") as folder:
        yield Here(Path(folder), script_in(Path(folder), PARENT=folder))


@pytest.fixture
def slurm(needs_slurm: None) -> Installation:
    return Installation()


async def ask(slurm: Installation, of: Site, *options: str, at: float = NOW) -> Answers:
    """Ask for one job with each of these options."""
    return await what_runs(of, [Request(option, tuple(option.split("; "))) for option in options], at=at, slurm=slurm)


def words(answer: Answer) -> str:
    """Where and on what a job runs, or why not."""
    return (
        answer.refusal
        or answer.reason
        or ", ".join(
            f"{part.node} {part.gres[0].indices if part.gres else ''} {part.cpu_ids}" for part in answer.allocations
        )
    )


async def test_a_course_gets_what_its_reservation_has_left(slurm: Installation) -> None:
    """Jobs that still run then hold their GPUs; those that end before, and nodes out of service, hold nothing.

    A node that is being powered down now boots again; one that Slurm does not show is left out of its reservation.
    """
    of = site(
        [
            node("g1", "gpu:k80:4(S:0-1)"),
            node("g2", "gpu:k80:4", state="IDLE+CLOUD+NOT_RESPONDING+POWERING_DOWN"),
            node("g3", "gpu:k80:4", state="IDLE+DRAIN"),
        ],
        [partition("gpu", "g[1-3]")],
        jobs=job(7, "g1", "0-3", "gpu:k80:2(IDX:0-1)", ends_in=7200)
        + job(8, "g1", "4", "gpu:k80:1(IDX:2)", ends_in=60),
        reservations=reservation("class", "g[1,3,9]", begins_in=3600, ends_in=10800),
    )
    one = "--reservation=class; --gres=gpu:k80:1; -c 2 --mem=1000; --time=60"
    answers = await ask(slurm, of, one, one, one, "--gres=gpu:5", "--gres=gpu:4; --mem=10; -c1", at=NOW + 3600)
    assert [words(answer) for answer in answers.answers] == [
        "g1 (2,) (4, 5)",
        "g1 (3,) (6, 7)",
        "Resources",
        "sbatch: error: Batch job submission failed: Requested node configuration is not available",
        "g2 (0, 1, 2, 3) (0,)",
    ]
    assert answers.notes == ()


async def test_jobs_hold_what_they_have_whatever_their_partition_says_now(slurm: Installation) -> None:
    """Its state and limits are for new jobs; and a node that is drained does not free the others of a job.

    A partition without nodes is a partition.
    """
    of = site(
        [*(node(name) for name in ("g1", "g2", "g3", "g5")), node("g4", state="MIXED+DRAIN")],
        [
            partition("gpu", "g[1-4]"),
            partition("down", "g1", "State=DOWN", default=False),
            partition("few", "g[2-4]", "MaxNodes=1", time="00:10:00", default=False),
            partition("empty", "(null)", default=False),
            partition("part", "g5", "MaxCPUsPerNode=12", default=False),
        ],
        jobs=job(1, "g1", "0-19", partition="down")
        + job(5, "g5", "0-15", partition="part")
        + tuple(held for number in (2, 3, 4) for held in job(number, f"g{number}", "0-19", partition="few")),
    )
    four, small = "-c 4; --mem=10; --time=10", "--mem=10; --time=10"
    answers = await ask(
        slurm,
        of,
        four,
        four,
        four,
        four,
        f"-p down; {small}",
        f"-p few; -N 2; {small}",
        "-p few; --mem=10; --time=20",
        f"-p empty; {small}",
        f"-p part; {small}",
    )
    assert [words(answer).partition(" ")[0] for answer in answers.answers] == [
        *("g1", "g2", "g3"),
        "Resources",
        "PartitionDown",
        "PartitionNodeLimit",
        "PartitionTimeLimit",
        "sbatch:" if VERSION.startswith("24.") else "PartitionConfig",  # 24.11 refuses the job
        "Resources",
    ]
    assert answers.notes == ()


async def test_a_suspended_job_keeps_its_gpus_and_has_given_back_its_cpus(slurm: Installation) -> None:
    """Until somebody resumes it, whenever it was to end; another job may have its CPUs."""
    of = site(
        [node("g1", "gpu:k80:4", sockets=1, cores=12)],
        [partition("gpu", "g1")],
        jobs=job(7, "g1", "0-11", "gpu:k80:2(IDX:0-1)", state="SUSPENDED", ends_in=60)
        + job(8, "g1", "0-7", "gpu:k80:1(IDX:2)", ends_in=7200),
    )
    answers = await ask(slurm, of, *["--gres=gpu:1; -c 2; --mem=10; --time=10"] * 2, at=NOW + 3600)
    assert ([words(answer) for answer in answers.answers], answers.notes) == (["g1 (3,) (8, 9)", "Resources"], ())


@pytest.mark.parametrize(
    ("users", "more", "options", "runs"),
    [
        (("ada",), "", "-c 1", 1),
        (("ada", "ben"), "", "-c 1", 0),
        pytest.param(("ben",), "Users=-ada", "-c 1", 1, marks=pytest.mark.nightly),
        pytest.param(("ada",), "Users=(null) Accounts=math", "-A math -c 1", 1, marks=pytest.mark.nightly),
        pytest.param(("ada",), "Users=(null) Accounts=math", "-c 1", 0, marks=pytest.mark.nightly),
    ],
)
async def test_a_magnetic_reservation_serves_its_own_people_without_being_named(
    users: tuple[str, ...], more: str, options: str, runs: int, slurm: Installation
) -> None:
    """Those whom it lists, by name or by account."""
    flags = "MAGNETIC,SPEC_NODES"
    of = site(
        [node("g1")],
        [partition("gpu", "g1")],
        reservations=reservation("class", "g1", begins_in=-60, ends_in=7200, flags=flags, more=more),
    )
    answers = await what_runs(of, [Request("x", (options, "--mem=10 --time=10"))], at=NOW, slurm=slurm, users=users)
    assert (answers.running, answers.notes) == (runs, ())


async def test_a_magnetic_reservation_of_others_that_one_request_names_attracts_no_other(slurm: Installation) -> None:
    """Slurm decides whether the request may use it; the twin does not know the site's accounts."""
    of = site(
        [node("g1")],
        [partition("gpu", "g1")],
        reservations=reservation("class", "g1", begins_in=-60, ends_in=7200, flags="MAGNETIC,SPEC_NODES"),
    )
    plain = "-c 1; --mem=10; --time=10"
    answers = await ask(slurm, of, f"--reservation=class; {plain}", plain)
    assert [bool(answer.allocations) for answer in answers.answers] == [True, False]


@pytest.mark.parametrize(("cpus", "held"), [(16, 10), (8, 5)])
def test_a_job_holds_as_many_cpus_as_slurm_counts(cpus: int, held: int) -> None:
    """Its numbers are those of threads, of which Slurm may count those of a core as one CPU."""
    core = node("t1", sockets=1, cores=8, threads=2).replace("CPUTot=16", f"CPUTot={cpus}")
    of = site([core], [partition("gpu", "t1")], jobs=job(1, "t1", "0-9"))
    assert f"--cpus-per-task={held}" in question_of(of, (), at=NOW).document["held"][0]


async def test_jobs_that_prefer_nodes_use_the_others_when_these_are_full(slurm: Installation) -> None:
    """Tasks of a job array would wait for them."""
    of = site([node("g1", features="new"), node("g2", features="old")], [partition("gpu", "g[1-2]")])
    answers = await ask(slurm, of, *["--prefer=old; -c 20; --mem=10; --time=10"] * 3)
    assert [part.node for answer in answers.answers for part in answer.allocations] == ["g2", "g1"]


async def test_select_cons_res_gives_gpus_with_the_cores_beside_them_alone(slurm: Installation) -> None:
    """Slurm 23.11 has it no longer: the other cores count, too."""
    of = site(
        [node("g1", "gpu:t4:4(S:0)", cores=4)],
        [partition("gpu", "g1")],
        config=config(SelectType="select/cons_res", GresTypes="gpu"),
    )
    answers = await ask(slurm, of, *["--gres=gpu:1; -c 2; --mem=10; --time=10"] * 5)
    has_it = tuple(map(int, answers.version.split(".")[:2])) < (23, 11)
    assert answers.running == (2 if has_it else 4)


@pytest.mark.parametrize("limit", ["MaxMemPerCPU", "MaxMemPerNode"])
async def test_a_job_that_runs_may_hold_more_memory_than_slurm_conf_allows_a_new_one(
    slurm: Installation, limit: str
) -> None:
    """Such as all of a node, for ``--mem=0``; a new job has the limit."""
    of = site(
        [node("g1"), node("g2")],
        [partition("gpu", "g[1-2]")],
        config=config(**{limit: "1000"}),
        jobs=job(1, "g1", "0-3", memory=64000),
    )
    answers = await ask(slurm, of, "-c 1; --mem=900; --nodelist=g1", "-c 1; --mem=900", "-c 1; --mem=30000")
    assert [bool(answer.allocations) for answer in answers.answers] == [False, True, False]
    assert answers.notes == ()


async def test_a_job_fits_before_a_reservation_exactly_if_its_time_limit_does(slurm: Installation) -> None:
    """An hour, before one that begins in an hour, and before one that begins some seconds earlier."""
    of = site(
        [node("g1"), node("g2")],
        [partition("gpu", "g1"), partition("few", "g2", default=False)],
        reservations=reservation("hour", "g1", begins_in=3600, ends_in=7200)
        + reservation("sooner", "g2", begins_in=3594, ends_in=7200),
    )
    answers = await ask(slurm, of, "--mem=10; --time=60", "-p few; --mem=10; --time=60", "-p few; --mem=10; --time=59")
    assert [bool(answer.allocations) for answer in answers.answers] == [True, False, True]


async def test_reservations_hold_licences_and_cores_and_overlap(slurm: Installation) -> None:
    """Cores are counted on the only node before Slurm reports which they are; a light node is used before the others.

    A reservation that may not overlap others loses the nodes that a later one takes.
    """
    of = site(
        [
            *(node(name).replace("Weight=1", f"Weight={weight}") for name, weight in (("g1", 5), ("g2", 1))),
            *(node(name, sockets=1, cores=6) for name in ("r1", "r2", "r3")),
        ],
        [partition("gpu", "g[1-2]"), partition("r", "r[1-3]", default=False)],
        licenses="LicenseName=matlab Total=4 Used=0 Free=4 Reserved=3 Remote=no\n",
        reservations=reservation("later", "r2", begins_in=-30, ends_in=7200, flags="OVERLAP,SPEC_NODES")
        + reservation("class", "r[1-2]", begins_in=-60, ends_in=7200)
        + reservation("cores", "r3", begins_in=-1, ends_in=7200, more="CoreCnt=2")
        + reservation("licences", "(null)", begins_in=-1, ends_in=7200, flags="ANY_NODES", more="Licenses=matlab:3"),
    )
    licence, room = "-L matlab:1; --mem=10; --time=10", "-p r; --reservation=class; -c 6; --mem=10; --time=10"
    cores = "-p r; -c 3; --mem=10; --time=10"
    answers = await ask(slurm, of, licence, licence, room, room, cores, cores)
    assert [words(answer) for answer in answers.answers] == [
        "g2  (0,)",
        "Licenses",
        "r1  (0, 1, 2, 3, 4, 5)",
        "Resources",
        "r3  (2, 3, 4)",
        "Resources",
    ]
    assert answers.notes == ()


HARD = {
    "CR_CORE_MEMORY": (
        (node("s1", "gpu:t4:3,shard:t4:12", cores=8), "", "--gres=shard:3", 3),
        (node("e1", "gpu:t4:4(S:0)", cores=4), "", "--gres=gpu:1; --gres-flags=enforce-binding; -c 4", 1),
        (node("x1", "gpu:t4:4"), "", "--gres=gpu:1; --exclusive", 1),
        (node("u1", "gpu:t4:4"), "ExclusiveUser=YES", "--gres=gpu:1; -c 1", 1),
        (node("u2", "gpu:t4:4"), "Exclusive=USER", "--gres=gpu:1; -c 1", 1),
        (node("f1", sockets=1, cores=6), "OverSubscribe=FORCE:3", "-c 4", 3),
        (node("m1", cores=8), "MaxMemPerCPU=1000", "--mem=4000; -c 1", 4),
        (node("o1", cores=8), "OverSubscribe=EXCLUSIVE", "-c 1", 1),
        (node("k1", cores=8), "MaxCPUsPerNode=6", "-c 4", 1),
        (node("t1", cores=8, threads=2), "", "-c 3", 8),
    ),
    "CR_CORE": ((node("c1", "gpu:t4:8", memory=8000), "", "--gres=gpu:1; --mem=8000", 8),),
    "CR_CPU_MEMORY": ((node("h1", sockets=1, cores=9, threads=2), "", "-c 3", 4),),
    "CR_SOCKET": ((node("w1", "gpu:t4:8"), "", "--gres=gpu:1; -c 1", 2),),
}
"""By SelectTypeParameters: a node, what is special about its partition, what ten people request, and how many run."""


async def running(slurm: Installation, parameters: str) -> dict[str, int]:
    cases = HARD[parameters]
    names = [line.partition(" ")[0].removeprefix("NodeName=") for line, *_ in cases]
    of = site(
        [line for line, *_ in cases],
        [partition(name, name, case[1], default=False) for name, case in zip(names, cases, strict=True)],
        config=config(SelectTypeParameters=parameters, DefMemPerCPU="100"),
    )
    requests = [
        Request(name, (f"--partition={name}", "--time=10", *options.split("; ")))
        for name, (_, _, options, _) in zip(names, cases, strict=True)
        for _ in range(10)
    ]
    answers = await what_runs(of, requests, at=NOW, slurm=slurm)
    counts = Counter(answer.name for answer in answers.answers if answer.runs)
    return {name: counts[name] for name in names}


async def test_what_no_count_by_hand_knows(slurm: Installation) -> None:
    """Shards of one GPU, cores beside GPUs, whole nodes, shared and limited CPUs, threads: as Slurm itself does it."""
    counts = await asyncio.gather(*(running(slurm, parameters) for parameters in HARD))
    expected = [{line.split()[0].removeprefix("NodeName="): n for line, _, _, n in cases} for cases in HARD.values()]
    assert counts == expected


SMALL = site([node("g1", "gpu:t4:4")], [partition("gpu", "g1")])
VALUES = {"ReservationName": "class", "Nodes": "g1", "Flags": "IGNORE_JOBS"}
RESERVED: dict[str, Any] = {"values": VALUES, "starts": 0, "ends": 60, "own": True}
WAITING = [Request("ada", (f"-c {number % 20 + 1}", "--mem=100", "--time=10")) for number in range(400)]
"""They keep a twin busy for some seconds."""


async def test_nothing_is_left_of_a_twin(here: Here) -> None:
    """Its answer is read to the end after everything is gone."""
    answers = await what_runs(SMALL, [Request("ada", ("--gres=gpu:1",))], at=NOW, slurm=here.slurm)
    assert (answers.running, answers.notes, here.left) == (1, (), [])


async def test_nothing_is_left_of_a_twin_whose_slurmctld_is_killed(here: Here) -> None:
    """One sentence says so."""
    asking = asyncio.ensure_future(what_runs(SMALL, WAITING, at=NOW, slurm=here.slurm))
    (await here.controller()).kill()
    with pytest.raises(
        TwinFailed, match=r"^The copy of this cluster's scheduler failed: slurmctld [0-9.]+ ended while it was asked: "
    ):
        await asking
    assert await here.nothing_left()


async def test_nothing_is_left_of_a_twin_that_is_killed_itself(here: Here) -> None:
    """Not even SIGKILL to the process that was started leaves its folder or its daemons."""
    asking = asyncio.ensure_future(what_runs(SMALL, WAITING, at=NOW, slurm=here.slurm))
    os.kill((await here.controller()).ppid(), signal.SIGKILL)
    with pytest.raises(TwinFailed, match=r"^The copy of this cluster's scheduler gave no answer: it was killed\.$"):
        await asking
    assert await here.nothing_left()


async def test_a_twin_without_a_folder_says_so(tmp_path: Path) -> None:
    """It needs some MiB in /tmp."""
    sentence = (
        r"^The copy of this cluster's scheduler failed: /nonexistent/gpuspawner-twin-\w+: No such file or directory\.$"
    )
    with pytest.raises(TwinFailed, match=sentence):
        await what_runs(SMALL, WAITING, at=NOW, slurm=script_in(tmp_path, PARENT="/nonexistent"))


@pytest.mark.parametrize("how", ["cancelled", "too slow"])
async def test_nothing_is_left_of_a_twin_that_nobody_waits_for(here: Here, how: str) -> None:
    """The caller is cancelled, or has waited for long enough."""
    timeout = 60.0 if how == "cancelled" else 1.0
    asking = asyncio.ensure_future(what_runs(SMALL, WAITING, at=NOW, slurm=here.slurm, timeout=timeout))
    if how == "cancelled":
        await here.controller()
        asking.cancel()
    with pytest.raises(asyncio.CancelledError if how == "cancelled" else TwinFailed):
        await asking
    assert await here.nothing_left()


def test_a_port_that_another_program_has_is_not_used(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """slurmctld is started again with another one."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        busy, free = other.getsockname()[1], controller.free_port()
        ports = iter([busy, free])
        monkeypatch.setattr(controller, "free_port", lambda: next(ports))
        folder = here.folder / "gpuspawner-twin-port"
        folder.mkdir()
        question = controller.checked(json.dumps(question_of(SMALL, (), at=NOW).document).encode())
        twin = controller.Twin(folder, "port", question)
    for daemon in twin.daemons:
        daemon.kill()
        daemon.wait()
    assert f"SlurmctldPort={free}\n" in (folder / "slurm.conf").read_text()


async def test_a_twin_of_another_version_says_so(here: Here) -> None:
    """It answers all the same: allocation has hardly changed between versions."""
    newer = replace(SMALL, config=parse_config(config(SLURM_VERSION="99.11.1")))
    answers = await what_runs(
        newer, [Request("ada", ("-c 1", "--foo=bar", "--account=math"))], at=NOW, slurm=here.slurm
    )
    assert (answers.running, answers.notes) == (
        1,
        (
            "Option --foo is not known here and is left out of the count.",
            f"Counted by the scheduler of Slurm {answers.version}; this cluster has 99.11.1.",
        ),
    )


PROGRAMS = ("slurmctld", "munged", "sbatch", "scontrol", "squeue", "sinfo", "sdiag", "scancel")


@pytest.mark.parametrize("missing", ["slurmctld", "munged"])
async def test_without_a_program_the_error_says_how_to_get_it(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without munge, every account of the machine could give orders to the twin, also as SlurmUser."""
    slurm = script_in(tmp_path, PROGRAMS="/nonexistent")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("env", "python3", *(name for name in PROGRAMS if name != missing)):
        (programs / name).symlink_to(shutil.which(name) or name)
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(TwinMissing) as caught:
        await what_runs(SMALL, WAITING, at=NOW, slurm=slurm)
    assert str(caught.value) == (
        f"{missing} is not installed on this machine. Install the packages with slurmctld and munged (Debian: "
        "slurmctld, munge); neither has to run."
    )


@pytest.mark.users
async def test_no_other_account_gives_orders_to_a_twin(here: Here, two_users: tuple[str, str]) -> None:
    """Neither as itself nor as a root of its own, without munge or with one that has another key.

    SlurmUser could have slurmctld run a program, here one that makes a file.
    """
    here.folder.chmod(0o755)
    asking = asyncio.ensure_future(what_runs(SMALL, WAITING, at=NOW, slurm=here.slurm))
    try:
        twin = await here.controller()
        address, port = next(c.laddr for c in twin.net_connections() if c.status == psutil.CONN_LISTEN)
        command = "runuser", "-u", two_users[0], "--", "bash", "-c", ORDERS, "bash", str(port), address
        orders = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        answers = (await orders.communicate())[0].split()
        assert (twin.is_running(), answers) == (True, [b"refused"] * 12)
    finally:
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking
    assert await here.nothing_left()


ORDERS = """
folder=$(mktemp -d) && cd "$folder" && head -c 1024 /dev/urandom > key && chmod 600 key || exit
/usr/sbin/munged --foreground --force --key-file=$folder/key --socket=$folder/socket --pid-file=$folder/pid \\
    --seed-file=$folder/seed --log-file=$folder/log &
munged=$!
printf '#!/bin/sh\ntouch %s/ran\n' "$folder" > program && chmod 755 program
for proof in 'AuthType=auth/none\nCredType=cred/none' \\
    "AuthType=auth/munge\nCredType=cred/munge\nAuthInfo=socket=$folder/socket"; do
    printf "ClusterName=twin\nSlurmctldHost=localhost($2)\nSlurmctldPort=$1\nMessageTimeout=3\n$proof\n" > slurm.conf
    printf 'NodeName=g1\nPartitionName=gpu Nodes=g1\n' >> slurm.conf
    export SLURM_CONF=$folder/slurm.conf
    for as in env 'unshare -r'; do
        timeout 20 $as strigger --set --node --up --program="$folder/program" >&2 && echo taken || echo refused
        timeout 20 $as scontrol update NodeName=g1 State=DRAIN Reason=x >&2 && echo taken || echo refused
        timeout 20 $as sbatch --wrap=true >&2 && echo taken || echo refused
    done
done
[ ! -e ran ] || echo ran
kill $munged; rm -r "$folder"
"""


@pytest.mark.users
async def test_the_processes_of_another_account_are_none_of_a_twins(here: Here, two_users: tuple[str, str]) -> None:
    """They may have the twin's slurm.conf in their environment; the twin of a hub that is root leaves them alone."""
    asking = asyncio.ensure_future(what_runs(SMALL, WAITING, at=NOW, slurm=here.slurm))
    twin = await here.controller()
    imitation = {"SLURM_CONF": twin.environ()["SLURM_CONF"], "PATH": "/usr/bin:/bin"}
    command = "setpriv", f"--reuid={two_users[0]}", "sleep", "100"
    neighbour = await asyncio.create_subprocess_exec(*command, env=imitation)
    twin.kill()
    with pytest.raises(TwinFailed):
        await asking
    assert [process.pid for process in processes_in(here.folder)] == [neighbour.pid]
    neighbour.kill()
    await neighbour.wait()
    assert await here.nothing_left()


HOSTILE: dict[str, Any] = {
    "a program of slurm.conf": {"config": {"ResumeProgram": "/home/ada/evil"}},
    "a plugin elsewhere": {"config": {"SelectType": "select/../../home/ada/evil"}},
    "a line more": {"nodes": [{"NodeName": "g1 State=UP\nPrologSlurmctld=/home/ada/evil"}]},
    "a word more": {"drained": "g1 State=RESUME"},
    "a program of sbatch": {"requests": [["--wrap=evil"]]},
    "a file of hosts": {"requests": [["--nodefile=/etc/shadow"]]},
    "hosts in a file": {"requests": [["--nodelist=/etc/shadow"]]},
    "hosts in a file, of a job": {"held": [["--nodelist=/etc/shadow"]]},
    "hosts in a file, of a suspended job": {"suspended": [["--nodelist=etc/shadow"]]},
    "no hosts in a file": {"requests": [["--exclude=/etc/shadow"]]},
    "hosts in a file like gres": {"requests": [["--nodelist=gres/shadow"]]},
    "features in a file": {"requests": [["--constraint=/etc/shadow"]]},
    "nodes of slurm.conf in a file": {"nodes": [{"NodeName": "/etc/shadow"}]},
    "drained nodes in a file": {"drained": "/etc/shadow"},
    "a script": {"requests": [["/home/ada/evil"]]},
    "an option without dashes": {"requests": [["nodes=1"]]},
    "an option of two lines": {"requests": [["--time=1\n--wrap=evil"]]},
    "an option with NUL": {"requests": [["--time=1\0"]]},
    "half a character": {"requests": [["--constraint=\ud800"]]},
    "another file": {"partitions": [{"PartitionName": "p", "Include": "/etc/shadow"}]},
    "a device with dots": {"gres": [{"Name": "gpu", "File": "/dev/../etc/shadow"}]},
    "a reservation of a file": {"reservations": [{**RESERVED, "values": {**VALUES, "Nodes": "/etc/shadow"}}]},
    "a field more": {"more": 1},
    "a field of a reservation more": {"reservations": [{**RESERVED, "more": 1}]},
    "a node without a name": {"nodes": [{"CPUs": "4"}]},
    "a node whose name is empty": {"nodes": [{"NodeName": ""}]},
    "a partition without a name": {"partitions": [{"Nodes": "g1"}]},
    "a reservation without a name": {"reservations": [{**RESERVED, "values": {"Nodes": "g1"}}]},
    "options in one word": {"requests": ["--time=1"]},
    "requests in one word": {"requests": "--time=1"},
    "an option that is a number": {"requests": [[1]]},
    "nodes by name": {"nodes": {"g1": {"NodeName": "g1"}}},
    "a list of parameters": {"config": [["SelectType", "select/linear"]]},
    "a parameter in two parts": {"config": {"SelectType": {"x": "y"}}},
    "a number of CPUs": {"nodes": [{"NodeName": "g1", "CPUs": 4}]},
    "no list of nodes": {"drained": None},
    **{
        f"{field} = {str(value)[:20]}": {field: value}
        if field == "seconds"
        else {"reservations": [{**RESERVED, field: value}]}
        for field in ("seconds", "starts", "ends")
        for value in (
            *(1e12, 10**400, -1, float("nan"), float("inf"), float("-inf")),
            *("x", "60", None, True, [60], {"seconds": 60}),
        )
    },
    "whose": {"reservations": [{**RESERVED, "own": "no"}]},
}
"""By what is wrong: fields of a question."""
TEXTS = {
    "nothing": b"",
    "no JSON": b"{",
    "another document": b"[]",
    "null": b"null",
    "a deep one": b"[" * 100_000,
    "other bytes": b"\xff\xfe",
    "digits without end": b'{"seconds": ' + b"9" * 10_000 + b"}",
}


def hostile_questions() -> dict[str, bytes]:
    """By what is wrong: standard inputs of the script."""
    good = question_of(SMALL, (), at=NOW).document
    changed = {name: json.dumps({**good, **change}).encode() for name, change in HOSTILE.items()}
    missing = {
        f"without {name}": json.dumps({key: value for key, value in good.items() if key != name}).encode()
        for name in good
    }
    return {**changed, **missing, **TEXTS}


def test_a_login_node_runs_nothing_else(here: Here) -> None:
    """What the hub sends describes nodes and requests, and names no program and no file; nothing is left of it."""
    refused = (1, b"", b"twin: this is not a question of the hub\n")
    answers = {
        name: subprocess.run([here.folder / "twin"], input=question, capture_output=True, check=False)
        for name, question in hostile_questions().items()
    }
    others = {
        name: (answer.returncode, answer.stdout, answer.stderr)
        for name, answer in answers.items()
        if (answer.returncode, answer.stdout, answer.stderr) != refused
    }

    assert (others, here.left) == ({}, [])


async def test_names_and_values_of_a_site_that_a_twin_cannot_have_are_left_out_or_changed(slurm: Installation) -> None:
    """They are not the reason why nobody gets an answer."""
    of = site(
        [node("g1", features="rack/1"), node("g2")],
        [partition("gpu", "g[1-2]")],
        reservations=reservation('maintenance "weekend" 2023-10-14', "g1", begins_in=-60, ends_in=7200),
        licenses="LicenseName=a/b Total=4 Used=0 Free=4 Reserved=0 Remote=no\n",
    )
    answers = await ask(slurm, of, "-N 2; --mem=10; --time=10", "--nodelist=/etc/hosts; --mem=10; --time=10")
    assert ([answer.runs for answer in answers.answers], words(answers.answers[1]), answers.notes) == (
        [False, True],
        "g2  (0,)",
        ("Option --nodelist=/etc/hosts is not known here and is left out of the count.",),
    )
