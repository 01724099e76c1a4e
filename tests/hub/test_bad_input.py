"""Requests that cannot be fulfilled are refused with one sentence, by form and REST alike, and leave nothing behind."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import jupyterhub.spawner
import pytest

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from jupyterhub_gpuspawner.errors import ConfigError
from tests.fixtures.hubs import COMMAND, IN_THE_END, LIGHT, STAND_IN, StartHub, new_hub
from tests.hub.servers import why_it_ended
from tests.hub.visitor import Visitor

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

IMPOSSIBLE = f"""
- {{display_name: No partition, slug: no-partition, slurm: {{partition: nowhere}}, command: {COMMAND}}}
- {{display_name: Too long, slug: too-long, slurm: {{partition: batch, time: 9-00:00:00}}, command: {COMMAND}}}
- {{display_name: Too many, slug: too-many, slurm: {{partition: gpu, gpus: 99}}, command: {COMMAND}}}
- {{display_name: No type, slug: no-type, slurm: {{partition: gpu, gpus: 1, gpu_type: h900}}, command: {COMMAND}}}
- {{display_name: No GPUs, slug: no-gpus, slurm: {{partition: batch, gpus: 1}}, command: {COMMAND}}}
- {{display_name: No reservation, slug: no-reservation, slurm: {{reservation: tuesday}}, command: {COMMAND}}}
- {{display_name: No feature, slug: no-feature, slurm: {{constraint: quantum}}, command: {COMMAND}}}
- {{display_name: No option, slug: no-option, slurm: {{extra: [--nonsense=1]}}, command: {COMMAND}}}
- {{display_name: Brief, slug: brief, slurm: {{partition: batch}}, start_timeout: 12, command: {COMMAND}}}
- {{display_name: No command, slug: no-command, command: [/no/such/command]}}
- {{display_name: Fails, slug: fails, environment: {{setup: "echo the disk is full >&2; exit 3"}}, command: {COMMAND}}}
- {{display_name: No command here, slug: no-command-here, kind: local, command: [/no/such/command]}}
"""
"""Valid profiles that Slurm, a node or this machine refuses to start."""
OF_THE_ADMIN = f"""
c.GPUProfilesSpawner.profiles = [
    {{
        "display_name": "No sbatch",
        "slug": "no-sbatch",
        "command": [{sys.executable!r}, {str(STAND_IN)!r}],
    }},
    {{"display_name": "No account", "slug": "no-account", "traits": {{"req_homedir": ""}}}},
]


def hook(spawner, make_home=c.Spawner.pre_spawn_hook):
    make_home(spawner)
    if spawner.user_options["profile"] == "no-sbatch":
        spawner.slurm_bin_dir = "/no/such/folder"


c.Spawner.pre_spawn_hook = hook
"""
"""The same, with settings that only the admin may give to a profile."""


@pytest.fixture(scope="module")
def hub(start_light_hub: StartHub) -> HubProcess:
    """A hub with valid profiles and profiles that cannot start."""
    return start_light_hub(lines=f"{OF_THE_ADMIN}\n{IN_THE_END}", profiles=LIGHT + IMPOSSIBLE)


@pytest.fixture
def leaves_nothing(hub: HubProcess, slurm_cluster: PrivateSlurm) -> Iterator[None]:
    """After each test there is no job, no server and no unhandled error, and the next start succeeds."""
    begun = len(hub.log.read_text())
    yield
    assert jobs(slurm_cluster) == ""
    assert hub.server("ann") is None
    log = hub.log.read_text()[begun:]
    unseen = "never awaited|Failed to cleanup|Work in the background failed"
    if hasattr(jupyterhub.spawner, "SpawnException"):  # JupyterHub 5 logs every refusal as unhandled
        unseen += "|Unhandled error"
    assert not re.search(unseen, log), log
    hub.spawn("ann", {"profile": "light"})
    hub.end("ann")


def jobs(slurm: PrivateSlurm, *, seconds: float = 90.0) -> str:
    """Slurm's queue, after jobs that are completing have ended."""
    ends_at = time.monotonic() + seconds
    while (queue := slurm.run("squeue", "-h", "-o", "%i %j %T")) and time.monotonic() < ends_at:
        time.sleep(0.3)
    return queue


def refusal(hub: HubProcess, options: object) -> tuple[int, str]:
    """Status and message of a start requested over REST."""
    hub.api("POST", "/users/ann")
    answer = hub.api("POST", "/users/ann/server", options)
    return answer.status_code, answer.json()["message"] if answer.text else ""


BY_US: dict[str, tuple[Mapping[str, object], Mapping[str, str], str]] = {
    "an unknown profile": (
        {"profile": "nope"},
        {"profile": "nope"},
        "There is no profile 'nope'. You can choose: No sbatch (no-sbatch), No account (no-account), Light (light), ",
    ),
    "a number outside its bounds": (
        {"profile": "light", "cpus": 9},
        {"profile": "light", "profile-option-light--cpus": "9"},
        "is not allowed: it must be a number from 1 to 4.",
    ),
    "a number that is none": (
        {"profile": "light", "cpus": "many"},
        {"profile": "light", "profile-option-light--cpus": "many"},
        "Cores: 'many' is not allowed: it must be a number from 1 to 4.",
    ),
    "an option that is not offered": (
        {"profile": "light", "partition": "gpu"},
        {"profile": "light", "profile-option-light--partition": "gpu"},
        "Light has no option 'partition'. Its options are cpus.",
    ),
}


@pytest.mark.oldest
@pytest.mark.parametrize(("options", "fields", "sentence"), BY_US.values(), ids=BY_US.keys())
def test_a_choice_that_is_not_offered(
    hub: HubProcess,
    slurm_cluster: PrivateSlurm,
    options: Mapping[str, object],
    fields: Mapping[str, str],
    sentence: str,
) -> None:
    """Form and REST answer 400 with the same sentence, which names the field and the allowed values."""
    status, message = refusal(hub, options)

    assert status == 400
    assert sentence in message

    page = Visitor(hub, "ann").start(fields)

    assert page.status == 400
    assert sentence in page.error

    assert hub.server("ann") is None
    assert jobs(slurm_cluster) == ""


REFUSED = "Choose something else, or something smaller; if that does not help, contact your administrator."

BY_OTHERS: dict[str, tuple[str, int, str]] = {
    "a partition that does not exist": (
        "no-partition",
        400,
        f"There is no partition nowhere (available: batch, gpu). {REFUSED}",
    ),
    "more GPUs than a node has": (
        "too-many",
        400,
        f"99 GPUs are more than the 8 of a node. {REFUSED}",
    ),
    "an option that sbatch does not know": (
        "no-option",
        400,
        f"Slurm did not accept this server as the hub asked for it. {REFUSED}",
    ),
    "no sbatch": (
        "no-sbatch",
        503,
        "The hub cannot reach Slurm: it is not set up correctly. Try again in a minute; if it still fails, contact "
        "your administrator. Servers that are already running are not affected.",
    ),
    "no account": (
        "no-account",
        500,
        "You have no account on this cluster. Please contact your administrator.",
    ),
}


def missing(words: str, text: str) -> list[str]:
    """The sentences that do not occur in the page, which shows the error and the advice in separate places."""
    return [sentence for sentence in re.split(r"(?<=\.) (?=[A-Z])", words) if sentence not in text]


@pytest.mark.oldest
@pytest.mark.parametrize(("profile", "status", "sentence"), BY_OTHERS.values(), ids=BY_OTHERS.keys())
@pytest.mark.usefixtures("leaves_nothing")
def test_a_start_that_slurm_or_the_machine_refuses(hub: HubProcess, profile: str, status: int, sentence: str) -> None:
    """The same sentence is shown over REST, on the form and on the page that offers another try, and is kept for it."""
    visitor = Visitor(hub, "ann")

    assert refusal(hub, {"profile": profile}) == (status, sentence)

    page = visitor.start({"profile": profile})
    later = visitor.pending()

    assert (page.status, page.error) == (status, sentence)
    assert (later.status, missing(sentence, later.text)) == (status, [])
    assert sentence.startswith(f"{why_it_ended(hub, 'ann')} ")


@pytest.mark.usefixtures("leaves_nothing")
def test_a_job_that_can_never_start_is_not_waited_for(hub: HubProcess) -> None:
    """A partition's time limit may show only in the queue: the start fails within seconds, and the job is cancelled."""
    status, message = refusal(hub, {"profile": "too-long"})

    assert (status, message) == (
        400,
        "9 days is more than the limit of 24 h. Choose a shorter time.",
    )


def end_of_start(hub: HubProcess, profile: str) -> tuple[int, str]:
    """Start from the form and wait until the start has failed; return the page's status and text."""
    visitor = Visitor(hub, "ann")
    page = visitor.start({"profile": profile})
    if page.status == 200:  # the hub answered before the server ended
        hub.wait("ann", ready=False)
        page = visitor.pending()
    return page.status, page.error or page.text


DYING = {
    "a command that is not there": (
        "no-command",
        "There is no command /no/such/command on ",
        "gpuspawner: /no/such/command: no such command",
    ),
    "a set-up that fails": (
        "fails",
        'The profile\'s setup ended the job before your server was started. It wrote: "the disk is full"',
        "the disk is full",
    ),
}


@pytest.mark.oldest
@pytest.mark.parametrize(("profile", "sentence", "detail"), DYING.values(), ids=DYING.keys())
@pytest.mark.usefixtures("leaves_nothing")
def test_a_server_that_ends_before_it_is_ready(hub: HubProcess, profile: str, sentence: str, detail: str) -> None:
    """Soon after the server ends, the message says how it ended, and has the log's path and last lines."""
    status, message = refusal(hub, {"profile": profile})

    assert status == 500
    assert sentence in message
    assert detail in message

    status, text = end_of_start(hub, profile)

    assert status == 500
    assert sentence in text
    assert detail in text


@pytest.mark.parametrize("line", ["exec sh", "exit 0"])
def test_a_login_profile_that_ends_the_shell_is_named(hub: HubProcess, line: str) -> None:
    """The script is never read, so the log is empty and the page says where to look; without the line, it starts."""
    home = hub.folder / "homes" / "ann"
    home.mkdir(parents=True, exist_ok=True)
    (home / ".bash_profile").write_text(f"{line}\n")
    try:
        status, text = end_of_start(hub, "light")
    finally:
        (home / ".bash_profile").write_text("return 1\n")  # ends only the reading of that file

    assert (status, missing("look for exec or exit in ~/.bash_profile", text)) == (500, [])

    hub.spawn("ann", {"profile": "light"})
    hub.end("ann")


def failed_start(hub: HubProcess, options: object) -> tuple[int, str]:
    """The page's status and text after a failed start over REST, even if the hub answered before the start failed."""
    visitor = Visitor(hub, "ann")  # signing in later would open the form, which clears the failure
    status, message = refusal(hub, options)
    hub.wait("ann", ready=False)
    page = visitor.pending()
    assert status in (page.status, 201, 202)
    assert missing(message, page.text) == []
    return page.status, page.text


@pytest.mark.usefixtures("leaves_nothing")
def test_slurmctld_is_down(hub: HubProcess, slurm_cluster: PrivateSlurm) -> None:
    """The answer is 503 with a sentence for users, the log says more; a running server is kept."""
    hub.spawn("ben", {"profile": "light"})
    slurm_cluster.stop_controller()
    try:
        status, text = failed_start(hub, {"profile": "brief"})
        server = hub.server("ben")
    finally:
        slurm_cluster.start_controller()

    assert status == 503
    assert missing("Slurm is not responding at the moment. Try again in a minute", text) == []
    assert "slurmctld" not in text
    assert "slurmctld cannot be reached. Check `scontrol ping`" in hub.log.read_text()
    assert server is not None
    assert server["ready"]

    hub.end("ben")


@pytest.mark.nightly
def test_slurms_configuration_is_missing(start_light_hub: StartHub) -> None:
    """The answer is 503, and the log says where to look; Slurm's commands themselves would retry for a minute."""
    lost = start_light_hub(lines="c.GPUSlurmSpawner.start_timeout = 14", SLURM_CONF="/no/such/slurm.conf")
    status, text = failed_start(lost, {"profile": "light"})

    assert status == 503
    hint = "Install slurm.conf at its default path, or set SLURM_CONF for the hub"
    assert missing("Slurm is not responding at the moment.", text) == []
    assert f" did not respond within 12 s: Slurm's configuration was not found. {hint}" in lost.log.read_text()

    lost.stop()


# --- profiles --------------------------------------------------------------------------------------


def test_a_profile_file_with_a_mistake(hub: HubProcess) -> None:
    """The other profiles remain available; error and repair are logged once each; admins see the error on the form."""
    begun = len(hub.log.read_text())
    bad = hub.folder / "profiles" / "zz.yaml"
    visitor = Visitor(hub, "ann")

    def logged() -> list[str]:
        return re.findall(r"] (Error (?:corrected )?in the profiles of .*)", hub.log.read_text()[begun:])

    bad.write_text("- display_name: New\n  slurm:\n    memory: lots\n")
    offered = [slugs_of(visitor) for _ in range(3)]
    fault = (
        "zz.yaml:3: slurm.memory: is not a valid amount of memory: use a number of MiB, "
        "or a number with K, M, G or T, such as 32G"
    )
    fault_shown = {name: fault in Visitor(hub, name).look("/hub/spawn").text for name in ("ann", "admin")}

    assert all("light" in slugs and "new" not in slugs for slugs in offered)
    assert fault_shown == {"ann": False, "admin": True}
    assert logged() == [f"Error in the profiles of {bad.parent}: {fault}"]

    bad.write_text("- display_name: New\n  slurm:\n    memory: 32G\n")

    assert "new" in slugs_of(visitor)
    assert logged()[1:] == [f"Error corrected in the profiles of {bad.parent}: {fault}"]

    bad.unlink()


def slugs_of(visitor: Visitor) -> list[str]:
    """The profiles on the form."""
    return [str(radio["value"]) for radio in visitor.look("/hub/spawn").soup.select("input[name=profile][type=radio]")]


def test_a_hub_refuses_to_start_with_a_broken_configuration(tmp_path: Path) -> None:
    """The hub logs one critical line with the path to the field, without a traceback, and exits.

    The sentences of other faults are those of ``gpuspawner check``.
    """
    profiles = [{"display_name": "A"}, {"display_name": "B", "slurm": {"memory": "lots"}}]
    sentence = "c.GPUProfilesSpawner.profiles[1].slurm.memory: 'lots' is not a valid amount of memory: "
    config = tmp_path / "jupyterhub_config.py"
    config.write_text(
        f"c.JupyterHub.spawner_class = 'gpu-profiles'\nc.JupyterHub.db_url = 'sqlite://'\n"
        f"c.JupyterHub.port = {unused_port()}\nc.Authenticator.allow_all = True\n"
        f"c.GPUProfilesSpawner.profiles = {profiles!r}\n"
    )
    ended = subprocess.run(
        [sys.executable, "-m", "jupyterhub", "-f", str(config)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    critical = re.findall(r"^\[C .*?] (.*)", ended.stderr, re.MULTILINE)

    assert ended.returncode == 1
    assert [line.startswith(f"Bad config encountered during initialization: {sentence}") for line in critical] == [True]
    assert "Traceback" not in ended.stderr


# --- the hub itself --------------------------------------------------------------------------------


def unused_port() -> int:
    """A free port on 127.0.0.1."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_the_hub_does_not_start_where_its_port_is_taken(slurm_cluster: PrivateSlurm, tmp_path: Path) -> None:
    """The error names the port, and nothing is started."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        hub = new_hub(slurm_cluster, tmp_path / "hub", port=other.getsockname()[1])
        with pytest.raises(ConfigError) as refused:
            hub.start()

    assert str(refused.value) == (
        f"Port {hub.port} of 127.0.0.1 is not available: Address already in use. "
        "Choose another one with --port, or 0 for a free one."
    )
    assert hub.process is None


def test_the_hub_does_not_start_without_its_proxy(slurm_cluster: PrivateSlurm, tmp_path: Path) -> None:
    """The error names the missing program and says how to install it."""
    hub = new_hub(slurm_cluster, tmp_path / "hub", environment={"PATH": str(tmp_path)})
    with pytest.raises(ConfigError) as refused:
        hub.start()

    assert str(refused.value) == (
        "configurable-http-proxy is not on the PATH. Install it: npm install -g configurable-http-proxy"
    )
    assert hub.process is None
