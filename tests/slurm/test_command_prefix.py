"""``exec_prefix`` as a list of arguments."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.slurm.commands import command_prefix


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sudo -E -u {username}", ("sudo", "-E", "-u", "alice")),
        ("sudo -u {{ username }} --", ("sudo", "-u", "alice", "--")),
        ("", ()),
        (["runuser", "-u", "{username}", "--"], ("runuser", "-u", "alice", "--")),
        ("env 'A=b c' sudo --user={username}", ("env", "A=b c", "sudo", "--user=alice")),
        ("sudo -u {username} -g {group}", ("sudo", "-u", "alice", "-g", "course")),
        (("sudo; echo", "$(id)"), ("sudo; echo", "$(id)")),
    ],
)
def test_exec_prefix_becomes_words(text: str | list[str], words: tuple[str, ...]) -> None:
    """``exec_prefix`` is batchspawner's string or a list; fields are replaced in each argument, without a shell."""
    assert command_prefix(text, "alice", group="course") == words


GATE = Path(__file__).parents[2] / "config" / "ssh" / "gate"
NAMES = (
    *("ada", "al;ice", "alice'", "a$(id)", "a&b", "Élise", "first.last@example.org", "_apt", "x-1", "x#0"),
    *("0123ab", "4711a", "4you", "1_000", "\u0661a"),
)
"""Those that begin with a digit are numbers neither to sudo nor to Slurm."""


@pytest.mark.parametrize("username", NAMES)
def test_odd_user_name_stays_one_word(username: str) -> None:
    """A name with shell characters is one argument for sudo, which does not know such a user."""
    assert command_prefix("sudo -u {username}", username) == ("sudo", "-u", username)


NO_NAMES = {
    "empty": "",
    "root by its number, sudo's way": "#0",
    "another by his number, sudo's way": "#1000",
    "a number, sudo's way, that is none": "#-1",
    "root by its number": "0",
    "another by his number": "1000",
    "a number in other digits": "\u0661\u0660\u0660\u0660",
    "an option": "-i",
    "an option with a value": "-u root",
    "a signed number": "+0",
    "a group, sudo's way": "%wheel",
    "a place in a log's name": "a%u",
    "a netgroup": "@staff",
    "a home": "~root",
    "a shell's words": "$(id)",
    "a hidden file": ".ssh",
    "the folder above": "..",
    "a path": "../root",
    "a path within": "a/b",
    "two fields of passwd": "a:0",
    "a blank": "a b",
    "a blank at the end": "root ",
    "a line's end": "a\nb",
    "a tab": "a\tb",
    "a NUL": "root\0",
    "a mark that turns text round": "a\u202eb",
    "a blank that does not break": "a\u00a0b",
}


@pytest.mark.parametrize("username", NO_NAMES.values(), ids=NO_NAMES.keys())
def test_user_name_that_is_none_is_refused(username: str) -> None:
    """Names that sudo, Slurm or shell tools would not read as a user name are refused; a hint says what is valid."""
    with pytest.raises(ConfigError) as caught:
        command_prefix("sudo -u {username}", username)

    assert caught.value.message == f"{username!r} is not a valid user name."
    assert "begins with a letter, a digit or _" in caught.value.hint


def test_the_gate_of_ssh_takes_the_same_names_as_the_hub(tmp_path: Path) -> None:
    """A user whom the hub accepts could start nothing by ssh if it refused the name; sudo gets no other names."""
    gate = tmp_path / "gate"
    gate.write_text(GATE.read_text().replace('"/usr/bin/sudo"', '"/bin/true"'))
    names = (*NAMES, *(name for name in NO_NAMES.values() if "\0" not in name))  # which no command can have

    def is_accepted(name: str) -> bool:
        command = shlex.join(["sudo", "-n", "-u", name, "/etc/jupyterhub/wrappers/submit"])
        environment = {**os.environ, "SSH_ORIGINAL_COMMAND": command}
        return subprocess.run([sys.executable, "-I", gate], env=environment, check=False).returncode == 0

    assert {name: is_accepted(name) for name in names} == {name: name in NAMES for name in names}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sudo -u {user}", r"exec_prefix: {user} is not a known field\. Fields are {username}\."),
        ("sudo -u {username.__class__}", r"exec_prefix: {username\.__class__} is not a known field"),
        ("sudo -u {}", r"exec_prefix: {} is not a known field"),
        ("sudo -u '{username}", "exec_prefix: .* is not a valid command: No closing quotation"),
    ],
)
def test_odd_exec_prefix_is_the_admins_error(text: str, message: str) -> None:
    """The error names the trait and its valid fields."""
    with pytest.raises(ConfigError, match=message):
        command_prefix(text, "alice")
