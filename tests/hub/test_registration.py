"""How our spawner classes set up the hub that is configured to use them."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import requests
from jinja2 import Environment
from jupyter_events.logger import EventLogger
from jupyterhub.app import JupyterHub
from jupyterhub.handlers import default_handlers
from traitlets.config import Config

from jupyterhub_gpuspawner.extension import Extension, Extensions
from jupyterhub_gpuspawner.hub import routes
from jupyterhub_gpuspawner.hub.registration import UPKEEP, extensions_of_hub, register_templates
from jupyterhub_gpuspawner.hub.site.state import set_up
from jupyterhub_gpuspawner.hub.site.templates import TEMPLATES
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.server import site_of_hub
from tests.fixtures.databases import hub_session
from tests.fixtures.hubs import StartHub

NEEDY = Extensions((Extension("early", "Early."), Extension("late", "Late.", needs=("early",))))
OURS = [path for path, *_ in routes.API]
PAGES = sorted(
    {path for path, *_ in routes.PAGES} | {path for path, handler, *_ in default_handlers if handler in routes.REPLACED}
)
CONFIGURATIONS = {
    "our entry point": ("c.JupyterHub.spawner_class = 'gpu-profiles'", OURS, True),
    "our class by its name": ("c.JupyterHub.spawner_class = 'jupyterhub_gpuspawner.GPUSlurmSpawner'", OURS, True),
    "a class of the admin's, of ours": (
        """
from jupyterhub_gpuspawner import GPUProfilesSpawner
class Own(GPUProfilesSpawner):
    pass
c.JupyterHub.spawner_class = Own
""",
        OURS,
        True,
    ),
    "a class of ours, imported after batchspawner": (
        """
import batchspawner
from jupyterhub_gpuspawner import GPUSlurmSpawner
c.JupyterHub.spawner_class = GPUSlurmSpawner
""",
        OURS,
        True,
    ),
    "batchspawner imported before": ("import batchspawner; c.JupyterHub.spawner_class = 'gpu-profiles'", OURS, True),
    "batchspawner imported after": (
        "c.JupyterHub.spawner_class = 'gpu-profiles'; import batchspawner, batchspawner.api",
        OURS,
        True,
    ),
    "batchspawner alone, ours installed": (
        "import batchspawner; c.JupyterHub.spawner_class = 'batchspawner.SlurmSpawner'",
        ["/api/batchspawner"],
        False,
    ),
}


PROGRAM = """
import json, os, sys
from jupyter_events.logger import EventLogger
from jupyterhub.app import JupyterHub
from jupyterhub.apihandlers import default_handlers
from jupyterhub.handlers import default_handlers as pages
for file in sys.argv[1:]:
    pid = os.fork()
    if pid == 0:
        app = JupyterHub.instance()
        app.load_config_file(file)
        paths = [path for path, _ in default_handlers if 'spawner' in path]
        taken = sorted({path for path, handler, *_ in pages if handler.__module__.startswith('jupyterhub_gpuspawner')})
        print(json.dumps([paths, taken, "gpuspawner" in app.tornado_settings]), flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
"""
"""What a hub with each of these configurations has; each is read by a process that has imported JupyterHub alone."""


@pytest.mark.oldest
def test_a_hub_changes_only_if_it_uses_a_spawner_of_ours(tmp_path: Path) -> None:
    """A hub with our spawner gets our handlers and pages but no /api/batchspawner; others are unchanged."""
    for number, (lines, _, _) in enumerate(CONFIGURATIONS.values()):
        (tmp_path / f"{number}.py").write_text(lines)
    files = [str(tmp_path / f"{number}.py") for number in range(len(CONFIGURATIONS))]
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, *files]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in answer.stdout.splitlines() if line.startswith("[[")]

    assert dict(zip(CONFIGURATIONS, answers, strict=True)) == {
        name: [handlers, PAGES if ours else [], ours] for name, (_, handlers, ours) in CONFIGURATIONS.items()
    }


@pytest.mark.nightly
@pytest.mark.slurm
@pytest.mark.hub
def test_batchspawners_address_is_gone_from_a_real_hub(start_light_hub: StartHub) -> None:
    """The old URL answers 404 even to the server's own token, which batchspawner would accept; our URL exists."""
    hub = start_light_hub(lines="import batchspawner, batchspawner.api")
    hub.spawn("ann", {"profile": "light"})
    token = requests.get(f"{hub.url}/user/ann/environ", timeout=10).json()["JUPYTERHUB_API_TOKEN"]
    model = hub.server("ann")

    assert hub.api("POST", "/batchspawner", {"port": 22, "cmd": ["id"]}, token=token).status_code == 404
    assert hub.api("POST", "/batchspawner", {"port": 22}).status_code == 404
    assert hub.api("POST", "/gpuspawner/report", {"port": 22}, token=token).status_code == 400
    assert hub.server("ann") == model

    hub.stop()


UNREGISTERED = {
    "a child of wrapspawner's own spawner": """
c.JupyterHub.spawner_class = "wrapspawner.ProfilesSpawner"
c.ProfilesSpawner.profiles = [("One", "one", "jupyterhub_gpuspawner.GPUSlurmSpawner", {})]
""",
    "by the module that defines it": """
c.JupyterHub.spawner_class = "jupyterhub_gpuspawner.hub.spawners.slurm.GPUSlurmSpawner"
""",
}


@pytest.mark.slurm
@pytest.mark.hub
@pytest.mark.parametrize("lines", UNREGISTERED.values(), ids=UNREGISTERED.keys())
def test_a_hub_that_comes_to_our_spawner_too_late_starts_no_server(start_light_hub: StartHub, lines: str) -> None:
    """Without the URL for reports the start would only time out."""
    hub = start_light_hub(lines=lines)
    hub.api("POST", "/users/ann")
    answer = hub.api("POST", "/users/ann/server", {"profile": "one"} if "wrapspawner" in lines else {})

    assert (answer.status_code, answer.json()["message"]) == (
        500,
        "The hub cannot start this server: it is not set up correctly. Please contact your administrator.",
    )
    assert (
        "c.JupyterHub.spawner_class: this hub was set up without jupyterhub-gpuspawner, so no server can report to it. "
        'Set it to "gpu-profiles", or to a subclass of a spawner imported from jupyterhub_gpuspawner.'
    ) in hub.log.read_text()

    hub.stop()


def test_our_templates_come_after_the_admins_and_before_the_hubs(tmp_path: Path) -> None:
    """Whenever the admin's folder is set; our variables are added to the admin's."""
    app = JupyterHub()
    register_templates(app)
    app.template_paths = [str(tmp_path)]
    (tmp_path / "token.html").write_text("the admin's")
    environment = Environment(autoescape=True)
    app.tornado_settings = {"jinja2_env": environment, "template_vars": {"announcement": "Back at ten."}}
    found = {name: environment.get_template(name).filename for name in ("token.html", "home.html", "admin.html")}

    assert found == {
        "token.html": str(tmp_path / "token.html"),
        "home.html": str(TEMPLATES / "home.html"),
        "admin.html": f"{app._template_paths_default()[0]}/admin.html",
    }
    assert sorted(app.tornado_settings["template_vars"]) == ["announcement", "gpuspawner", "gpuspawner_reader"]


def test_what_a_named_extension_needs_is_there_and_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A new version's extension may need more than the old one's: the hub starts all the same."""
    monkeypatch.setattr("jupyterhub_gpuspawner.hub.extensions.installed", lambda: NEEDY)
    config = Config(GPUProfilesSpawner={"extensions": ["late"]})
    app = JupyterHub(config=config, spawner_class=GPUProfilesSpawner, db_url=f"sqlite:///{tmp_path}/hub.sqlite")
    app.log = logging.getLogger("a hub")
    set_up(app)

    assert [extensions_of_hub(app).extensions.names for _ in range(2)] == [("early", "late")] * 2
    assert [record.getMessage() for record in caplog.records] == [
        "Extensions that others need are added to c.GPUProfilesSpawner.extensions: early"
    ]


async def begun(folder: Path, extensions: Sequence[str]) -> set[str]:
    """The names of what goes on in a hub with these extensions; it is cancelled."""
    with hub_session() as session:
        config = Config(GPUProfilesSpawner={"courses_dir": str(folder), "extensions": list(extensions)})
        app = JupyterHub(config=config, spawner_class=GPUProfilesSpawner, db_url=f"sqlite:///{folder}/hub.sqlite")
        app.db, app.eventlog = session, EventLogger()
        set_up(app)
        site_of_hub(app)
        before = asyncio.all_tasks()
        for begin in UPKEEP:
            begin(app)
        extensions_of_hub(app).begin(app)
        loops = asyncio.all_tasks() - before
        for loop in loops:
            loop.cancel()
    return {loop.get_name() for loop in loops}


async def test_all_that_goes_on_as_long_as_the_hub_runs(tmp_path: Path) -> None:
    """Each is a loop of its own, which no fault ends."""
    assert await begun(tmp_path, ()) == {
        "Going on with starts that were kept",
        "The check for servers that are not polled",
        "The deletion of old records of starts",
        "The search for clusters that may have jobs without a server",
    }
