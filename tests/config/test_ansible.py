"""The example role: it parses, and every variable, file and setting in it is one that there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, StrictUndefined

from jupyterhub_gpuspawner.cli.main import main
from tests.cli.runner import cli_runner

CONFIG = Path(__file__).parents[2] / "config"
ROLE = CONFIG / "ansible" / "roles" / "gpuspawner"
WRITES = ("copy", "file", "template")
TEMPLATES = sorted(path.name for path in (ROLE / "templates").iterdir())


def variables() -> dict[str, Any]:
    """The role's variables, with those inside of others filled in."""
    values: dict[str, Any] = {"role_path": str(ROLE)}
    for name, value in yaml.safe_load((ROLE / "defaults" / "main.yml").read_text()).items():
        text = environment().from_string(yaml.safe_dump(value)).render(values)
        values[name] = yaml.safe_load(text)
    return values


def environment() -> Environment:
    """Jinja2 as Ansible uses it."""
    return Environment(undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True)  # noqa: S701 - no HTML


def rendered(template: str) -> str:
    """A template of the role with the defaults."""
    return environment().from_string((ROLE / "templates" / template).read_text()).render(variables())


def test_every_variable_has_a_default() -> None:
    """In tasks and in templates."""
    texts = [path.read_text() for path in ROLE.rglob("*") if path.is_file()]
    used = {name for text in texts for name in re.findall(r"\bgpuspawner_\w+", text)}

    assert used == set(variables()) - {"role_path"}


def test_every_file_that_is_copied_is_there() -> None:
    """Templates of the role, and files of config."""
    tasks = yaml.safe_load((ROLE / "tasks" / "main.yml").read_text())
    named = {task["ansible.builtin.template"]["src"] for task in tasks if "ansible.builtin.template" in task}
    defaults = variables()
    copied = [defaults["gpuspawner_profiles"], defaults["gpuspawner_courses"]]

    assert named == set(TEMPLATES)
    assert [path for path in copied if not any(Path(path).iterdir())] == []


def test_this_package_is_not_taken_from_an_index() -> None:
    """It is installed as root, and until the first release anybody may take its name on PyPI."""
    named = [name for name in variables()["gpuspawner_packages"] if "gpuspawner" in name]

    assert named
    assert [name for name in named if "/" not in name] == []


def test_what_it_copies_on_the_hubs_machine_is_what_it_lets_gpuspawner_write_there(
    tmp_path: Path,
) -> None:
    """The command of the role runs, and its files are those that later tasks install."""
    tasks = yaml.safe_load((ROLE / "tasks" / "main.yml").read_text())
    copies = [task["ansible.builtin.copy"] for task in tasks if "ansible.builtin.copy" in task]
    (argv,) = (task["ansible.builtin.command"]["argv"] for task in tasks if task.get("register") == "written_files")
    words = [environment().from_string(word).render(variables()) for word in argv]
    result = cli_runner().invoke(main, [word.replace("/etc/jupyterhub", str(tmp_path)) for word in words[1:]])

    assert (words[0], result.exit_code) == ("/opt/jupyterhub/bin/gpuspawner", 0)
    assert {path.relative_to(tmp_path).as_posix() for path in tmp_path.iterdir()} == {
        "wrappers",
        *(copy["src"].removeprefix("/etc/jupyterhub/") for copy in copies if copy.get("remote_src")),
    }


def test_users_reach_the_scripts_and_read_no_secret() -> None:
    """Every mode that the role sets: sudo runs the scripts below the first folder as the users."""
    tasks = yaml.safe_load((ROLE / "tasks" / "main.yml").read_text())
    written = [
        task[name] for task in tasks for name in task if name in {f"ansible.builtin.{module}" for module in WRITES}
    ]

    assert {file.get("path", file.get("dest")): (file["owner"], file["mode"]) for file in written} == {
        "/etc/jupyterhub": ("root", "0755"),
        "/etc/sudoers.d/jupyterhub": ("root", "0440"),
        "/etc/jupyterhub/jupyterhub_config.py": ("root", "0640"),
        "{{ item.dest }}/": ("root", "0640"),
        "/etc/systemd/system/jupyterhub.service": ("root", "0644"),
        "/etc/jupyterhub/proxy.env": ("root", "0600"),
        "/etc/systemd/system/jupyterhub-proxy.service": ("root", "0644"),
    }
