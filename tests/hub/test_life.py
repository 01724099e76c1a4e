"""A server's life on a real hub and a real Slurm: what it is given, what is said of it, and how it ends."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from jupyterhub_gpuspawner.cli.main import main
from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from jupyterhub_gpuspawner.hub import words
from jupyterhub_gpuspawner.slurm.job import parse_tag
from tests.cli.runner import cli_runner
from tests.fixtures.hubs import COMMAND, LIGHT, StartHub, stop_servers, wait_for_queries
from tests.fixtures.slurm import hanging
from tests.hub.servers import environment, in_the_end, start, state, stored, waiting_job, why_it_ended
from tests.hub.visitor import Visitor, events
from tests.waiting import true_within, wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

CONFIG = """
c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 0}  # a start over REST is answered at once
c.JupyterHub.load_groups = {"fast": {"users": ["gil"]}}
c.Spawner.environment = {"FIRST": "every server", "SECOND": "every server", "THIRD": "every server"}
c.GPUSlurmSpawner.environment = {"SECOND": "every job", "THIRD": "every job"}
c.Spawner.group_overrides = {
    "01-fast": {"groups": ["fast"], "spawner_override": {"req_partition": "gpu", "environment": {"GROUP": "fast"}}}
}
from jupyterhub_gpuspawner.slurm import watcher
watcher.ACTIVE_INTERVAL = 0.5
watcher.REST_INTERVAL = 1.0
make_home = c.Spawner.pre_spawn_hook


def hook(spawner):
    make_home(spawner)
    spawner.environment["HOOK"] = spawner.user_options["profile"]
    if spawner.user.name.startswith("mia-"):
        spawner.http_timeout = 3


c.Spawner.pre_spawn_hook = hook
"""
PROFILES = f"""{LIGHT}
- display_name: No partition
  slug: plain
  slurm: {{cpus: 1, memory: 100M, time: 0:10:00}}
  environment: {{variables: {{THIRD: this profile, FOURTH: "a $HOME 'b'"}}}}
  command: {COMMAND}
- display_name: Impatient
  slug: impatient
  slurm: {{partition: gpu, gpus: 4, gpu_type: k80, memory: 100M, time: 0:10:00}}
  queue_timeout: 0:00:05
  command: {COMMAND}
- display_name: Never answers
  slug: deaf
  slurm: {{partition: batch, cpus: 1, memory: 100M, time: 0:10:00}}
  command: [bash, -c, sleep 300]
- display_name: Listens and never answers
  slug: mute
  slurm: {{partition: batch, cpus: 1, memory: 100M, time: 0:10:00}}
  command:
  - {sys.executable}
  - -c
  - "import socket, sys, time; server = socket.create_server(('', int(sys.argv[1]))); time.sleep(300)"
  - "{{port}}"
"""


@pytest.fixture(scope="module")
def hub(start_light_hub: StartHub) -> HubProcess:
    """A hub with hooks, groups and environments."""
    return start_light_hub(lines=CONFIG, profiles=PROFILES)


@pytest.fixture(autouse=True)
def no_server_is_left(hub: HubProcess) -> Iterator[None]:
    """Whatever a test leaves is stopped, so that the next one finds free nodes."""
    yield
    stop_servers(hub)


@pytest.fixture
def full_node(slurm_cluster: PrivateSlurm) -> Iterator[str]:
    """The K80 node, filled by a job; its id."""
    job = slurm_cluster.run(
        "sbatch", "--parsable", "-p", "gpu", "-w", "g1", "--exclusive", "--output=/dev/null", "--wrap=sleep 600"
    )
    try:
        wait_until(lambda: state(slurm_cluster, job) == "RUNNING", lambda: slurm_cluster.run("squeue"))
        yield job
    finally:
        slurm_cluster.run("scancel", job)
        true_within(90, lambda: state(slurm_cluster, job) != "RUNNING")


# --- start -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("full_node")
def test_the_job_id_is_stored_before_the_start_ends_and_a_stop_cancels_that_job(
    hub: HubProcess, slurm_cluster: PrivateSlurm
) -> None:
    """While it waits the database has the job; DELETE takes the job out of the queue, and the state is empty again."""
    start(hub, "ida", "k80-node")
    job = waiting_job(slurm_cluster)
    wait_until(lambda: "job_id" in stored(hub, "ida"), hub.log_end)

    assert stored(hub, "ida")["job_id"] == job

    answer = hub.api("DELETE", "/users/ida/server")
    hub.wait("ida", ready=False)

    assert answer.status_code in (202, 204)
    assert state(slurm_cluster, job) == "CANCELLED"
    assert stored(hub, "ida") == {}


@pytest.mark.usefixtures("full_node")
def test_a_profiles_queue_timeout_gives_up_the_place_and_cancels_the_job(
    hub: HubProcess, slurm_cluster: PrivateSlurm
) -> None:
    """The page says until when the place is kept, and then why it was given up; it is no failure of the hub."""
    visitor = Visitor(hub, "kim")
    start(hub, "kim", "impatient")
    job = waiting_job(slurm_cluster)
    sentences = [event["gpuspawner"]["kept"] for event in events(hub, "kim") if "gpuspawner" in event]
    hub.wait("kim", ready=False)
    page = visitor.pending()

    assert any("We keep your place in line until {time}." in sentence for sentence in sentences)
    assert state(slurm_cluster, job) == "CANCELLED"
    assert page.status == 409
    assert "You waited 5 s in the queue, which is the limit here; the start was cancelled" in page.text


@pytest.mark.usefixtures("full_node")
def test_a_job_that_is_cancelled_from_outside_while_it_waits(hub: HubProcess, slurm_cluster: PrivateSlurm) -> None:
    """Told in words."""
    visitor = Visitor(hub, "lea")
    start(hub, "lea", "k80-node")
    job = waiting_job(slurm_cluster)
    slurm_cluster.run("scancel", job)
    hub.wait("lea", ready=False)
    page = visitor.pending()

    assert page.status == 503
    assert f"Job {job} ended before your server was ready: The job was cancelled." in page.text


@pytest.mark.parametrize(
    ("profile", "sentence"),
    [
        ("deaf", r"its server at \S+ did not listen on its port within 3 s"),
        ("mute", r"its server at \S+, port \d+, did not respond to the hub within 3 s"),
    ],
)
def test_a_server_that_never_answers(hub: HubProcess, slurm_cluster: PrivateSlurm, profile: str, sentence: str) -> None:
    """After http_timeout, which a hook has set; the hub's log says whether it listens, and where it was expected."""
    user = f"mia-{profile}"
    visitor = Visitor(hub, user)
    start(hub, user, profile)
    hub.wait(user, ready=False)
    page = visitor.pending()
    sentence_shown = re.search(
        r"Your server was started but did not respond to the hub within 3 s\..* Log file: (\S+)", page.text
    )
    logged = re.findall(rf"Job (\d+) is running, but {sentence}\.", hub.log.read_text())

    assert page.status == 503
    assert sentence_shown is not None, page.text
    assert sentence_shown[1] == f"{hub.folder}/homes/{user}/.local/share/gpuspawner/logs/jupyterhub-{logged[-1]}.log"
    assert state(slurm_cluster, logged[-1]) == "CANCELLED"


def test_show_prints_what_the_hub_submits(
    hub: HubProcess, slurm_cluster: PrivateSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm's own copy of the script is `gpuspawner show`'s, but for the start's mark in name and comment."""
    job = hub.spawn("val", {"profile": "light", "cpus": 2})["job_id"]
    submitted = slurm_cluster.run("scontrol", "write", "batch_script", job, "-")
    hub.end("val")
    for name, value in hub._environment().items():
        monkeypatch.setenv(name, value)
    shown = cli_runner().invoke(
        main, ["show", "light", "--user", "val", "--option", "cpus=2", "--config", str(hub.config)]
    )

    assert shown.exit_code == 0, shown.stderr
    script = re.sub("(#SBATCH --comment=.*)#[0-9a-f]{8}\\b.*", r"\1", submitted.replace('"', ""))
    script = re.sub("(#SBATCH --job-name=jupyterhub)-[0-9a-f]{8}-[0-9a-f]{16}$", r"\1", script, flags=re.MULTILINE)
    assert script.strip() == shown.stdout.replace('"', "").strip()


# --- while slurmctld is away ------------------------------------------------------------------------


def test_a_server_that_is_stopped_while_slurmctld_is_down(hub: HubProcess, slurm_cluster: PrivateSlurm) -> None:
    """It is gone for the user, and its job is cancelled as soon as Slurm answers again; the card says each in turn."""
    sue = Visitor(hub, "sue")
    job = hub.spawn("sue", {"profile": "light"})["job_id"]
    slurm_cluster.stop_controller()
    try:
        sue.click("/hub/gpuspawner/stop/sue")
        hub.wait("sue", ready=False)
        uncertain = why_it_ended(hub, "sue")
        card = sue.look("/hub/home").text
    finally:
        slurm_cluster.start_controller(nodes=False)
    ended = in_the_end(slurm_cluster, job)  # by then, since the stop itself could not cancel it
    wait_until(lambda: why_it_ended(hub, "sue") != uncertain, hub.log_end)

    assert ended == "CANCELLED"
    assert uncertain == (
        f"Job {job} could not be cancelled at {{time}}, so it may still be running. The hub keeps trying to cancel it."
    )
    assert f"Job {job} could not be cancelled at " in card
    assert why_it_ended(hub, "sue").endswith(f" was stopped at {{time}}; job {job} was cancelled.")
    assert f"; job {job} was cancelled." in sue.look("/hub/home").text


@contextmanager
def stopped(slurm: PrivateSlurm) -> Iterator[None]:
    """A context in which slurmctld is stopped; afterwards it has started anew."""
    slurm.stop_controller()
    try:
        yield
    finally:
        slurm.start_controller(nodes=False)


@pytest.mark.parametrize("silence", [hanging, pytest.param(stopped, marks=pytest.mark.nightly)])
def test_a_start_is_kept_while_slurm_is_silent(
    hub: HubProcess, slurm_cluster: PrivateSlurm, silence: Callable[[PrivateSlurm], AbstractContextManager[None]]
) -> None:
    """It is submitted when Slurm is back, and there is one job; one that was given up meanwhile has none."""
    visitor, cautious = Visitor(hub, "tom"), Visitor(hub, "tim")
    with silence(slurm_cluster):
        for user in ("tom", "tim"):
            start(hub, user, "light")
        for person in (visitor, cautious):
            wait_until(lambda: words.FOR_LATER in person.pending().text, hub.log_end, seconds=60)  # noqa: B023
            step, state = '[aria-current="step"] [data-part="title"]', ".gpuspawner-server .gs-state"
            assert [part.text for part in person.pending().soup.select(step)] == ["Waiting for Slurm"]
            assert [part.text for part in person.look("/hub/home").soup.select(state)] == ["waiting for Slurm"]
        hub.end("tim")
    hub.wait("tom", ready=True)

    def jobs() -> list[str]:
        owners = (parse_tag(line) for line in slurm_cluster.run("squeue", "-h", "-o", "%k").splitlines())
        return [names[1] for names in owners if names is not None and names[1] in ("tom", "tim")]

    hub.spawn("tia", {"profile": "light"})  # after the others: what they have submitted is there by then
    wait_until(lambda: jobs() == ["tom"], lambda: (jobs(), hub.log_end()), seconds=60)
    assert hub.log.read_text().count("The start of tom is kept until Slurm answers") >= 1

    hub.end("tom")


# --- what it is given ------------------------------------------------------------------------------


def test_environments_of_site_hook_and_profile_all_arrive(hub: HubProcess) -> None:
    """Every server's, then every job's, then the hook's; the profile's own above them, as it is written."""
    hub.spawn("pam", {"profile": "plain"})
    variables = environment(hub, "pam")

    assert {name: variables.get(name) for name in ("FIRST", "SECOND", "THIRD", "FOURTH", "HOOK", "GROUP")} == {
        "FIRST": "every server",
        "SECOND": "every job",
        "THIRD": "this profile",
        "FOURTH": "a $HOME 'b'",
        "HOOK": "plain",
        "GROUP": None,
    }

    hub.end("pam")


def test_a_group_override_reaches_the_job(hub: HubProcess) -> None:
    """What it says of req_* holds where the profile says nothing; its environment arrives."""
    ungrouped, grouped = hub.spawn("pia", {"profile": "plain"}), hub.spawn("gil", {"profile": "plain"})

    assert (ungrouped["partition"], grouped["partition"]) == ("batch", "gpu")
    assert environment(hub, "gil")["GROUP"] == "fast"

    hub.end("gil")
    grouped = hub.spawn("gil", {"profile": "light"})

    assert grouped["partition"] == "batch"  # the profile's own word

    hub.end("gil")
    hub.end("pia")


# --- what is said ----------------------------------------------------------------------------------


def test_progress_tells_each_thing_once(hub: HubProcess, slurm_cluster: PrivateSlurm, full_node: str) -> None:
    """The job, why it waits, the node, then that the server is ready; a second one who looks reads the same."""
    start(hub, "quin", "k80-node")
    received: list[list[dict[str, Any]]] = [[], []]
    listeners = [threading.Thread(target=lambda to: to.extend(events(hub, "quin")), args=(to,)) for to in received]
    for listener in listeners:
        listener.start()
    job = waiting_job(slurm_cluster)
    wait_for_queries(hub, 4)
    slurm_cluster.run("scancel", full_node)
    for listener in listeners:
        listener.join(60)
    texts = [[event["message"] for event in listened if "message" in event] for listened in received]
    messages, others = sorted(texts, key=len, reverse=True)

    assert len(messages) == len(set(messages))
    assert others == [message for message in messages if message in others]  # who came later may have missed one
    assert f"Job {job}: All matching GPUs are in use." in others
    assert any(
        message.startswith(f"Job {job}: running on g1, 4 \N{MULTIPLICATION SIGN} K80, 12 GB, CPUs ")
        for message in others
    )
    assert others[-1] == messages[-1] == "Server ready at /user/quin/"
    percents = [event["progress"] for event in received[0] if "progress" in event]
    assert percents == sorted(percents)
