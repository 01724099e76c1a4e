"""Settings with which no command would run are refused when the hub starts."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.slurm.commands import check_commands


@dataclass
class Settings:
    """Those of a hub that reaches Slurm by ssh."""

    exec_prefix: str = "ssh login sudo -n -u {username}"
    query_prefix: str = "ssh login"
    wrapper_dir: str = "/etc/jupyterhub/wrappers"

    def configured_as(self, name: str) -> str:
        """The name is enough here."""
        return name


def test_a_hub_by_ssh_and_one_beside_slurm_are_in_order() -> None:
    """Neither raises."""
    check_commands(Settings())
    check_commands(Settings(exec_prefix="sudo -n -E -u {username}", query_prefix="", wrapper_dir=""))


WRONG = {
    "no script": (Settings(wrapper_dir=""), "query_prefix: The script `query` is in wrapper_dir, which is not set."),
    "no destination": (
        Settings(query_prefix="ssh -v"),
        "query_prefix: ssh has no destination: ssh -v. Name the login node: ssh [OPTION]... LOGIN-NODE.",
    ),
    "a field": (
        Settings(query_prefix="ssh {username}@login"),
        "query_prefix: 'ssh {username}@login' has a field, but the account is the same for all servers.",
    ),
    "quotes": (
        Settings(query_prefix="ssh 'login"),
        'query_prefix: "ssh \'login" is not a valid command: No closing quotation.',
    ),
    "jobs are submitted here": (
        Settings(exec_prefix="sudo -n -u {username}"),
        "exec_prefix: The hub asks Slurm on another machine, but would submit jobs on its own. Begin it with the words "
        "of query_prefix: ssh LOGIN-NODE sudo -n -u {username}.",
    ),
}


@pytest.mark.parametrize(("settings", "message"), WRONG.values(), ids=WRONG)
def test_what_cannot_work_is_refused(settings: Settings, message: str) -> None:
    """The error names the setting, and what would be right."""
    with pytest.raises(ConfigError) as refused:
        check_commands(settings)

    assert str(refused.value) == message
