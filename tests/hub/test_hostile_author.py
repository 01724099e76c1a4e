"""Write access to the profile folder gives no access to the hub's account, to the files it may read, or to its time."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.demo.hub import HubProcess
from tests.fixtures.hubs import LIGHT, STAND_IN, StartHub
from tests.hub.visitor import Visitor
from tests.standins.hostile_profiles import ENTRIES, HARMLESS, SECRET, SECRETS, TEXTS

pytestmark = [pytest.mark.slurm, pytest.mark.hub]

EXPRESSION = """
- display_name: Expression
  slug: expression
  slurm: {partition: batch, cpus: 1, memory: 100M}
  profile_options: {a: {unlisted_choice: {validation_regex: "([A-Za-z0-9]+_?)+", sets: slurm.account}}}
"""


@pytest.fixture(scope="module")
def hub(start_light_hub: StartHub) -> HubProcess:
    """A hub whose profile files may set every field that can be allowed."""
    return start_light_hub(profiles=LIGHT + EXPRESSION)


def slugs_of(hub: HubProcess, name: str = "ann") -> list[str]:
    """The profiles on the form."""
    page = Visitor(hub, name).look("/hub/spawn")
    assert page.status == 200
    return [str(radio["value"]) for radio in page.soup.select("input[name=profile][type=radio]")]


def _writes(content: str | bytes) -> Callable[[Path, Path], None]:
    def write(path: Path, _secret: Path) -> None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    return write


FILES: dict[str, Callable[[Path, Path], None]] = {
    **ENTRIES,
    **{name: _writes(content) for name, content in TEXTS.items()},
    **{f"{name} with a secret": _writes(content) for name, content in SECRETS.items()},
}


OTHER_NAMES = ["a name with lines in it", "a name that is no text"]
"""Files that do not have the name that they were to have."""


def test_bad_files_harm_neither_form_nor_log_nor_any_start(hub: HubProcess, tmp_path: Path) -> None:
    """An error in one file affects only that file, however many there are.

    The administrator sees each file's name, and nobody sees a file's content.
    """
    secret = tmp_path / "secret"
    secret.write_text(f"{SECRET}\n")
    folder = hub.folder / "profiles"
    before, logged = set(folder.iterdir()), len(hub.log.read_text())
    names = {what: f"odd-{number}.yaml" for number, what in enumerate(FILES) if what != "a link to itself"}
    for what, name in names.items():
        FILES[what](folder / name, secret)
    for number, fields in enumerate(HARMLESS.values()):
        (folder / f"well{number}.yaml").write_text(f"display_name: Well {number}\n{fields}\n")
    try:
        offered = slugs_of(hub)
        page = Visitor(hub, "admin").look("/hub/spawn").text
        hub.spawn("ann", {"profile": "light"})
        hub.end("ann")
    finally:
        for path in set(folder.iterdir()) - before:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    log = hub.log.read_text()
    assert offered == ["light", "k80-node", "expression", *(f"well-{number}" for number in range(len(HARMLESS)))]
    assert [what for what, name in names.items() if name not in page] == OTHER_NAMES
    assert (SECRET in page, SECRET in log, "Traceback" in log[logged:]) == (False, False, False)


def test_no_text_of_a_user_holds_the_hub_up(hub: HubProcess) -> None:
    """A regular expression with catastrophic backtracking does not block the hub, even with the longest text."""
    hub.api("POST", "/users/ann")
    answer = hub.api("POST", "/users/ann/server", {"profile": "expression", "a": "a" * 254 + "!"})

    assert (answer.status_code, "is not allowed" in answer.json()["message"]) == (400, True)


# --- the hub's account -----------------------------------------------------------------------------

BAD_FOLDER = "BAD"
MARK = "MARK"
ATTACKS = {
    "a folder of commands": "traits: {slurm_bin_dir: BAD}",
    "a prefix": "traits: {exec_prefix: BAD/sbatch}",
    "a folder of wrappers": "traits: {wrapper_dir: BAD}",
    "a batch script": "traits: {batch_script: '{cmd}'}",
    "a prologue": "traits: {req_prologue: 'touch MARK'}",
    "a hook": "traits: {pre_spawn_hook: os.system}",
    "the hub's own account": "kind: local\ntraits: {as_hub_account: true}\ncommand: [touch, MARK]",
    "a process of the hub's": (
        "kind: other\nspawner_class: jupyterhub.spawner.SimpleLocalProcessSpawner\ncommand: [touch, MARK]"
    ),
    "any class": "kind: other\nspawner_class: evil.Spawner",
    "a module that is imported": "kind: other\nspawner_class: this.that",
    "a command": "command: [touch, MARK]",
    "a command on this machine": "kind: local\ncommand: [touch, MARK]",
    "a library": "kind: local\nenvironment: {variables: {LD_PRELOAD: BAD/evil.so}}",
    "shell lines": "environment: {setup: 'touch MARK'}",
    "a container": "environment: {container: BAD/image}",
    "an environment": "environment: {venv: BAD}",
    "options of sbatch": "slurm: {extra: --wrap=touch}",
    "a choice": "profile_options: {a: {choices: {b: {command: [touch, MARK]}}}}",
    "a choice's lines": "profile_options: {a: {choices: {b: {environment: {setup: 'touch MARK'}}}}}",
}


@pytest.fixture(scope="module")
def strict_hub(start_light_hub: StartHub) -> HubProcess:
    """A hub whose admin allows no restricted fields in files, and has configured the one profile with a command."""
    light = {
        "display_name": "Light",
        "slug": "light",
        "slurm": {"partition": "batch", "cpus": 1, "memory": "100M"},
        "command": [sys.executable, str(STAND_IN)],
    }
    lines = f"c.GPUProfilesSpawner.profiles_dir_allows = []\nc.GPUProfilesSpawner.profiles = [{light!r}]"
    return start_light_hub(lines=lines, profiles="display_name: Plain\n")


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(attack, id=name, marks=() if number % 3 == 0 else pytest.mark.nightly)
        for number, (name, attack) in enumerate(ATTACKS.items())
    ],
)
def test_no_file_runs_anything(strict_hub: HubProcess, tmp_path: Path, attack: str) -> None:
    """The profile is not offered, starting it is refused, nothing in it has run, and the admin sees the file's name."""
    bad, mark = tmp_path / "bad", tmp_path / "mark"
    (bad / "bin").mkdir(parents=True)
    for name in (
        "sbatch",
        "squeue",
        "sinfo",
        "scontrol",
        "scancel",
        "submit",
        "trial",
        "cancel",
        "log",
        "bin/activate",
    ):
        (bad / name).write_text(f"#!/bin/sh\ntouch {mark}\n")
        (bad / name).chmod(0o755)
    path = strict_hub.folder / "profiles" / "evil.yaml"
    fields = attack.replace(BAD_FOLDER, str(bad)).replace(MARK, str(mark))
    path.write_text(f"display_name: Evil\n{fields}\n")
    try:
        offered = slugs_of(strict_hub)
        page = Visitor(strict_hub, "admin").look("/hub/spawn").text
        strict_hub.api("POST", "/users/ann")
        started = strict_hub.api("POST", "/users/ann/server", {"profile": "evil"})
        tried = strict_hub.api("POST", "/gpuspawner/trial/ann", {"user_options": {"profile": "evil"}})
    finally:
        path.unlink()

    assert offered == ["light", "plain"]
    assert "evil.yaml:" in page
    assert "this field is not allowed in a profile file" in page
    assert (started.status_code, tried.status_code) == (400, 400)
    assert "There is no profile 'evil'" in started.json()["message"]
    assert not mark.exists()


def test_the_admins_own_profile_still_starts(strict_hub: HubProcess) -> None:
    """Profiles in the configuration may set every field."""
    strict_hub.spawn("ann", {"profile": "light"})
    strict_hub.end("ann")
