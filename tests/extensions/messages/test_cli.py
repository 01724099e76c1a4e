"""``gpuspawner message``: what is refused before the hub is asked."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.cli.main import main
from tests.cli.runner import cli_runner

WHOM = "Say to whom the message is, by one of --everybody, --user, --server, --profile, --cluster or --node."
EITHER = "Give either a text or --withdraw."
REFUSED = {
    "to nobody": (["Hello"], WHOM),
    "to two": (["Hello", "--node", "g1", "--everybody"], WHOM),
    "without a text": (["--node", "g1"], EITHER),
    "a text that is withdrawn": (["Hello", "--node", "g1", "--withdraw"], EITHER),
}


@pytest.mark.parametrize(("words", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_a_message_needs_a_text_and_people(words: list[str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what is missing; the hub is not asked."""
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "secret")

    done = cli_runner().invoke(main, ["message", *words, "--hub", "http://127.0.0.1:1"])

    assert (done.exit_code, done.stderr) == (1, f"gpuspawner: {message}\n")
