"""The extension of "Write an extension" in a hub, beside one that fails wherever it can."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.demo.hub import HubProcess
from tests.fixtures.hubs import NO_SPAWN_WAIT, StartHub
from tests.hub.visitor import Visitor

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

RULES = ["No cats.", "No mining."]
EXAMPLE = Path(__file__).parents[2] / "docs" / "howto" / "house_rules"
FAULTY = {
    "__init__.py": """
from jupyterhub_gpuspawner.extension import Command, Extension
EXTENSION = Extension(
    "faulty", "Fails.", hub=".hub:HUB", checks=".checks", commands={"fail": Command(".lost:command", "Fails.")},
    spawner_settings=".lost:Settings", profile_fields=".lost:FIELDS",
)
""",
    "checks.py": """
async def check_nothing(context):
    raise LookupError("no check")
    yield
""",
    "hub.py": """
from jupyterhub.handlers.base import BaseHandler
from jupyterhub_gpuspawner.hub.extension import HubExtension, Link
from jupyterhub_gpuspawner.hub.extension import WithServer

def fails(*_):
    raise LookupError("no use")

def exits(*_):
    raise SystemExit("no use")

class Page(BaseHandler):
    get = fails

class ExitingPage(BaseHandler):
    get = exits

class Kept(WithServer):
    to_state = load = forget = refresh = fails

HUB = HubExtension(
    begin=(fails, exits),
    pages=((r"/gpuspawner/faulty", Page), (r"/gpuspawner/exits", ExitingPage)),
    links=(Link("Faulty", "faulty", fails),), notices=fails,
    parts_of=fails, with_server=Kept,
)
""",
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH with both extensions, as pip installs them."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(EXAMPLE, folder / "house_rules")
    (folder / "faulty").mkdir()
    for name, text in FAULTY.items():
        (folder / "faulty" / name).write_text(text)
    for name in ("house_rules", "faulty"):
        about = folder / f"{name}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(f"[jupyterhub_gpuspawner.extensions]\n{name} = {name}\n")
    return folder


@pytest.fixture(scope="module")
def hub(start_light_hub: StartHub, installed: Path) -> HubProcess:
    """A hub in whose environment both are installed."""
    rules = f"c.HouseRules.rules = {RULES!r}"
    return start_light_hub(f"{NO_SPAWN_WAIT}\n{rules}", PYTHONPATH=str(installed))


def test_the_example_adds_a_line_to_the_card_a_page_and_a_link_and_a_faulty_one_nothing(hub: HubProcess) -> None:
    """The server starts, is shown, and stops; the log names each thing that failed."""
    ann = Visitor(hub, "ann")
    hub.spawn("ann", {"profile": "light"})
    pages = ("home", "gpuspawner/rules", "gpuspawner/faulty", "gpuspawner/exits")
    home, rules, faulty, exits = (ann.look(f"/hub/{path}") for path in pages)
    hub.restart()
    again = ann.look("/hub/home")
    hub.end("ann")
    log = hub.log.read_text()
    failed = Counter(re.findall(r"The extension faulty is left out here, since its (\w+) failed", log))

    assert [
        "Rules" in [link.get_text(strip=True) for link in page.soup.select("#thenavbar a")] for page in (home, again)
    ] == [True, True]
    assert "The rules of the house hold for this server." in home.text
    assert "The rules of the house hold for this server." in again.text
    assert [item.get_text() for item in rules.soup.select("main li, .container li")] == RULES
    assert (rules.status, faulty.status, exits.status) == (200, 500, 500)
    assert set(failed) >= {"fails", "exits", "links", "notices", "parts_of", "to_state"}
    # once in each of the two hubs, however often it is called
    assert set(failed.values()) <= {1, 2}
    for path in pages[2:]:
        assert f"A page of the extension faulty failed: /hub/{path}" in log
    assert "The extension faulty is left out: .lost:Settings cannot be loaded: ModuleNotFoundError" in log


def test_the_commands_name_what_fails_and_run_the_example(hub: HubProcess, installed: Path) -> None:
    """``gpuspawner extensions`` lists what the example adds, and ``check`` makes its check."""
    environment = {**os.environ, **hub.environment}
    program = str(Path(sys.executable).parent / "gpuspawner")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([program, *words], capture_output=True, text=True, env=environment, check=False)

    listed = run("extensions", "--json")
    hub.config.write_text(hub.config.read_text().replace(repr(RULES), "[]"))
    checked = run("check", "-f", str(hub.write_configuration()), "--json")
    documents = {document["name"]: document for document in map(json.loads, listed.stdout.splitlines())}
    findings = json.loads(checked.stdout)["findings"]

    assert documents["house_rules"]["adds"] == {
        "checks": ["check_rules"],
        "settings": ["c.HouseRules.rules"],
        "pages": ["/gpuspawner/rules"],
        "links": ["Rules"],
        "hooks": ["parts_of"],
    }
    assert listed.stderr.splitlines()[-1].startswith("The extension faulty cannot be loaded: ModuleNotFoundError")
    assert [finding["where"] for finding in findings if finding["code"] == "house-rules"] == ["c.HouseRules.rules"]
    assert [finding["text"] for finding in findings if "no check" in finding["text"]] == [
        "LookupError in faulty.checks (line 3): no check"
    ]
    assert run("fail").stderr == "gpuspawner: The command fail of the extension faulty: No module named 'faulty.lost'\n"
