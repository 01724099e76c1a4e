"""The commands of a course that ask a running hub, where none answers."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.cli.main import main
from jupyterhub_gpuspawner.demo.slurm_cluster import free_ports
from tests.cli.runner import cli_runner

COMMANDS = (("start", "deep"), ("stop", "deep"), ("message", "deep", "Hello"), ("extend", "deep"), ("report", "deep"))


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_without_a_token_nothing_is_asked(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says which variable is missing, and where a token comes from."""
    monkeypatch.delenv("JUPYTERHUB_API_TOKEN", raising=False)

    done = cli_runner().invoke(main, ["course", *words, "--hub", "http://127.0.0.1:1"])

    assert done.exit_code == 1
    assert done.stderr == (
        "gpuspawner: JUPYTERHUB_API_TOKEN is not set. Make a token on the hub's page Token, and put it into this "
        "environment variable.\n"
    )


@pytest.mark.parametrize("path", ["", "/", "/hub", "/hub/api", "/hub/api/"])
def test_a_hub_that_does_not_answer_is_named(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address may be the hub's own, or that of its REST API, as servers have it in their environment."""
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "secret")
    (port,) = free_ports(1)
    monkeypatch.setenv("JUPYTERHUB_API_URL", f"http://127.0.0.1:{port}{path}")

    done = cli_runner().invoke(main, ["course", "report", "deep"])

    assert done.exit_code == 1
    assert done.stderr == (
        f"gpuspawner: The hub does not answer at http://127.0.0.1:{port}/hub/api/gpuspawner/courses/deep: "
        "ConnectionError.\n"
    )
