"""The words of ssh's commands, and what its answers mean."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extensions.tunnel.ssh import (
    Forward,
    Reverse,
    control_command,
    control_path,
    is_host,
    master_pid,
    start_command,
    tunnel_words,
)

WORDS = ("ssh", "-F", "/etc/config", "tunnel")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ()),
        ("ssh tunnel", ("ssh", "tunnel")),
        ("ssh -F /etc/config tunnel", WORDS),
        ("/usr/bin/ssh -p 22 hub@login", ("/usr/bin/ssh", "-p", "22", "hub@login")),
        ("ssh -J jump login", ("ssh", "-J", "jump", "login")),
    ],
)
def test_an_ssh_to_a_login_node_is_a_tunnel(text: str, words: tuple[str, ...]) -> None:
    """As words."""
    assert tunnel_words(text, where="c.X.tunnel") == words


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("ssh", "c.X.tunnel: ssh has no destination: ssh."),
        ("ssh -p", "c.X.tunnel: ssh's option -p has no value: ssh -p."),
        ("ssh login id", "c.X.tunnel: 'ssh login id' is no ssh to a login node."),
        ("sudo -u hub ssh login", "c.X.tunnel: 'sudo -u hub ssh login' is no ssh to a login node."),
        ("autossh login", "c.X.tunnel: 'autossh login' is no ssh to a login node."),
        (
            "ssh {username}@login",
            "c.X.tunnel: 'ssh {username}@login' has a field, but the account is the same for all servers.",
        ),
        ("ssh 'login", 'c.X.tunnel: "ssh \'login" is not a valid command: No closing quotation.'),
    ],
)
def test_anything_else_is_refused(text: str, fault: str) -> None:
    """By the name of the setting."""
    with pytest.raises(ConfigError) as refused:
        tunnel_words(text, where="c.X.tunnel")

    assert refused.value.message == fault


def test_a_master_is_started_whatever_the_configuration_says() -> None:
    """Options of the command line count, and the socket is its own."""
    assert start_command(WORDS, "/run/t-1") == (
        *("ssh", "-o", "ClearAllForwardings=no", "-o", "ExitOnForwardFailure=no", "-o", "BatchMode=yes"),
        *("-o", "RemoteCommand=none", "-o", "ControlMaster=auto", "-o", "ControlPersist=no", "-o", "RequestTTY=no"),
        *("-o", "PermitLocalCommand=no", "-o", "ControlPath=/run/t-1", "-f", "-N", "-F", "/etc/config", "tunnel"),
    )


@pytest.mark.parametrize(
    ("forwards", "words"),
    [
        ((), ()),
        ((Forward(26000, "g1", 20000),), ("-L", "127.0.0.1:26000:g1:20000")),
        (
            (Forward(26000, "10.0.1.1", 20000), Forward(26001, "fd00::1", 20001)),
            ("-L", "127.0.0.1:26000:10.0.1.1:20000", "-L", "127.0.0.1:26001:[fd00::1]:20001"),
        ),
        ((Reverse("10.0.0.20", 25681, "127.0.0.1", 8081),), ("-R", "10.0.0.20:25681:127.0.0.1:8081")),
        ((Reverse("fd00::20", 25681, "fd00::9", 8081),), ("-R", "[fd00::20]:25681:[fd00::9]:8081")),
    ],
)
def test_a_master_is_told_what_to_forward(forwards: tuple[Forward | Reverse, ...], words: tuple[str, ...]) -> None:
    """All in one command."""
    assert control_command(WORDS, "/run/t-1", "forward", *forwards) == (
        *("ssh", "-o", "ClearAllForwardings=no", "-o", "ExitOnForwardFailure=no", "-o", "BatchMode=yes"),
        *("-o", "RemoteCommand=none", "-o", "ControlPath=/run/t-1", "-O", "forward", *words),
        *("-F", "/etc/config", "tunnel"),
    )


@pytest.mark.parametrize(
    ("host", "fits"),
    [
        ("g1", True),
        ("g1.cluster.example", True),
        ("node_1", True),
        ("10.0.1.1", True),
        ("fd00::1", True),
        ("::ffff:10.0.1.1", True),
        ("", False),
        ("-oProxyCommand=x", False),
        ("g1:22", False),
        ("g1 -R 1:2:3", False),
        ("[fd00::1]", False),
        ("/run/socket", False),
        ("*", False),
        ("g1\n", False),
        ("fd00::1%eth0", False),
    ],
)
def test_a_host_is_a_name_or_an_address_and_nothing_else(host: str, fits: bool) -> None:
    """What stands between the colons of a forward."""
    assert is_host(host) is fits


@pytest.mark.parametrize(
    ("printed", "path"),
    [
        ("user root\ncontrolpath /run/x/t-1af\nport 22\n", "/run/x/t-1af"),
        ("controlpath none\n", ""),
        ("controlmaster false\ncontrolpersist no\n", ""),
        ("", ""),
    ],
)
def test_the_path_of_the_socket_is_what_ssh_says(printed: str, path: str) -> None:
    """Empty where there is none."""
    assert control_path(printed) == path


@pytest.mark.parametrize(
    ("printed", "pid"),
    [
        ("Master running (pid=4711)\r\n", 4711),
        ("Control socket connect(/run/t-1): No such file or directory\n", 0),
        ("Control socket connect(/run/t-1): Connection refused\n", 0),
        ("", 0),
    ],
)
def test_the_answer_to_check_has_the_masters_process(printed: str, pid: int) -> None:
    """0 where there is none."""
    assert master_pid(printed) == pid
