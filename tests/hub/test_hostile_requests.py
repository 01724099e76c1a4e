"""Hundreds of hostile requests to a real hub cause no 500 and no line in a batch script, and leave nothing behind."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode

import pytest
import requests
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.fixtures.hubs import COMMAND, LIGHT, StartHub
from tests.hub.visitor import Visitor
from tests.standins.slurm_commands import SeenCommands
from tests.test_fuzz import ANYTHING, BRIEFLY_AND_AT_LENGTH, choices, forms, jsons, reports, texts, values

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.timeout(900)]

CONFIG = """
c.GPUSlurmSpawner.slurm_bin_dir = {bin!r}
from jupyterhub_gpuspawner.hub.server import report
report.ReportRate.burst = report.ReportRate.per_minute = 10**9  # the test's own attack is to reach the parser
"""


@pytest.fixture(scope="module")
def commands(slurm_cluster: PrivateSlurm, tmp_path_factory: pytest.TempPathFactory) -> SeenCommands:
    """Slurm's commands, with an sbatch that records the script and refuses it."""
    return SeenCommands(tmp_path_factory.mktemp("commands"), slurm_cluster.bin_dir, refuse=True)


@pytest.fixture(scope="module")
def hub(start_light_hub: StartHub, commands: SeenCommands) -> HubProcess:
    """A hub with a careless profile in which users may set every property of the job as text."""
    started = start_light_hub(
        lines=CONFIG.format(bin=str(commands.bin)),
        profiles=f"{LIGHT}\n- {json.dumps(ANYTHING)}\n- {{display_name: Here, kind: local, command: {COMMAND}}}\n",
    )
    started.spawn("cleo", {"profile": "here"})  # a server without a job
    return started


@pytest.fixture(scope="module")
def visitor(hub: HubProcess) -> Visitor:
    """A visitor signed in as ann."""
    return Visitor(hub, "ann")


def rest_body(hub: HubProcess, visitor: Visitor, options: Any) -> requests.Response:
    """Send user options, or any other JSON, as the body of a start."""
    if isinstance(options, dict):
        options = {"profile": "anything", **options}
    return _post(hub, "/users/ann/server", options)


def _post(hub: HubProcess, path: str, body: Any, *, token: str = "") -> requests.Response:
    return requests.post(
        f"{hub.url}/hub/api{path}",
        data=body if isinstance(body, bytes) else json.dumps(body).encode(),
        headers={"Authorization": f"token {token or hub.token}", "Content-Type": "application/json"},
        timeout=60,
    )


def form(hub: HubProcess, visitor: Visitor, fields: dict[str, list[str]]) -> requests.Response:
    """Submit the form with arbitrary fields."""
    fields = {"profile": ["anything"], **fields}
    data = urlencode({**fields, "_xsrf": [visitor._xsrf]}, doseq=True, errors="replace")
    return visitor.session.post(
        f"{hub.url}/hub/spawn",
        data=data,
        headers={"Content-Type": "application/x-www-form-urlencoded"},
        timeout=60,
        allow_redirects=False,
    )


def link(hub: HubProcess, visitor: Visitor, fields: dict[str, list[str]]) -> requests.Response:
    """Open a link with options in its query, which fills in the form."""
    options = {f"opt-{name}": field_values for name, field_values in {"profile": ["anything"], **fields}.items()}
    query = urlencode(options, doseq=True, errors="replace")
    return visitor.session.get(f"{hub.url}/hub/spawn?{query}", timeout=60, allow_redirects=False)


def server_name(hub: HubProcess, visitor: Visitor, name: str) -> requests.Response:
    """Start a named server with this name."""
    return _post(hub, f"/users/ann/servers/{quote(name, safe='', errors='replace')}", {"profile": "anything"})


def report(hub: HubProcess, visitor: Visitor, body: bytes) -> requests.Response:
    """Send a report with a server's own token."""
    return _post(hub, "/gpuspawner/report", body, token=_token(hub.url))


@cache
def _token(url: str) -> str:
    return str(requests.get(f"{url}/user/cleo/environ", timeout=10).json()["JUPYTERHUB_API_TOKEN"])


def trial(hub: HubProcess, visitor: Visitor, options: Any) -> requests.Response:
    """Request a trial of these options."""
    return _post(hub, "/gpuspawner/trial/ann", {"user_options": options})


def other_address(hub: HubProcess, visitor: Visitor, part: str) -> requests.Response:
    """Request pages and API endpoints that have a name in their path."""
    text = quote(part, safe="", errors="replace")
    first: requests.Response | None = None
    for path in (
        "api/gpuspawner/placement/ann/",
        "api/gpuspawner/profiles/",
        "gpuspawner/log/ann/",
        "spawn-pending/ann/",
    ):
        answer = visitor.session.get(f"{hub.url}/hub/{path}{text}?_xsrf={visitor._xsrf}", timeout=60)
        if first is None or answer.status_code >= 500:
            first = answer
    assert first is not None
    return first


DOORS: dict[str, tuple[Callable[..., requests.Response], st.SearchStrategy[Any], int]] = {
    "a REST body": (rest_body, choices | jsons, 150),
    "the form": (form, forms, 120),
    "a link": (link, forms, 100),
    "the name of a server": (server_name, texts, 40),
    "a report": (report, reports, 100),
    "a trial": (trial, choices | values, 100),
    "an address": (other_address, texts, 40),
}


@pytest.mark.parametrize("part", BRIEFLY_AND_AT_LENGTH)
@pytest.mark.parametrize("name", DOORS)
def test_no_request_is_the_hubs_fault(
    hub: HubProcess, visitor: Visitor, name: str, part: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Requests are accepted or refused, never answered with 500 or above; the user's page works, no server is left."""
    door, strategy, wanted = DOORS[name]
    wanted //= part
    begun = len(hub.log.read_text(errors="replace"))
    count = Counter[int]()

    @settings(max_examples=wanted, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def attack(thrown: Any) -> None:
        try:
            answer = door(hub, visitor, thrown)
        except (ValueError, UnicodeEncodeError):  # cannot be sent by any client
            return
        count[answer.status_code] += 1
        assert answer.status_code < 500, (thrown, answer.url, answer.text[:300])
        assert door is not form or answer.status_code != 200, thrown  # a form that is shown again was refused

    attack()
    with capsys.disabled():
        print(f"\n{count.total()} hostile requests: {name}: {dict(sorted(count.items()))}")
    log = hub.log.read_text(errors="replace")[begun:]

    assert count.total() >= wanted // 2
    assert re.findall("Uncaught exception.*|] 50[0-9] .*", log) == []
    assert visitor.look("/hub/home").status == 200
    assert hub.server("ann") is None
    assert {path.name for path in (hub.folder / "homes").iterdir()} <= {"ann", "ben", "cleo"}


def test_no_script_has_a_line_of_theirs(hub: HubProcess, visitor: Visitor, commands: SeenCommands) -> None:
    """Every submitted script has only known options with one word each.

    All scripts of jobs on one node contain the same program, and so do those of jobs on several.
    """
    for nodes in ("1", "2"):
        for options in ({"slurm-partition": "gpu"}, {"environment-variables-COURSE": "$(id)"}, {"slurm-cpus": "2"}):
            rest_body(hub, visitor, {"slurm-nodes": nodes, **options})
    scripts = commands.texts("sbatch", "script")
    head = re.compile(r"#SBATCH --[a-z-]+(=[^\s\"'\\#;`$]*(#[0-9a-f-]+)?|=\"[^\"\\]*\")?")
    heads, programs = set(), defaultdict[bool, set[tuple[str, ...]]](set)
    for script in scripts:
        before, mark, after = script.partition("# --- gpuspawner: the launcher")
        assert mark
        heads |= {line for line in before.split("\n") if line.startswith("#SBATCH")}
        programs["#SBATCH --nodes=1" not in before].add(
            tuple(
                line
                for line in after.split("\n")
                if not line.lstrip().startswith(("'{", '"$GPUSPAWNER_PYTHON"', "gpuspawner_server="))
            )
        )

    assert len(scripts) >= 6
    assert [line for line in heads if head.fullmatch(line) is None] == []
    assert {several: len(variants) for several, variants in programs.items()} == {False: 1, True: 1}
