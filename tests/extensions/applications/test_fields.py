"""Applications in the place of JupyterLab: what a profile may say, and the command that follows from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import jupyterhub_gpuspawner
from jupyterhub_gpuspawner.batch.job import server_command
from jupyterhub_gpuspawner.batch.shell import in_container
from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extensions.applications.fields import APP, KINDS, OPEN_PORT, SOCKET_FOLDER, Application
from jupyterhub_gpuspawner.hub.spawners.server import server_of
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.resolve import JobRequest, resolve
from jupyterhub_gpuspawner.profiles.sections import ServerCommand
from tests.hub.spawners.test_profile_settings import request as request_of
from tests.hub.spawners.test_profile_settings import spawner_of
from tests.profiles.test_resolve import NOW

LAB = ("/opt/jupyterhub/bin/jupyterhub-singleuser",)
ARGS = ("--debug",)


def profile(app: object, **fields: object) -> Profile:
    (parsed,) = parse_profiles([{"display_name": "One", "app": app, **fields}])
    return parsed


def request(app: object, **fields: object) -> JobRequest:
    return resolve((profile(app, **fields),), {}, username="ada", groups=(), server_name="", now=NOW)


@pytest.mark.parametrize(
    ("app", "command"),
    [
        (
            "code-server",
            "gpuspawner-gate {lab} --ready /healthz -- code-server --auth none --disable-telemetry "
            "--disable-update-check --session-socket {socket_folder}/session.sock --socket {socket}",
        ),
        (
            {"kind": "streamlit", "args": "--app-dir /course serve:app"},
            "gpuspawner-gate {lab} --ready /_stcore/health -- uvicorn --app-dir /course serve:app --uds {socket}",
        ),
        (
            {"kind": "panel", "command": ["/opt/panel", "serve"], "args": ["/course/app.py"]},
            "gpuspawner-gate {lab} --ready / --absolute-url -- /opt/panel serve /course/app.py --unix-socket {socket} "
            "--prefix {base_url} --allow-websocket-origin *",
        ),
        (
            {"kind": "dash", "args": "--chdir /course app:server"},
            "gpuspawner-gate {lab} --ready / -- gunicorn --chdir /course app:server --bind unix:{socket}",
        ),
        (
            {"command": "rserver", "args": "--server-daemonize=0", "socket": "--www-socket={socket}"},
            "gpuspawner-gate {lab} --ready / -- rserver --server-daemonize=0 --www-socket={socket}",
        ),
        ({"command": "own", "args": "--port {port}", "auth": "own", "ready": "/health"}, "own --port {port}"),
    ],
)
def test_the_command_is_the_applications_alone(app: object, command: str) -> None:
    """JupyterHub's arguments are JupyterLab's; whoever has no sign-in runs behind the hub's."""
    launched = server_command(request(app), LAB, ARGS)
    behind = command.startswith("gpuspawner-gate")

    assert launched.all_words == tuple(command.replace("{lab}", LAB[0]).split())
    assert (launched.shared, launched.beside) == (((SOCKET_FOLDER,), LAB[0]) if behind else ((), ""))


def test_without_an_application_nothing_changes() -> None:
    """The hub's command, or the profile's, with JupyterHub's arguments; also where nothing is known of the request."""
    assert server_command(None, LAB, ARGS) == ServerCommand((*LAB, *ARGS))
    assert server_command(request(None), LAB, ARGS) == ServerCommand((*LAB, *ARGS))
    assert server_command(request(None, command="own --fast"), LAB, ARGS) == ServerCommand(("own", "--fast", *ARGS))


@pytest.mark.parametrize(
    ("app", "fault"),
    [
        ({"command": "python3 -m http.server"}, f"profiles[0].app: {OPEN_PORT}"),
        ({"command": "tensorboard --logdir runs --port {port}"}, f"profiles[0].app: {OPEN_PORT}"),
        (
            {"command": "tensorboard --port {port}", "socket": "--socket {socket}"},
            f"profiles[0].app: {{port}} is for auth: own; {OPEN_PORT}",
        ),
        (
            {"kind": "streamlit", "socket": "--server.port=8501"},
            "profiles[0].app.socket: must contain {socket}, in the place of the unix socket's path",
        ),
        (
            {"kind": "code-server", "auth": "own"},
            "profiles[0].app: socket is for auth: hub; with auth: own the application listens on the server's port",
        ),
        (
            {"command": "own", "auth": "own", "absolute_url": True},
            "profiles[0].app: absolute_url is for auth: hub; with auth: own requests are not changed",
        ),
        ({"auth": "own"}, "profiles[0].app: command is missing: name the program, or a known kind"),
        (
            {"command": "gpuspawner-gate x", "auth": "own"},
            "profiles[0].app.command: must begin with the application's program",
        ),
        ({"command": "'own", "auth": "own"}, 'profiles[0].app.command: "\'own" has an unbalanced quote'),
        (
            {"command": "own", "auth": "own", "ready": "health"},
            "profiles[0].app.ready: 'health' must be a path of the application that begins with '/', without blanks "
            "and braces",
        ),
        ("rstudio", "profiles[0].app.kind: 'rstudio' must be 'code-server', 'dash', 'panel' or 'streamlit'"),
        ({"kind": "panel", "port": 1}, "profiles[0].app.port: no such field; fields are absolute_url, args,"),
    ],
)
def test_what_an_application_may_not_be_is_refused_by_its_field(app: object, fault: str) -> None:
    """First of all a TCP port without a sign-in, with the reason."""
    with pytest.raises(ConfigError) as refused:
        profile(app)

    assert str(refused.value).startswith(fault)


def test_what_is_known_of_applications_is_valid() -> None:
    """Each kind stands for a complete application, with an icon that the pages can draw."""
    icons = (
        Path(jupyterhub_gpuspawner.__file__).parent / "hub" / "web" / "static" / "components" / "icon.css"
    ).read_text()
    for kind in KINDS:
        app = Application.model_validate(kind)
        assert (app.kind, app.auth, f'[data-icon="{app.icon}"]' in icons) == (kind, "hub", True)


def test_an_application_shows_its_name() -> None:
    """The name is the kind's, the profile's, or the program's."""
    assert APP.of(profile("code-server")) == Application(kind="code-server", **KINDS["code-server"])
    assert Application(command=("/opt/bin/own",), auth="own").title == "own"
    assert Application(name="Mine", command=("/opt/bin/own",), auth="own").title == "Mine"


def test_the_sign_in_before_an_application_is_outside_its_container() -> None:
    """The image needs the application alone; its socket's folder is bound."""
    in_image = request("code-server", environment={"container": "/a.sif"})
    server = in_container(in_image.environment, server_command(in_image, LAB, ARGS), gpu=False)

    assert server.outside == ("gpuspawner-gate", LAB[0], "--ready", "/healthz", "--")
    assert server.words[:7] == ("apptainer", "exec", "--bind", SOCKET_FOLDER, "/a.sif", "code-server", "--auth")


def test_an_application_is_a_job_with_a_command_of_its_own() -> None:
    """Neither a server of another kind, nor one whose profile or choice names a command."""
    options = {"how": {"choices": {"own": {"command": ["own"]}}}}
    for fields in ({"command": "own"}, {"profile_options": options}):
        with pytest.raises(ConfigError, match="app and command cannot be used together"):
            profile("code-server", **fields)
    with pytest.raises(ConfigError, match="app is for kind: slurm; servers of the other kinds take command"):
        profile("code-server", kind="local")


def test_the_hub_asks_at_the_path_of_an_application_that_signs_in_itself() -> None:
    """What stands behind the hub's sign-in is asked on its node, before its port is open."""
    assert Application(command=("own",), auth="own", ready="/health").readiness == "health"
    assert Application(command=("own",), auth="own").readiness == "api"
    assert Application.model_validate("code-server").readiness == "api"


@pytest.mark.parametrize(
    ("fields", "app"),
    [({}, ""), ({"app": "code-server"}, "VS Code"), ({"app": {"kind": "streamlit", "name": "Maps"}}, "Maps")],
    ids=["Jupyter", "a known one", "one with a name"],
)
def test_a_restarted_hub_knows_the_application(fields: dict[str, Any], app: str) -> None:
    """By its name, from the stored state: the profile may have changed since."""
    before, after = spawner_of(), spawner_of()
    before.prepare(request_of(**fields))
    after.load_state(json.loads(json.dumps({**before.get_state(), "job_id": "7"})))

    assert after.chosen == before.chosen
    assert (server_of(before, with_start=False).app, server_of(after, with_start=False).app) == (app, app)
