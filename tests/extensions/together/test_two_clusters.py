"""One hub and two private Slurms, of which root's tests reach the second by ssh: what is of one touches no other."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from jupyterhub_gpuspawner.cli.main import main
from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.cli.runner import cli_runner
from tests.fixtures.accounting import SMALL
from tests.fixtures.clock import about_noon
from tests.fixtures.hubs import ASKS_OFTEN, COMMAND, LIGHT, NO_SPAWN_WAIT, scrape, start_hub, stop_servers
from tests.fixtures.login_node import login_node, missing
from tests.fixtures.slurm import advance, hanging, next_number
from tests.hub.servers import alive, in_the_end, job_id, start, state, stored
from tests.hub.visitor import Page, Visitor
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

LINES = f"""
{ASKS_OFTEN}
from jupyterhub_gpuspawner.extensions.courses import offers
offers.FOR_SEATS = 0.0
{NO_SPAWN_WAIT}
c.JupyterHub.init_spawners_timeout = 1  # a start under way is not waited for
"""
UNANSWERED = 3
"""Unanswered questions about a cluster's jobs after which another spawner would have given its servers up."""


def profiles(*names: str, command: str) -> str:
    """The same profiles for each cluster, by its name."""
    text = LIGHT.replace(COMMAND, command)
    own = (
        text.replace("slug: ", f"slug: {name}-").replace("slurm: {", f"slurm: {{cluster: {name}, ") for name in names
    )
    return "".join(own)


@dataclass
class Two:
    """The hub, its clusters, and the person who has servers on each of them."""

    hub: HubProcess
    juniper: PrivateSlurm
    cedar: PrivateSlurm
    people: dict[str, str]
    settings: dict[str, dict[str, Any]]
    command: str

    def configure(self, *names: str) -> None:
        """Kill the hub, and start it again with these clusters alone."""
        self.hub.kill()
        (self.hub.folder / "profiles" / "own.yaml").write_text(profiles(*names, command=self.command))
        lines = self.hub.config.read_text().splitlines()
        clusters = {name: self.settings[name] for name in names}
        self.hub.config.write_text("\n".join([*lines[:-1], f"c.GPUSlurmSpawner.clusters = {clusters!r}"]) + "\n")
        self.hub.start()


@pytest.fixture
def two(clusters: Two) -> Iterator[Two]:
    """The hub without servers; those of a test that failed do not stay."""
    yield clusters
    stop_servers(clusters.hub)


@pytest.fixture(scope="module")
def clusters(
    needs_slurm: None, site_folder: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Two]:
    """A hub on the login node of juniper, with cedar elsewhere where root can make that, or else beside it."""
    people, command = {"juniper": "juniper", "cedar": "cedar"}, COMMAND
    with ExitStack() as stack:
        slurms = {name: stack.enter_context(PrivateSlurm(SMALL, site_folder / name)) for name in ("juniper", "cedar")}
        settings: dict[str, dict[str, Any]] = {name: {"slurm_conf": str(slurm.conf)} for name, slurm in slurms.items()}
        settings["cedar"] |= {"topology_file": slurms["cedar"].topology_pattern, "slurm_timeout": 3.0}
        if not missing():
            users, command = request.getfixturevalue("two_users"), request.getfixturevalue("public_command")
            people["cedar"] = users[1]
            node = stack.enter_context(login_node(site_folder / "login", slurms["cedar"], users))
            keys = node.folder / "authorized_keys"
            keys.write_text(keys.read_text().replace(node.hub_address, node.address))  # this hub is on this host
            settings["cedar"] |= {
                "slurm_conf": "",
                "req_homedir": "",
                "query_prefix": node.query_prefix,
                "exec_prefix": f"{node.query_prefix} sudo -n -u {{username}}",
                "wrapper_dir": str(node.wrappers),
            }
        folder = tmp_path_factory.mktemp("hub")
        (folder / "courses").mkdir()
        courses = f"c.GPUProfilesSpawner.courses_dir = {str(folder / 'courses')!r}"
        lines = f"{LINES}\n{courses}\nc.GPUSlurmSpawner.clusters = {settings!r}"
        hub = start_hub(
            stack,
            slurms["juniper"],
            folder,
            lines=lines,
            profiles=profiles(*slurms, command=command),
        )
        yield Two(hub, slurms["juniper"], slurms["cedar"], people, settings, command)


def spawn_both(two: Two, server: str = "") -> str:
    """Start a server on each cluster; the number that both jobs have.

    A trial of the hub's takes a number, too, and so does a job whose sbatch answers too late: then it is done again.
    """
    while True:
        number, jobs = max(map(next_number, (two.juniper, two.cedar))), list[str]()
        for name, slurm in (("juniper", two.juniper), ("cedar", two.cedar)):
            advance(slurm, number)
            jobs.append(two.hub.spawn(two.people[name], {"profile": f"{name}-light"}, server=server)["job_id"])
        if jobs == [str(number)] * 2:
            return str(number)
        for person in two.people.values():
            two.hub.end(person, server)


def on_the_map(hub: HubProcess) -> dict[str, list[str]]:
    """The hub's servers in each cluster's section of the administrators' map."""
    page = Visitor(hub, "admin").look("/hub/gpuspawner/cluster?part=map").soup
    sections = {}
    for heading in page.select("#gpuspawner-map h2"):
        rows = takewhile(lambda tag: tag.name != "h2", heading.find_next_siblings())
        text = " ".join(row.get_text(" ", strip=True) for row in rows)
        sections[heading.get_text()] = re.findall(r"\S+'s server, job \d+", text)
    return sections


def jobs_in_the_document(hub: HubProcess, cluster: str) -> list[tuple[str, str, str]]:
    """User, server and number of each job on the nodes of a cluster, by the map's JSON."""
    admin = Visitor(hub, "admin")
    url = f"{hub.url}/hub/api/gpuspawner/cluster"
    document = admin.session.get(url, params={"cluster": cluster}, headers=admin.headers, timeout=60).json()
    return [(job["user"], job["server"], job["job_id"]) for node in document["nodes"] for job in node["jobs"]]


def reached(hub: HubProcess, **to: str) -> int:
    """How many servers a message to these people reaches."""
    number: int = hub.api("POST", "/gpuspawner/messages", {"message": "Down at 12.", "to": to}).json()["servers"]
    return number


def test_servers_on_two_clusters_have_the_same_number_and_one_stops_alone(two: Two) -> None:
    """Each is found again by a restarted hub, with a start that was under way, and cancelled on its own cluster."""
    hub, (ann, bea) = two.hub, two.people.values()
    number = spawn_both(two)
    assert [stored(hub, user)["cluster"]["name"] for user in (ann, bea)] == ["juniper", "cedar"]
    assert on_the_map(hub) == {"juniper": [f"{ann}'s server, job {number}"], "cedar": [f"{bea}'s server, job {number}"]}
    held = {name: jobs_in_the_document(hub, name) for name in two.people}
    assert held == {"juniper": [(ann, "", number)], "cedar": [(bea, "", number)]}
    node = hub.api("GET", f"/gpuspawner/placement/{bea}").json()["node"]
    assert [reached(hub, **to) for to in ({"cluster": "cedar"}, {"cluster": "cedar", "node": node})] == [1, 1]
    blocker = two.cedar.run("sbatch", "--parsable", "-p", "gpu", "--exclusive", "-o", "/dev/null", "--wrap=sleep 600")
    start(hub, bea, "cedar-k80-node", "waits")
    waiting = job_id(hub, bea, "waits")

    hub.restart()
    two.cedar.run("scancel", blocker)
    hub.end(bea)

    assert in_the_end(two.cedar, number) == "CANCELLED"
    assert state(two.juniper, number) == "RUNNING"
    hub.wait(ann, ready=True)
    hub.wait(bea, "waits", ready=True)
    assert [len(alive(slurm)) for slurm in (two.juniper, two.cedar)] == [1, 1]
    hub.end(bea, "waits")
    hub.end(ann)
    assert in_the_end(two.cedar, waiting) == "CANCELLED"


def unanswered(hub: HubProcess) -> float:
    """How many questions about the hub's jobs have got no answer."""
    failures = [(labels, count) for (name, labels), count in scrape(hub).items() if name == "slurm_failures_total"]
    return sum(count for labels, count in failures if {"squeue", "silent"} <= set(labels))


def active(hub: HubProcess, user: str) -> dict[str, Any]:
    """The user's servers that run or are being started, by name."""
    servers: dict[str, Any] = hub.api("GET", f"/users/{user}").json()["servers"]
    return servers


def starts_now(form: Page) -> dict[str, bool]:
    """Whether the form says of each cluster's light profile that it starts now."""
    cards = {str(card.select("input[type=radio]")[0]["value"]): card for card in form.soup.select(".gs-choice")}
    return {slug: bool(card.select(".gs-when > .now")) for slug, card in cards.items() if slug.endswith("-light")}


def test_a_silent_cluster_keeps_its_servers_and_the_other_starts_and_stops(two: Two) -> None:
    """A start on the silent one is kept, and goes on when it answers."""
    hub, (ann, bea) = two.hub, two.people.values()
    reader = Visitor(hub, bea)
    number = spawn_both(two)
    with hanging(two.cedar):
        before = unanswered(hub)
        start(hub, bea, "cedar-light", "later")
        wait_until(lambda: unanswered(hub) >= before + UNANSWERED, hub.log_end, seconds=60)
        hub.spawn(ann, {"profile": "juniper-light"}, server="meanwhile")
        hub.end(ann, "meanwhile")
        forms = [reader.look(f"/hub/spawn/{bea}/other") for _ in range(2)]  # the second is a reload
        ready = {(user, name): server["ready"] for user in (ann, bea) for name, server in active(hub, user).items()}

    silent = [line.split()[3] for line in hub.log.read_text().splitlines() if "Slurm is not responding" in line]
    assert set(silent) == {"JupyterHub.cedar"}
    for form in forms:
        assert starts_now(form) == {"juniper-light": True, "cedar-light": False}
        assert "Slurm on cedar is not responding" in form.text
    assert ready == {(ann, ""): True, (bea, ""): True, (bea, "later"): False}
    assert f"The start of {bea}:later is kept until Slurm answers" in hub.log.read_text()
    hub.wait(bea, "later", ready=True)
    assert stored(hub, bea)["job_id"] == number
    for names in ((bea, "later"), (bea,), (ann,)):
        hub.end(*names)


def start_over(slurm: PrivateSlurm) -> None:
    """Have slurmctld lose its state, so that the next job has the number 1."""
    slurm.stop_controller()
    shutil.rmtree(slurm.layout.folder / "state")
    (slurm.layout.folder / "state").mkdir()
    slurm.start_controller()


@pytest.mark.nightly
def test_a_cluster_whose_numbers_start_over_ends_its_own_servers_alone(two: Two) -> None:
    """The number belongs to a later server of the same person, and to a server on the other cluster: both run on."""
    hub, (ann, bea) = two.hub, two.people.values()
    number = spawn_both(two)
    new_job = ""
    while new_job != number:
        if new_job:
            hub.end(bea, "again")
        start_over(two.cedar)
        advance(two.cedar, int(number))
        new_job = hub.spawn(bea, {"profile": "cedar-light"}, server="again")["job_id"]
    hub.wait(bea, ready=False)

    assert [state(slurm, number) for slurm in (two.juniper, two.cedar)] == ["RUNNING", "RUNNING"]
    hub.wait(bea, "again", ready=True)
    hub.wait(ann, ready=True)
    hub.end(bea, "again")
    hub.end(ann)


@pytest.mark.nightly
def test_a_server_on_a_cluster_that_was_removed_is_kept_and_can_be_stopped(two: Two) -> None:
    """The log says so once; it is stopped on its cluster, and not the other's of the same number."""
    hub, (ann, bea) = two.hub, two.people.values()
    number = spawn_both(two)
    warning = f"The cluster cedar is no longer in c.GPUSlurmSpawner.clusters. What runs there (1 server: {bea}) is kept"
    logged = len(hub.log.read_text())
    two.configure("juniper")
    try:
        wait_until(lambda: warning in hub.log.read_text()[logged:], hub.log_end)
        hub.wait(bea, ready=True)
        hub.end(bea)
        log = hub.log.read_text()[logged:]
    finally:
        two.configure("juniper", "cedar")

    assert log.count(warning) == 1
    assert in_the_end(two.cedar, number) == "CANCELLED"
    assert state(two.juniper, number) == "RUNNING"
    hub.end(ann)


@pytest.mark.nightly
def test_the_check_tries_a_job_on_each_cluster(two: Two) -> None:
    """Nodes of both are reached from the hub's machine, and reach the hub."""
    person, program = two.people["cedar"], Path(sys.executable).with_name("gpuspawner")
    (two.hub.folder / "homes" / person).mkdir(parents=True, exist_ok=True)  # on juniper a start makes it
    command = (program, "check", "--user", person, "--submit", "--json", "--config", two.hub.write_configuration())
    answer = subprocess.run(command, stdout=subprocess.PIPE, check=False)

    assert sorted(
        (finding["cluster"], finding["where"])
        for finding in json.loads(answer.stdout)["findings"]
        if finding["code"] == "job-ran"
    ) == [("cedar", "node c1"), ("cedar", "node g1"), ("juniper", "node c1"), ("juniper", "node g1")]


@pytest.mark.nightly
def test_a_course_on_both_clusters_is_counted_and_started_on_each(two: Two) -> None:
    """Where the first one's nodes are taken, everybody gets the profile on the second; each has a scheduler to ask."""
    token = Visitor(two.hub, "admin").token()
    zone, now = about_noon()
    bea = two.people["cedar"]
    course = two.hub.folder / "courses" / "both.yaml"
    course.write_text(
        f"{{name: Both, instructors: admin, roster: {bea}, zone: {zone}, profile: [juniper-light, cedar-light], "
        f"sessions: [{{date: {now:%Y-%m-%d}, from: '{now:%H:%M}', to: '{now.hour + 1}:{now:%M}'}}]}}"
    )
    job = two.juniper.run("sbatch", "--parsable", "-p", "batch", "--exclusive", "-o", "/dev/null", "--wrap=sleep 600")
    try:
        words = ["course", "check", "both", "--json", "--config", str(two.hub.config)]
        checked = cli_runner().invoke(main, words, env=two.hub._environment())
        start_all = "/gpuspawner/courses/both/start"
        wait_until(lambda: two.hub.api("POST", start_all, token=token).ok, two.hub.log_end)  # it reads the folder
        wait_until(lambda: active(two.hub, bea), two.hub.log_end)
        two.hub.wait(bea, ready=True)
        cluster = stored(two.hub, bea)["cluster"]["name"]
    finally:
        two.juniper.run("scancel", job)
        course.unlink()

    assert checked.stdout, (checked.stderr, checked.exception)
    (session,) = json.loads(checked.stdout)["sessions"]
    assert (session["counted"], session["problems"], session["hints"][:1]) == (
        "slurm",
        [
            f"Servers of profile {name}-light on {name} end after 10 min, before the session does, which takes 1 h."
            for name in ("juniper", "cedar")
        ],
        ["0 get profile juniper-light on juniper, 1 get profile cedar-light on cedar."],
    )
    assert cluster == "cedar"
