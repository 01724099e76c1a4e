"""``exec_prefix`` as words."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.slurm.prefix import command_prefix


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
    """Batchspawner's string or a list; each place is filled inside its word, and nothing is a shell's."""
    assert command_prefix(text, "alice", group="course") == words


@pytest.mark.parametrize("username", ["al;ice", "alice'", "$(id)", "a&b"])
def test_odd_user_name_stays_one_word(username: str) -> None:
    """A name with a shell's characters is one word for sudo, which knows no such user."""
    assert command_prefix("sudo -u {username}", username) == ("sudo", "-u", username)


@pytest.mark.parametrize("username", ["", "-u root", "-i", "a b", "a\nb", "a\0"])
def test_user_name_that_is_none_is_refused(username: str) -> None:
    """Empty, an option, or with blanks or control characters."""
    with pytest.raises(ConfigError, match="is no user name"):
        command_prefix("sudo -u {username}", username)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sudo -u {user}", r"exec_prefix: {user} has no value\. It may hold {username}\."),
        ("sudo -u {}", r"exec_prefix: {} has no value"),
        ("sudo -u '{username}", "exec_prefix: .* is no command: No closing quotation"),
    ],
)
def test_odd_exec_prefix_is_the_admins_error(text: str, message: str) -> None:
    """The error names the trait and what it may hold."""
    with pytest.raises(ConfigError, match=message):
        command_prefix(text, "alice")
