"""Relative paths of a hub, looked at from another folder than the hub's."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.check import machine, run, settings
from jupyterhub_gpuspawner.check.finding import Finding, Severity
from jupyterhub_gpuspawner.site.configuration import configuration_of, load_site, running_in

LINES = """
c.JupyterHub.spawner_class = "gpu-profiles"
c.GPUProfilesSpawner.profiles = [{"display_name": "Here", "kind": "local"}]
c.GPUSlurmSpawner.slurm_bin_dir = "/no/such/folder"
"""
COMMANDS = {
    "its own name": (["/opt/hub/bin/jupyterhub", "-f", "/etc/hub.py"], "/etc/hub.py"),
    "an interpreter": (["/usr/bin/python3.11", "-I", "/opt/hub/bin/jupyterhub", "--config=hub.py"], "hub.py"),
    "a module": (["python3", "-m", "jupyterhub", "--debug", "--config", "hub.py"], "hub.py"),
    "the setting": (["jupyterhub", "--JupyterHub.config_file=hub.py"], "hub.py"),
    "the default": (["jupyterhub", "--port", "8000"], "jupyterhub_config.py"),
    "no option at all": (["python3", "/opt/hub/bin/jupyterhub"], "jupyterhub_config.py"),
    "an editor": (["vi", "jupyterhub", "-f"], None),
    "a script of that word": (["python3", "backup.py", "jupyterhub", "-f", "hub.py"], None),
    "a server": (["/usr/bin/python3", "/opt/hub/bin/jupyterhub-singleuser"], None),
    "a kernel thread": ([], None),
}


@pytest.mark.parametrize(("words", "expected"), COMMANDS.values(), ids=COMMANDS.keys())
def test_the_configuration_of_a_running_hub(words: list[str], expected: str | None) -> None:
    """As its command line names it; nothing for other processes."""
    assert configuration_of(words) == expected


@pytest.fixture
def site(public_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration, a folder in which the hub may run, and the check in a third, with a database of another hub."""
    folder = Path(tempfile.mkdtemp(dir=public_folder))
    folder.chmod(0o755)
    for name in ("etc", "srv", "elsewhere"):
        (folder / name).mkdir()
    exposed(folder / "elsewhere")
    monkeypatch.chdir(folder / "elsewhere")
    return folder


def exposed(folder: Path) -> None:
    """A database that everybody can read."""
    (folder / "jupyterhub.sqlite").touch()
    (folder / "jupyterhub.sqlite").chmod(0o644)


async def findings(site: Path, more: str = "") -> list[Finding]:
    """What the check finds in the hub's files."""
    config = site / "etc" / "jupyterhub_config.py"
    config.write_text(LINES + more)
    return list(
        await run.findings(await run.context_of(load_site(config)), (settings.check_settings, machine.check_secrets))
    )


async def test_files_of_a_folder_in_which_no_hub_runs_are_not_the_hubs(site: Path) -> None:
    """The database beside which the check is run raises no alarm; what was configured and not looked at is said."""
    assert await findings(site) == []
    (finding,) = await findings(site, "c.JupyterHub.db_url = 'sqlite:///jupyterhub.sqlite'\n")

    assert (finding.severity, finding.code) == (Severity.OK, "database-unseen")
    assert finding.text == (
        "not looked at: jupyterhub.sqlite is in the working directory of the hub, which is not seen running, and not "
        "beside the configuration"
    )


async def test_a_group_that_only_the_database_may_know_is_not_called_missing(site: Path) -> None:
    """A hub's own groups are unknown with its database."""
    config = site / "etc" / "jupyterhub_config.py"
    config.write_text(LINES)
    context = await run.context_of(load_site(config))

    assert context.people.unread == ("the hub's working directory, in which jupyterhub.sqlite is, is not known here")


async def test_files_beside_the_configuration_are_the_hubs(site: Path) -> None:
    """A hub that is started in its configuration's folder has its files there."""
    exposed(site / "etc")
    report = await findings(site)

    assert [(finding.code, str(site / "etc") in finding.text) for finding in report] == [
        ("database-exposed", True),
    ]


def test_a_running_hub_shows_where_its_files_are(site: Path) -> None:
    """Its working directory is that of the process, and wins over files that an earlier hub left behind."""
    exposed(site / "etc")
    exposed(site / "srv")
    (site / "jupyterhub").write_text("input(print(flush=True))\n")
    command = [sys.executable, str(site / "jupyterhub"), "-f", "../etc/jupyterhub_config.py"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=site / "srv", stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        process.stdout.readline()  # before a program runs, its command line is empty
        report = asyncio.run(findings(site))
        working_dir = running_in(site / "etc" / "jupyterhub_config.py")
        process.communicate(b"\n")

    assert working_dir == (site / "srv").resolve()
    assert [(finding.code, f"{site}/srv/" in finding.text) for finding in report] == [
        ("database-exposed", True),
    ]


async def test_a_key_whose_folder_is_not_known_is_not_called_missing(site: Path) -> None:
    """A relative path of a key is a warning; the full path is asked for."""
    report = await findings(site, "c.JupyterHub.ssl_key = 'key.pem'\n")

    assert [finding for finding in report if finding.severity is not Severity.OK] == [
        Finding(
            Severity.WARNING,
            "tls-file",
            "c.JupyterHub.ssl_key",
            "key.pem is in the working directory of the hub, which is not known here.",
            "Give the full path of a file in PEM format.",
        )
    ]


async def test_a_folder_of_profiles_beside_the_configuration_is_found(site: Path) -> None:
    """From wherever the check is run."""
    (site / "etc" / "profiles").mkdir()
    (site / "etc" / "profiles" / "a.yaml").write_text("display_name: A\n")
    config = site / "etc" / "jupyterhub_config.py"
    config.write_text(LINES + "c.GPUProfilesSpawner.profiles_dir = 'profiles'\n")
    context = await run.context_of(load_site(config))

    assert [profile.slug for profile in context.profiles] == ["here", "a"]
