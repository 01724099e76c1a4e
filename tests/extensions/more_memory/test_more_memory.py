"""What is proposed to whose server has run out of memory, or soon will."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from jupyterhub_gpuspawner.extensions.more_memory import hub
from jupyterhub_gpuspawner.extensions.more_memory.hub import MoreMemory, Proposal, parts_of
from jupyterhub_gpuspawner.hub.extension import ServerPart
from jupyterhub_gpuspawner.hub.job.cause import Cause, Kind, start_failed
from jupyterhub_gpuspawner.hub.job.ending import Ending
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.server import Server
from jupyterhub_gpuspawner.slurm.job import End, Job, Phase
from tests.hub.test_one_request import spawner_of

PROFILES: list[dict[str, Any]] = [
    {"display_name": "Small", "slug": "small", "slurm": {"cpus": 2, "memory": "4G"}},
    {
        "display_name": "Sizes",
        "slug": "sizes",
        "slurm": {"memory": "8G"},
        "profile_options": {
            "cpus": {"range": {"min": 1, "max": 8, "sets": "slurm.cpus"}},
            "memory": {"choices": {"8g": {"slurm": {"memory": "8G"}}, "32g": {"slurm": {"memory": "32G"}}}},
        },
    },
    {"display_name": "Staff", "slug": "staff", "slurm": {"memory": "6G"}, "allow": {"groups": ["staff"]}},
    {"display_name": "K80", "slug": "k80", "slurm": {"gpus": 1, "gpu_type": "k80", "memory": "16G"}},
    {"display_name": "Here", "slug": "here", "kind": "local"},
]
OF_MEMORY = Job("7", Phase.ENDED, state="OUT_OF_MEMORY", end=End.OUT_OF_MEMORY)
ENDED = Server("ada", ending=Ending(Cause(Kind.MEMORY), at=1.0, job_id="7", job=OF_MEMORY))


def spawner_with(options: dict[str, Any], **site: str) -> GPUProfilesSpawner:
    """A user's spawner, with the choice of the last server."""
    spawner = spawner_of(site, *PROFILES)
    spawner.user_options = options
    return spawner


SIZES = Proposal("Sizes", "8 GiB", "opt-profile=sizes")
MORE = Proposal("Sizes", "32 GiB", "opt-profile=sizes&opt-cpus=3&opt-memory=32g")
PROPOSED: dict[str, tuple[dict[str, Any], int | None, list[Proposal]]] = {
    "another profile, which its user may choose": ({"profile": "small"}, None, [SIZES]),
    "another value of an option, beside the others": ({"profile": "sizes", "cpus": 3}, None, [MORE]),
    "more than the job had in fact": (
        {"profile": "small"},
        8192,
        [replace(MORE, query="opt-profile=sizes&opt-memory=32g")],
    ),
    "none has more": ({"profile": "sizes", "memory": "32g"}, None, [Proposal()]),
    "none has more beside such GPUs": ({"profile": "k80"}, None, [Proposal(gpus=True)]),
    "a profile that is no longer offered": ({"profile": "gone"}, None, []),
}


@pytest.mark.parametrize(("options", "memory_mib", "proposed"), PROPOSED.values(), ids=PROPOSED.keys())
def test_a_server_that_ran_out_of_memory_is_offered_more(
    options: dict[str, Any], memory_mib: int | None, proposed: list[Proposal]
) -> None:
    """Whether it ran, or was being started."""
    job = replace(OF_MEMORY, memory_mib=memory_mib)
    for cause in (Cause(Kind.MEMORY), start_failed("job_out_of_memory")):
        server = Server("ada", ending=Ending(cause, at=1.0, job_id="7", job=job))
        assert [part.shown for part in parts_of(spawner_with(options), server)] == proposed


def test_no_profile_has_more_where_the_sites_command_says_how_much() -> None:
    """batchspawner's ``batch_submit_cmd`` comes after the lines of the script, so its option counts for every job."""
    spawner = spawner_with({"profile": "small"}, batch_submit_cmd="sudo -E -u {username} sbatch --parsable --mem=6G")

    assert [part.shown for part in parts_of(spawner, ENDED)] == [Proposal()]


@pytest.mark.parametrize(
    "server",
    [
        replace(ENDED, ending=Ending(Cause(Kind.TIME_LIMIT), job=replace(OF_MEMORY, end=End.TIME_LIMIT))),
        replace(ENDED, ending=Ending(Cause(Kind.STOPPED_BY_USER))),
        replace(ENDED, pending="spawn"),
        replace(ENDED, ready=True),
        Server("ada"),
    ],
    ids=["of its time", "stopped", "started again", "runs again", "never started"],
)
def test_nothing_is_proposed_to_others(server: Server) -> None:
    """Their memory was enough."""
    assert list(parts_of(spawner_with({"profile": "small"}), server)) == []


def test_many_looks_at_a_server_that_ended_are_one_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes through every choice; another ending and a profile that was deleted meanwhile are noticed."""
    spawner, now, questions = spawner_with({"profile": "small"}), 1000.0, list[int | None]()
    with_server, propose = MoreMemory(spawner), hub.proposal

    def ask(profiles: GPUProfilesSpawner, memory_mib: int | None) -> Proposal | None:
        questions.append(memory_mib)
        return propose(profiles, memory_mib)

    monkeypatch.setattr(hub, "kept_with", lambda _spawner, _kind: with_server)
    monkeypatch.setattr(hub, "proposal", ask)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    again = replace(ENDED, ending=Ending(Cause(Kind.MEMORY), at=2.0, job=replace(OF_MEMORY, memory_mib=8192)))
    shown = [part.shown for server in (ENDED, ENDED, again, again) for part in parts_of(spawner, server)]
    spawner.profiles = PROFILES[:1]
    now += hub.ENDED_SECONDS
    shown += [part.shown for part in parts_of(spawner, again)]

    more = replace(MORE, query="opt-profile=sizes&opt-memory=32g")
    assert (questions, shown) == ([None, 8192, 8192], [SIZES, SIZES, more, more, Proposal()])


async def test_jupyterlab_names_what_has_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a server that runs, once a page or JupyterLab has asked; a server that ended is forgotten."""
    spawner, running = spawner_with({"profile": "small"}), Server("ada", ready=True)
    with_server = MoreMemory(spawner)
    monkeypatch.setattr(hub, "kept_with", lambda _spawner, _kind: with_server)
    before = list(parts_of(spawner, running))
    await with_server.refresh(1.0)
    asked = list(parts_of(spawner, running))
    with_server.forget()

    assert before == []
    assert asked == [ServerPart("more_memory", document={"more_memory": "Sizes can have more: 8 GiB."})]
    assert list(parts_of(spawner, running)) == []
