"""ssh's command lines: every word arrives as it was, whatever shell the account on the other machine has."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.slurm.commands import command_prefix
from jupyterhub_gpuspawner.slurm.login_node import (
    FAILED,
    command_line,
    configuration_query,
    destination,
    is_remote,
)
from jupyterhub_gpuspawner.slurm.messages import LoginNodeUnreachable, ssh_reason

SCRIPT = "/etc/jupyterhub/wrappers/submit"
HOSTILE = (
    "ada;id",
    "ada$(id)",
    "ada`id`",
    "ada|id",
    "ada&id",
    "ada>x",
    "a'b",
    'a"b',
    "a\\b",
    "~root",
    "a*",
    "a{b,c}",
    "$HOME",
    "!!",
    "#x",
    "ä",
    "",
    " a  b ",
    "a\tb",
)
SHELLS = [path for name in ("sh", "bash", "dash", "busybox") if (path := shutil.which(name))]

WORDS = {
    "no ssh": ("sudo -n -u {username}", ("sudo", "-n", "-u", "a;b", SCRIPT)),
    "a login node": ("ssh login", ("ssh", "login", SCRIPT)),
    "an account": ("ssh login sudo -n -u {username}", ("ssh", "login", "sudo", "-n", "-u", "'a;b'", SCRIPT)),
    "a path": ("/usr/bin/ssh hub@login", ("/usr/bin/ssh", "hub@login", SCRIPT)),
    "options": (
        "ssh -TF /etc/ssh_config -oBatchMode=yes -o 'ConnectTimeout 5' login env",
        ("ssh", "-TF", "/etc/ssh_config", "-oBatchMode=yes", "-o", "ConnectTimeout 5", "login", "env", SCRIPT),
    ),
    "options behind the destination": (
        "ssh login -p 22 -- sudo -u {username}",
        ("ssh", "login", "-p", "22", "--", "sudo", "-u", "'a;b'", SCRIPT),
    ),
    "a command before ssh": (
        "timeout 9 ssh login env {username}",
        ("timeout", "9", "ssh", "login", "env", "'a;b'", SCRIPT),
    ),
    "a second login node": (
        "ssh gate ssh login env {username}",
        ("ssh", "gate", "ssh", "login", "env", "''\"'\"'a;b'\"'\"''", SCRIPT),
    ),
}


@pytest.mark.parametrize(("prefix", "expected"), WORDS.values(), ids=WORDS)
def test_the_words_behind_the_destination_are_quoted(prefix: str, expected: tuple[str, ...]) -> None:
    """ssh's own options are not; behind a second ssh a word is quoted twice."""
    assert (
        command_line(command_prefix(prefix.replace("{username}", "{word}"), "ada", word="a;b"), (SCRIPT,)) == expected
    )


DESTINATIONS = {
    "sudo -n -u ssh": "",
    "sudo -nu ssh": "",
    "sudo -n -ussh": "",
    "sudo -n --user ssh": "",
    "sudo -n --user=ssh": "",
    "sudo -n -u ssh -g ssh LANG=C env -u ssh": "",
    "timeout -s KILL 9 sudo -u ssh": "",
    "runuser -u ssh --": "",
    "/usr/sbin/runuser -u ssh -- env A=ssh": "",
    "doas -u ssh": "",
    "gosu ssh": "",
    "setpriv --reuid ssh --regid=ssh --init-groups": "",
    "/opt/site/as-user ssh": "",
    "/opt/site/as-user -u ssh --": "",
    "sudo -n -u ssh ssh login": "sudo -n -u ssh ssh login",
    "sudo -n -u ssh ssh login env": "sudo -n -u ssh ssh login",
    "sudo -n -u ada /usr/bin/ssh ssh": "sudo -n -u ada /usr/bin/ssh ssh",
    "env SSH_AUTH_SOCK=/run/agent ssh login env": "env SSH_AUTH_SOCK=/run/agent ssh login",
    "nice -n 5 timeout 9 ssh login env": "nice -n 5 timeout 9 ssh login",
    "sshpass -f /etc/secret ssh login env": "sshpass -f /etc/secret ssh login",
    "/opt/site/as-user -u hub ssh login env": "/opt/site/as-user -u hub ssh login",
    "/opt/site/quietly -q ssh -p 22 login env": "/opt/site/quietly -q ssh -p 22 login",
    "ssh login sudo -n -u ssh": "ssh login",
}


@pytest.mark.parametrize(("prefix", "reached_by"), DESTINATIONS.items(), ids=DESTINATIONS)
def test_ssh_is_a_program_by_its_place(prefix: str, reached_by: str) -> None:
    """An account, a machine or a variable may have this name; what follows ssh's destination is for its shell."""
    words = tuple(prefix.split())

    assert (is_remote(words), " ".join(destination(words))) == (bool(reached_by), reached_by)


def test_an_account_named_ssh_has_commands_of_this_machine() -> None:
    """Its name is filled into the prefix as any other."""
    assert command_line(command_prefix("sudo -n -u {username}", "ssh"), ("a;b",)) == ("sudo", "-n", "-u", "ssh", "a;b")


@pytest.mark.parametrize("shell", SHELLS)
def test_every_word_arrives_as_it_was(shell: str) -> None:
    """What ssh hands to the remote shell is split into the same words again, and nothing of it is run."""
    _, _, *sent = command_line(("ssh", "login"), ("printf", "%s\\n", *HOSTILE))
    command = [shell, "sh"] if shell.endswith("busybox") else [shell]
    ran = subprocess.run([*command, "-c", " ".join(sent)], capture_output=True, text=True, check=True)

    assert ran.stdout.split("\n")[:-1] == list(HOSTILE)


@pytest.mark.parametrize("prefix", ["ssh", "ssh -v", "ssh -p 22", "ssh login -o", "ssh gate ssh"])
def test_an_ssh_without_a_destination_is_refused(prefix: str) -> None:
    """It would take the script for the name of a machine."""
    with pytest.raises(ConfigError, match=r"^ssh('s option -o)? has no (destination|value)"):
        command_line(prefix.split(), (SCRIPT,))


def test_the_configuration_is_asked_for_the_same_destination() -> None:
    """With ssh's own options, and without the remote command."""
    prefix = ("timeout", "9", "/usr/bin/ssh", "-F", "/etc/x", "login", "-p", "22", "sudo", "-u", "ada")

    assert configuration_query(prefix) == ("/usr/bin/ssh", "-G", "-F", "/etc/x", "login", "-p", "22")
    assert (configuration_query(("sudo",)), is_remote(prefix), is_remote(("sudo", "sshd"))) == ((), True, False)


MESSAGES = {
    "Host key verification failed.\n": "host-key",
    "@@@\n@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.\n": "host-key",
    "No ED25519 host key is known for login and you have requested strict checking.\nHost key verification failed.\n": (
        "host-key"
    ),
    "unix_listener: cannot bind to path /run/hub/t.7: No space left on device\n": "socket",
    "unix_listener: cannot bind to path /run/hub/t.7: Permission denied\n": "socket",
    'unix_listener: path "/home/hub/a-long-one" too long for Unix domain socket\n': "socket",
    "ControlPath too long ('/home/hub/a-long-one' >= 108 bytes)\n": "socket",
    "hub@login: Permission denied (publickey,password).\n": "refused-key",
    "Received disconnect from 10.0.0.1 port 22:2: Too many authentication failures\n": "refused-key",
    "No user exists for uid 64999\n": "no-account",
    "ssh: Could not resolve hostname login: Name or service not known\n": "unknown-host",
    "ssh: connect to host login port 22: Connection refused\n": "unreachable",
    "ssh: connect to host login port 22: Connection timed out\n": "unreachable",
    "Connection to login closed by remote host.\n": "unreachable",
    "client_loop: send disconnect: Broken pipe\n": "unreachable",
    "": "unreachable",
    "kex_exchange_identification: Connection closed by remote host\nConnection closed by 10.0.0.1\n": "too-many",
    "mux_client_request_session: session request failed: Session open refused by peer\n": "too-many",
    "/etc/x: line 3: Bad configuration option: controlpth\n/etc/x: terminating, 1 bad configuration options\n": (
        "configuration"
    ),
}


@pytest.mark.parametrize(("stderr", "name"), MESSAGES.items())
def test_what_ssh_says_has_a_reason(stderr: str, name: str) -> None:
    """Messages of OpenSSH 9.2."""
    assert ssh_reason(stderr).name == name


def test_a_lost_connection_is_no_answer_of_slurm() -> None:
    """So servers are kept; a participant reads that Slurm does not respond, or that the hub is not set up."""
    lost = LoginNodeUnreachable("squeue", "ssh: connect to host login port 22: Connection refused\r\n")
    unknown = LoginNodeUnreachable("squeue", "Host key verification failed.\r\n")

    assert (lost.status_code, lost.for_user, str(lost)) == (
        503,
        "Slurm is not responding at the moment.",
        "squeue has no answer: the login node cannot be reached by ssh (ssh: connect to host login port 22: Connection "
        "refused). Run ssh by hand as the hub's account.",
    )
    assert (unknown.status_code, unknown.for_user) == (503, "The hub cannot reach Slurm: it is not set up correctly.")
    assert FAILED == 255
