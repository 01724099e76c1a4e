"""A server and its job: as the hub tells, as its database has it, and as Slurm tells."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import requests
from sqlalchemy import create_engine, text

from jupyterhub_gpuspawner.demo.hub import HubProcess, server_path
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from jupyterhub_gpuspawner.hub.job.ending import stored_ending
from jupyterhub_gpuspawner.hub.job.ending_words import words_of
from jupyterhub_gpuspawner.slurm.job import parse_tag
from tests.waiting import wait_until


def start(hub: HubProcess, user: str, profile: str, server: str = "", **options: int | str) -> None:
    """Ask for a server and do not wait for it; a start that fails at once is answered with its error (5xx)."""
    hub.api("POST", f"/users/{user}")
    answer = hub.api("POST", server_path(user, server), {"profile": profile, **options})
    assert answer.status_code in (201, 202) or answer.status_code >= 500, answer.text


def stored(hub: HubProcess, user: str) -> dict[str, Any]:
    """The state of the user's default server in the hub's database."""
    url = hub.environment.get("GPUSPAWNER_DEMO_DATABASE", f"sqlite:///file:{hub.folder}/hub.sqlite?mode=ro&uri=true")
    query = (
        "select spawners.state from spawners join users on users.id = spawners.user_id "
        "where users.name = :user and spawners.name = ''"
    )
    engine = create_engine(url)
    with engine.connect() as database:
        document = database.execute(text(query), {"user": user}).scalar()
    engine.dispose()
    return json.loads(document) if document else {}


def why_it_ended(hub: HubProcess, user: str) -> str:
    """How the user's last server ended, as the hub's pages say it; empty where that is not stored."""
    ending = stored_ending(stored(hub, user))
    return words_of(ending).sentence if ending is not None else ""


def job_id(hub: HubProcess, user: str, server: str = "") -> str:
    """The job id of a server in the hub's database, once there is one."""
    return str(wait_until(lambda: ((hub.server(user, server) or {}).get("state") or {}).get("job_id"), hub.log_end))


def environment(hub: HubProcess, user: str, server: str = "") -> dict[str, str]:
    """Of the server's process, which the proxy leads to."""
    path = f"{user}/{server}" if server else user
    variables: dict[str, str] = requests.get(f"{hub.url}/user/{path}/environ", timeout=10).json()
    return variables


# --- as Slurm tells ----------------------------------------------------------------------------------


def waiting_job(slurm: PrivateSlurm) -> str:
    """The one job that waits."""
    return wait_until(lambda: slurm.run("squeue", "-h", "-t", "PD", "-o", "%i"), "no job waits")


def state(slurm: PrivateSlurm, job: str, *others: str) -> str:
    """The job's state by Slurm's word, once it has left the one in between, and ``others``."""

    def states() -> list[str]:
        answer = slurm.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%T")
        return [] if answer in ("COMPLETING", *others) else [answer]

    return wait_until(states)[0]


def in_the_end(slurm: PrivateSlurm, job: str) -> str:
    """The job's last state, waited for for a minute and a half."""
    return state(slurm, job, "PENDING", "CONFIGURING", "RUNNING")


def alive(slurm: PrivateSlurm, states: str = "PD,CF,R,S") -> list[str]:
    """The servers' jobs that are pending or running: the id and the comment of each."""
    lines = slurm.run("squeue", "-h", "-t", states, "-O", "JobID:|,Comment:").splitlines()
    return sorted(line.strip() for line in lines if "|jupyterhub-gpuspawner/" in line)


def alive_of(slurm: PrivateSlurm, users: Collection[str], states: str = "PD,CF,R,S") -> list[str]:
    """The ids of those of these users: other hubs of the session may have servers, too."""
    jobs = (line.partition("|")[::2] for line in alive(slurm, states))
    return [job for job, comment in jobs if (tag := parse_tag(comment)) is not None and tag[1] in users]
