"""Profiles and trials over REST, on a real hub and Slurm."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from jupyterhub_gpuspawner.slurm.estimate import UNKNOWN
from tests.fixtures.hubs import COMMAND, LIGHT, StartHub
from tests.hub.visitor import Visitor
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

MORE = f"""
- {{display_name: For the course, slug: course, allow: {{groups: [ml-course]}}, command: {COMMAND}}}
- {{display_name: Later, slug: later, allow: {{from: 2999-01-01}}, command: {COMMAND}}}
- {{display_name: For Carl, slug: carl, allow: {{users: [carl]}}, command: {COMMAND}}}
- {{display_name: Too long, slug: too-long, slurm: {{partition: batch, time: 9-00:00:00}}, command: {COMMAND}}}
- {{display_name: Here, slug: here, kind: local}}
- {{display_name: Eight, slug: eight, slurm: {{partition: gpu, gpus: 8, gpu_type: p100}}, command: {COMMAND}}}
- {{display_name: Either, slug: either, slurm: {{partition: "gpu,batch", cpus: 40, memory: 100G}}, command: {COMMAND}}}
- {{display_name: Odd, slug: odd, slurm: {{extra: [--nonsense=1]}}, command: {COMMAND}}}
"""


@pytest.fixture(scope="module")
def hub(start_light_hub: StartHub, slurm_cluster: PrivateSlurm) -> HubProcess:
    """A hub with profiles of all kinds, and two users who have not signed in; no job of other tests runs any more."""
    wait_until(lambda: slurm_cluster.run("squeue", "-h", "-a") == "", lambda: slurm_cluster.run("squeue", "-a"))
    process = start_light_hub(profiles=LIGHT + MORE)
    for name in ("ann", "bob"):
        process.api("POST", f"/users/{name}")
    return process


@pytest.fixture(scope="module")
def tokens(hub: HubProcess) -> dict[str, str]:
    """A token of ann's, and one of hers with read access only."""
    ann = Visitor(hub, "ann")
    return {"ann": ann.token(), "reading": ann.token(scopes=["read:users!user=ann"])}


@pytest.fixture
def leaves_no_job(slurm_cluster: PrivateSlurm) -> Iterator[None]:
    """Check that nothing was submitted."""
    listing = ("squeue", "-h", "-a", "-t", "all", "-o", "%i")
    before = slurm_cluster.run(*listing)
    yield
    assert set(slurm_cluster.run(*listing).split()) <= set(before.split())


def profiles(answer: requests.Response) -> dict[str, dict[str, Any]]:
    """The document's profiles by slug."""
    document = answer.json()
    assert (answer.status_code, document["version"], document["silent"]) == (200, 1, False)
    assert document["taken_at"].endswith("+00:00")
    by_slug = {profile["slug"]: profile for profile in document["profiles"]}
    assert {profile.pop("taken_at") for profile in by_slug.values()} <= {document["taken_at"], None}
    for availability in filter(None, (profile["availability"] for profile in by_slug.values())):
        # a server that another test has stopped may still have its cores
        availability["sentence"] = re.sub(r"\d+ of 80 cores", "N of 80 cores", availability["sentence"])
    return by_slug


def test_profiles_tell_what_may_be_asked_and_how_it_would_fare(hub: HubProcess, tokens: dict[str, str]) -> None:
    """One profile in full, and the availability of each; profiles for other users and groups are left out."""
    by_slug = profiles(hub.api("GET", "/gpuspawner/profiles", token=tokens["ann"]))
    schema = by_slug["light"].pop("options_schema")
    availability = by_slug["light"]["availability"]
    assert availability.pop("ends_at") is not None
    assert availability.pop("estimate") == {**UNKNOWN.document(0.0), "kind": "now", "words": "now", "span": "now"}
    assert by_slug["light"] == {
        "slug": "light",
        "display_name": "Light",
        "description": "",
        "default": False,
        "kind": "slurm",
        "allowed": True,
        "reason": "",
        "resources": {
            "partition": "batch",
            "cluster": None,
            "nodes": 1,
            "gpus": None,
            "gpu_type": None,
            "shards": None,
            "cpus": 1,
            "memory": 100,
            "time": 600,
            "reservation": None,
        },
        "availability": {
            "chance": "now",
            "sentence": "starts now, N of 80 cores free",
            "starts_at": None,
            "field": "",
            "room": {"free": 80, "all": 80, "words": "80 of 80 cores free"},
        },
        "choices": {},
    }
    assert schema["properties"]["cpus"] == {
        "title": "Cores",
        "default": 1,
        "type": "integer",
        "minimum": 1,
        "maximum": 4,
        "multipleOf": 1,
    }
    sentences = {
        slug: profile["availability"] and profile["availability"]["sentence"] for slug, profile in by_slug.items()
    }
    assert sentences == {
        "light": "starts now, N of 80 cores free",
        "k80-node": "starts now, 4 of 4 K80 free",
        "later": None,
        "too-long": "9 days is more than the limit of 24 h",
        "here": None,
        "eight": "starts now, 8 of 8 P100 free",
        "either": sentences["either"],
        "odd": "availability unknown: part of what this profile asks for is checked at submission",
    }
    assert (by_slug["later"]["allowed"], by_slug["later"]["reason"]) == (False, "it is available from 1 Jan 2999")
    assert by_slug["later"]["options_schema"] is None


def test_what_the_schema_takes_is_what_the_hub_takes(hub: HubProcess, tokens: dict[str, str]) -> None:
    """Options that the schema accepts get a trial from the same hub, others a 400 that names the field."""
    schema = profiles(hub.api("GET", "/gpuspawner/profiles", token=tokens["ann"]))["light"]["options_schema"]
    for cpus, valid in ((1, True), (4, True), (5, False), (0, False), (1.5, False), (True, False)):
        options = {"profile": "light", "cpus": cpus}
        answer = hub.api("POST", "/gpuspawner/trial", {"user_options": options}, token=tokens["ann"])
        assert Draft202012Validator(schema).is_valid(options) is valid
        assert (answer.status_code == 200) is valid, answer.text
        if not valid:
            assert (answer.json()["field"], answer.json()["reason"]) == ("cpus", "user_options")


@pytest.mark.usefixtures("leaves_no_job")
def test_trial_says_when_and_where(hub: HubProcess, tokens: dict[str, str]) -> None:
    """Slurm itself is asked, as the user; no job is created."""
    answer = hub.api("POST", "/gpuspawner/trial", {"user_options": {"profile": "eight"}}, token=tokens["ann"])
    document = answer.json()
    estimate = document.pop("estimate")
    assert (estimate["kind"], estimate["words"]) == ("now", "now")
    assert (answer.status_code, (document.pop("starts_at") or "")[-6:]) == (200, "+00:00"), document
    assert document == {
        "version": 1,
        "chance": "now",
        "sentence": "starts now, 8 of 8 P100 free",
        "nodes": ["d1"],
        "field": "",
        "gets": ["8 \N{MULTIPLICATION SIGN} P100", "1 core", "1000 MiB memory"],
        "ends_at": None,
        "room": None,
    }


def test_a_trial_of_free_devices_is_not_delayed_by_who_waits_for_others(
    hub: HubProcess, slurm_cluster: PrivateSlurm
) -> None:
    """The eight P100 are free; a job waits in the same partition for K80s that are taken."""
    ask = ("--partition=gpu", "--gres=gpu:k80:4", "--exclusive", "--time=30", "--mem=100", "--output=/dev/null")
    jobs = [slurm_cluster.run("sbatch", "--parsable", *ask, "--wrap=sleep 300").strip() for _ in range(3)]
    waits = ("squeue", "-h", "-t", "PD", "-j", ",".join(jobs), "-o", "%r")
    try:
        wait_until(
            lambda: set(slurm_cluster.run(*waits).split()) & {"Resources", "Priority"},
            lambda: slurm_cluster.run("squeue", "-a"),
        )
        eight = {"user_options": {"profile": "eight"}}
        # as bob: for half a minute ann has one answer to the same question, which another test asks, too
        document = hub.api("POST", "/gpuspawner/trial/bob", eight).json()
    finally:
        slurm_cluster.run("scancel", *jobs)
        while slurm_cluster.run("squeue", "-h", "-a", "-j", ",".join(jobs), "-t", "PD,R,CG", "-o", "%i").strip():
            time.sleep(0.2)
        free = "starts now, 4 of 4 K80 free"  # which other tests expect, and the hub's snapshot may be some seconds old
        wait_until(
            lambda: (
                profiles(hub.api("GET", "/gpuspawner/profiles/bob"))["k80-node"]["availability"]["sentence"] == free
            ),
            "the K80s do not become free",
        )
    assert document["chance"] == "now", document


@pytest.mark.nightly
def test_trial_of_several_partitions_is_of_the_best(
    hub: HubProcess, tokens: dict[str, str], slurm_cluster: PrivateSlurm
) -> None:
    """While d1, the only such node in the first partition, is taken, the job would start in the second."""
    hold = ("--partition=gpu", "--nodelist=d1", "--exclusive", "--time=30", "--mem=100", "--output=/dev/null")
    job = slurm_cluster.run("sbatch", "--parsable", *hold, "--wrap=sleep 300")
    try:
        while slurm_cluster.run("squeue", "-h", "-j", job, "-o", "%T") != "RUNNING":
            time.sleep(0.2)
        ask = {"user_options": {"profile": "either"}}
        nodes, ends_at = ["d1"], time.monotonic() + 90
        while nodes in ([], ["d1"]) and time.monotonic() < ends_at:  # the hub's snapshot may be some seconds old
            nodes = hub.api("POST", "/gpuspawner/trial", ask, token=tokens["ann"]).json()["nodes"]
            time.sleep(0.5)
    finally:
        slurm_cluster.run("scancel", job)
        wait_until(
            lambda: profiles(hub.api("GET", "/gpuspawner/profiles/ann"))["eight"]["availability"]["chance"] == "now",
            "d1 does not become free",
        )
    assert nodes in (["c1"], ["c2"])


@pytest.mark.usefixtures("leaves_no_job")
@pytest.mark.parametrize(
    ("slug", "chance", "sentence", "field"),
    [
        ("too-long", "never", "9 days is more than the limit of 24 h", "slurm.time"),
        ("odd", "never", "slurm did not accept this server as the hub asked for it", ""),
        ("here", "now", "starts at once, on the hub's own machine", ""),
    ],
)
def test_trial_of_what_cannot_run(
    hub: HubProcess, tokens: dict[str, str], slug: str, chance: str, sentence: str, field: str
) -> None:
    """Over the partition's limit, which --test-only ignores; refused by sbatch; without Slurm."""
    answer = hub.api("POST", "/gpuspawner/trial", {"user_options": {"profile": slug}}, token=tokens["ann"]).json()
    assert (answer["chance"], answer["sentence"], answer["field"]) == (chance, sentence, field)


def test_each_sees_their_own_and_an_admin_everybodys(hub: HubProcess, tokens: dict[str, str]) -> None:
    """Needs the scope to start that user's servers; without it JupyterHub does not reveal whether the user exists."""
    ask = {
        "ann of ann": hub.api("GET", "/gpuspawner/profiles/ann", token=tokens["ann"]),
        "ann of bob": hub.api("GET", "/gpuspawner/profiles/bob", token=tokens["ann"]),
        "admin of bob": hub.api("GET", "/gpuspawner/profiles/bob"),
        "admin of nobody": hub.api("GET", "/gpuspawner/profiles/nobody"),
        "a token that may only read": hub.api("GET", "/gpuspawner/profiles", token=tokens["reading"]),
        "nobody": requests.get(f"{hub.url}/hub/api/gpuspawner/profiles", timeout=60),
        "ann tries as bob": hub.api("POST", "/gpuspawner/trial/bob", {}, token=tokens["ann"]),
        "nobody tries": requests.post(f"{hub.url}/hub/api/gpuspawner/trial", json={}, timeout=60),
    }
    assert {who: answer.status_code for who, answer in ask.items()} == {
        "ann of ann": 200,
        "ann of bob": 404,
        "admin of bob": 200,
        "admin of nobody": 404,
        "a token that may only read": 403,
        "nobody": 403,
        "ann tries as bob": 404,
        "nobody tries": 403,
    }


def test_person_in_a_browser_needs_the_cookie_and_its_xsrf_token(hub: HubProcess) -> None:
    """As in JupyterHub's own API: a cookie is not enough, since other sites' pages have no XSRF token."""
    person = Visitor(hub, "ann")
    url, body = f"{hub.url}/hub/api/gpuspawner/trial", {"user_options": {"profile": "light"}}
    without = person.session.post(url, json=body, timeout=60)
    with_token = person.session.post(url, json=body, headers=person.headers, timeout=60)
    assert (without.status_code, with_token.status_code) == (403, 200)
    assert with_token.json()["chance"] == "now"


@pytest.mark.parametrize("body", [[], "x", {"user_options": []}, {"user_options": {}, "more": 1}, {"profile": "light"}])
def test_body_of_another_form_is_refused(hub: HubProcess, tokens: dict[str, str], body: Any) -> None:
    """A body of any other form gets 400."""
    answer = hub.api("POST", "/gpuspawner/trial", body, token=tokens["ann"])
    assert (answer.status_code, answer.json()["message"]) == (400, 'The body must be {"user_options": {...}}.')


def test_trial_leaves_a_running_server_alone(hub: HubProcess) -> None:
    """The server that is running keeps its profile, its job and its options."""
    hub.spawn("bob", {"profile": "light", "cpus": 2})
    before = hub.server("bob")
    answer = hub.api("POST", "/gpuspawner/trial/bob", {"user_options": {"profile": "k80-node"}})
    assert (answer.json()["sentence"], answer.json()["nodes"]) == ("starts now, 4 of 4 K80 free", ["g1"])
    assert hub.api("GET", "/gpuspawner/profiles/bob").status_code == 200
    after = hub.server("bob")
    assert before is not None
    assert after is not None
    assert after["user_options"] == before["user_options"] == {"profile": "light", "cpus": 2}
    hub.end("bob")


def until_well(slurm: PrivateSlurm) -> None:
    """A slurmctld that has just started does not know which nodes are up."""
    wait_until(
        lambda: set(slurm.run("sinfo", "-h", "-N", "-o", "%T").split()) == {"idle"},
        "the nodes did not come back",
        seconds=120,
    )


def test_silent_slurm_leaves_what_was_known(
    start_light_hub: StartHub, slurm_cluster: PrivateSlurm, tmp_path: Path
) -> None:
    """Without slurmctld the last snapshot is shown with its age, and a trial says that Slurm does not respond."""
    hub = start_light_hub("c.GPUSlurmSpawner.slurm_timeout = 3")
    hub.api("POST", "/users/ann")
    before = hub.api("GET", "/gpuspawner/profiles/ann").json()
    slurm_cluster.stop_controller()
    try:
        answer = hub.api("POST", "/gpuspawner/trial/ann", {"user_options": {"profile": "light"}})
        document = hub.api("GET", "/gpuspawner/profiles/ann").json()
    finally:
        slurm_cluster.start_controller()
        until_well(slurm_cluster)
    assert (answer.status_code, answer.json()["chance"]) == (200, "unknown")
    assert answer.json()["sentence"] == "Slurm is not responding at the moment"
    assert document["profiles"] == before["profiles"]
    assert document["taken_at"] == before["taken_at"]
