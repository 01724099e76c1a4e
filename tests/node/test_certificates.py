"""The certificates of a server with ``internal_ssl``, from the job's environment."""

from __future__ import annotations

import subprocess
import sys
from base64 import b64encode
from pathlib import Path

import pytest

BECOME = """
import os, sys
from jupyterhub_gpuspawner.node.folder import unpack_certificates
unpack_certificates(os.environ, sys.argv[1])
os.execvp("sh", ["sh", "-c", 'cat "$JUPYTERHUB_SSL_KEYFILE"; env'])
"""


@pytest.mark.parametrize("folder", ["own", "/proc/self/fd"], ids=["a folder of its own", "a launcher in memory"])
def test_a_server_reads_its_key_wherever_the_launcher_is(folder: str, tmp_path: Path) -> None:
    """The environment has the file's name, and its content no longer."""
    (tmp_path / "own").mkdir()
    answer = subprocess.run(
        [sys.executable, "-c", BECOME, str(tmp_path / folder)],
        env={"PATH": "/usr/bin:/bin", "JUPYTERHUB_SSL_KEYFILE_CONTENT": b64encode(b"the key\n").decode()},
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert answer.startswith("the key\n")
    assert [line.partition("=")[0] for line in answer.splitlines() if "SSL" in line] == ["JUPYTERHUB_SSL_KEYFILE"]
