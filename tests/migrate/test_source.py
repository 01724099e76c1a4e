"""The text of a configuration: what belongs to the older spawners goes, and the rest stays as it is written."""

from __future__ import annotations

import textwrap

import pytest

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.migrate.configuration.source import SourceEditor

KEEP = {("SlurmSpawner", "start_timeout"), ("SlurmSpawner", "exec_prefix"), ("SlurmSpawner", "pre_spawn_hook")}


def edited(source: str) -> str:
    """The text with three settings kept."""
    editor = SourceEditor(textwrap.dedent(source).lstrip("\n"), sections={"SlurmSpawner"}, packages={"batchspawner"})
    return editor.edited(KEEP).text


@pytest.mark.parametrize(
    ("source", "left"),
    [
        pytest.param(
            """
            # The hub
            c.JupyterHub.ip = "0.0.0.0"  # everywhere
            # Its spawner
            c.JupyterHub.spawner_class = "batchspawner.SlurmSpawner"
            """,
            '# The hub\nc.JupyterHub.ip = "0.0.0.0"  # everywhere\n',
            id="a comment right above a statement goes with it",
        ),
        pytest.param(
            """
            import os
            c.SlurmSpawner.start_timeout = int(os.environ["SECONDS"])  # slow disks
            """,
            'import os\nc.GPUSlurmSpawner.start_timeout = int(os.environ["SECONDS"])  # slow disks\n',
            id="a kept setting keeps its expression",
        ),
        pytest.param(
            """
            c.SlurmSpawner.exec_prefix = "ssh é "
            c.SlurmSpawner.exec_prefix += "sudo -u {username}"
            """,
            'c.GPUSlurmSpawner.exec_prefix = "ssh é "\nc.GPUSlurmSpawner.exec_prefix += "sudo -u {username}"\n',
            id="so does one in two statements",
        ),
        pytest.param(
            """
            def hook(spawner):
                print(spawner.user.name)

            c.SlurmSpawner.pre_spawn_hook = hook
            """,
            "def hook(spawner):\n    print(spawner.user.name)\n\nc.GPUSlurmSpawner.pre_spawn_hook = hook\n",
            id="a function that is used stays",
        ),
        pytest.param(
            """
            from batchspawner import SlurmSpawner

            class Ours(SlurmSpawner):
                pass

            instance = Ours
            c.JupyterHub.port = 8000
            """,
            "c.JupyterHub.port = 8000\n",
            id="what is derived from a removed import goes, and what uses that",
        ),
        pytest.param(
            """
            if production:
                c.SlurmSpawner.req_partition = "gpu"
                c.JupyterHub.port = 443
            else:
                c.SlurmSpawner.req_partition = "debug"
            """,
            "if production:\n    c.JupyterHub.port = 443\nelse:\n    pass\n",
            id="branches keep what is not the spawner's",
        ),
        pytest.param(
            """
            import json
            gpus = json.loads("[1, 2]")
            names = []
            for count in gpus:
                names.append(f"gpu:{count}")
            c.SlurmSpawner.req_gres = names[0]
            """,
            "",
            id="definitions for removed statements alone go",
        ),
        pytest.param(
            """
            port = 8000
            c.SlurmSpawner.req_options = f"--comment={port}"
            c.JupyterHub.port = port
            """,
            "port = 8000\nc.JupyterHub.port = port\n",
            id="a definition with another use stays",
        ),
        pytest.param(
            """
            cfg = get_config()
            cfg.SlurmSpawner.req_partition = "gpu"
            for name in ("req_qos", "req_account"):
                setattr(cfg.SlurmSpawner, name, "x")
            """,
            "cfg = get_config()\n",
            id="the configuration may have another name, and settings other forms",
        ),
    ],
)
def test_what_is_left_of_a_configuration(source: str, left: str) -> None:
    """Statement by statement."""
    assert edited(source) == (left or "\n")


def test_two_statements_on_a_line_are_refused() -> None:
    """Removing one would remove the other."""
    with pytest.raises(ConfigError, match="line 1 has several statements"):
        edited("a = 1; b = 2")
