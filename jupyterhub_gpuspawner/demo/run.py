"""``gpuspawner demo``: a private Slurm and a hub, without anything left behind."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from string import Template

import click

from jupyterhub_gpuspawner.demo.account import private_folder, servers_account, works
from jupyterhub_gpuspawner.demo.hub import SINGLEUSER, HubProcess
from jupyterhub_gpuspawner.demo.sign_in import LINK_SECONDS, PEOPLE
from jupyterhub_gpuspawner.demo.slurm_cluster import DEMO_CLUSTER, PrivateSlurm, missing
from jupyterhub_gpuspawner.demo.story import IN_COURSE, ON_CLUSTER, SLUG, Start, begin_story
from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.profiles.files import ProfileFolder, Rights

COURSE, MONITOR_PROFILE = (
    Template(Path(__file__).with_name(name).read_text()) for name in ("course.yaml", "monitor.yaml")
)


def course_file(now: datetime, *, with_slurm: bool) -> str:
    """The text of the course's file: a session from the last full hour for three hours, or until midnight."""
    last = now.hour + 3
    return COURSE.substitute(
        profile="{slug: mig, cpus: 2, memory: 8G}" if with_slurm else "local",
        today=now.date().isoformat(),
        begin=f"{now.hour}:00",
        end=f"{last}:00" if last < 24 else "23:59",
        tomorrow=(now + timedelta(days=1)).date().isoformat(),
    )


MONITOR = Path(__file__).with_name("monitor.py")


def monitor_profile(topology_pattern: str) -> str | None:
    """The profile file of the demo's web application; None without jupyter-server-proxy, which it needs."""
    if shutil.which("jupyter-standaloneproxy", path=str(Path(sys.executable).parent)) is None:
        return None
    return MONITOR_PROFILE.substitute(command=json.dumps([sys.executable, str(MONITOR), topology_pattern]))


PROFILES = Path(__file__).parent / "profiles"
RIGHTS = Rights(frozenset({"local", "command", "setup"}))
"""What the demo's profiles may say, as in its configuration."""


USAGE_SECONDS = 6
"""Seconds between two samples of use: it is shown within a minute, and the profile that is idle soon warns in time."""


def say(text: str) -> None:
    """Print a message on standard error; standard output is used for JSON."""
    print(text, file=sys.stderr, flush=True)


@click.command()
@click.option("--once", is_flag=True, help="Start a server of each profile, print its placement as JSON, and exit.")
@click.option("--port", default=8000, show_default=True, help="Port on 127.0.0.1; 0 picks a free one.")
@click.option("--empty", is_flag=True, help="Start no servers of the demo's people.")
@click.option(
    "--folder", type=click.Path(path_type=Path, file_okay=False), help="Folder in which to keep the demo's files."
)
def demo(*, once: bool, port: int, empty: bool, folder: Path | None) -> None:
    """Run a hub with a private Slurm of simulated GPU nodes, until Ctrl-C."""
    if not SINGLEUSER.exists():
        raise ConfigError(
            f"{SINGLEUSER} is missing.", hint="Install JupyterLab in JupyterHub's environment: pip install jupyterlab"
        )
    with ExitStack() as stack:
        account = servers_account()
        own_folder = private_folder(folder, account)
        if folder is None:
            stack.callback(shutil.rmtree, own_folder, ignore_errors=True)
        if account:
            _try_account(account, own_folder)
        hub = demo_hub(stack, own_folder, account, port=0 if once else port)
        stack.callback(hub.end_servers)
        say("Starting the hub ...")
        stack.enter_context(hub)
        if once:
            for placement in start_profiles(hub, ProfileFolder(own_folder / "profiles", RIGHTS)):
                print(json.dumps(placement), flush=True)
            return
        starts = () if empty else (*IN_COURSE, *(ON_CLUSTER if hub.environment else ()))
        say(_instructions(hub, starts))
        if starts:
            threading.Thread(target=begin_story, args=(hub, starts, say), daemon=True).start()
        _wait_for_signal(hub)
        say("\nShutting everything down ...")


def demo_hub(stack: ExitStack, folder: Path, account: str, *, port: int) -> HubProcess:
    """The demo's hub, not yet started, with a running private Slurm if Slurm is installed."""
    profiles = folder / "profiles"
    profiles.mkdir(mode=0o700, exist_ok=True)
    shutil.copy(PROFILES / "hub.yaml", profiles)
    reason = missing()
    environment: dict[str, str] = {}
    if reason is None:
        shutil.copy(PROFILES / "cluster.yaml", profiles)
        say("Starting a private Slurm with simulated nodes ...")
        slurm = stack.enter_context(PrivateSlurm(replace(DEMO_CLUSTER, limits_memory=True), folder / "slurm"))
        monitor = monitor_profile(slurm.topology_pattern)
        if monitor is not None and works(account, sys.executable, "-c", "import jupyterhub_gpuspawner.demo.monitor"):
            (profiles / "monitor.yaml").write_text(monitor)
        environment = {
            **slurm.environment,
            "GPUSPAWNER_DEMO_SLURM": slurm.bin_dir,
            "GPUSPAWNER_DEMO_TOPOLOGY": slurm.topology_pattern,
            "GPUSPAWNER_DEMO_TMP": str(slurm.layout.temporary),
            "GPUSPAWNER_DEMO_USAGE_INTERVAL": str(USAGE_SECONDS),
        }
    else:
        say(f"Slurm is not available ({reason}); offering only the profile that runs on this machine.")
    courses = folder / "courses"
    courses.mkdir(mode=0o700, exist_ok=True)
    (courses / f"{SLUG}.yaml").write_text(course_file(datetime.now().astimezone(), with_slurm=reason is None))
    return HubProcess(
        folder,
        environment=environment,
        port=port,
        people=PEOPLE,
        link_key=secrets.token_urlsafe(16),
        account=account,
    )


def _try_account(account: str, folder: Path) -> None:
    """Raise ConfigError if servers could not run as this account."""
    hint = f"The demo's servers run as {account} if root starts it. Start it as an ordinary user"
    if not works(account, "test", "-x", str(folder)):
        raise ConfigError(f"{account} cannot enter {folder}.", hint=f"{hint}, or with another --folder.")
    if not works(account, str(SINGLEUSER), "--version"):
        raise ConfigError(
            f"{account} cannot run {SINGLEUSER}.", hint=f"{hint}, or install the package where all users can read it."
        )


def start_profiles(hub: HubProcess, folder: ProfileFolder) -> Iterator[dict[str, object]]:
    """Start and stop a server of each profile, one after the other, and yield its placement."""
    for profile in folder.read().profiles:
        say(f"Starting {profile.display_name} ...")
        placement = hub.spawn("demo", {"profile": profile.slug})
        yield {"profile": profile.slug, "placement": placement}
        hub.end("demo")


def _instructions(hub: HubProcess, starts: tuple[Start, ...]) -> str:
    command = shlex.quote(os.path.relpath(Path(sys.executable).with_name("gpuspawner")))
    config = shlex.quote(str(hub.write_configuration()))
    lines = [
        f"This link signs you in as {PEOPLE[0]}, once, within {LINK_SECONDS // 60} minutes:",
        f"  {hub.link}",
        *tunnel(hub.url, os.environ),
        "",
        f"To sign in later, or as somebody else: {hub.url}, with the password",
        f"  {hub.password}",
        f"as {PEOPLE[0]} or {PEOPLE[1]}, or as admin, who is an administrator.",
        "",
        whose_servers(hub.account),
        "",
        f"Profiles: {hub.folder / 'profiles'} (files are read again when you change them)",
        f"Check the profiles: {command} check -f {config}",
        "",
        "A course is on: sign in as teacher to teach it, or as student4, who has not started yet, to take it.",
        *in_a_minute(starts),
        f"Courses: {hub.folder / 'courses'}",
        f"Check the course: {command} course check {SLUG} -f {config}",
        "",
        f"The hub's log: {hub.log}",
        "",
        "Ctrl-C shuts everything down.",
    ]
    return "\n" + "".join(f"  {line}".rstrip() + "\n" for line in lines)


def in_a_minute(starts: tuple[Start, ...]) -> list[str]:
    """Who has servers then."""
    if not starts:
        return []
    on_cluster = "; bob has one that runs and one that waits in line" if ON_CLUSTER[-1] in starts else ""
    return [f"In a minute student1, student2 and student3 have servers{on_cluster}."]


def tunnel(url: str, environment: Mapping[str, str]) -> list[str]:
    """What to do where the browser is likely on another machine: in a session of ssh, or without a display."""
    if "SSH_CONNECTION" not in environment and environment.keys() & {"DISPLAY", "WAYLAND_DISPLAY"}:
        return []
    _, _, address = url.rpartition("/")
    _, _, port = address.rpartition(":")
    return [
        "If your browser is on another machine, first run there:",
        f"  ssh -L {port}:{address} {socket.gethostname()}",
    ]


def whose_servers(account: str) -> str:
    """A sentence on whose rights servers have."""
    if account:
        return f"Servers run as {account}, since root has started the demo."
    return "Servers run as you: whoever has the link or the password can do what you can do. Keep both to yourself."


def _wait_for_signal(hub: HubProcess) -> None:
    """Wait for Ctrl-C, SIGTERM, or the hub's own end."""
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: ended.set())
    while not ended.wait(1.0):
        if hub.process is not None and hub.process.poll() is not None:
            raise ConfigError(f"The hub has ended unexpectedly. The end of {hub.log}:\n{hub.log_end()}")
