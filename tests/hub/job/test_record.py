"""How a server ended, kept in its spawner's state."""

from __future__ import annotations

from typing import Any

import pytest

from jupyterhub_gpuspawner.errors import (
    ConfigError,
    GPUSpawnerError,
    RequestError,
    SlurmUnavailable,
    SubmitRejected,
)
from jupyterhub_gpuspawner.hub import words
from jupyterhub_gpuspawner.hub.job.ending import (
    TEXT_LIMIT,
    Ending,
    ending_of,
    spawn_failure,
    start_failed,
    stored_ending,
)

WHOLE = Ending(
    "The job reached its time limit of 1 h.",
    advice="Start again.",
    hint="More time.",
    job_id="7",
    at=1.5e9,
    log="/home/ada/jupyterhub-7.log",
    lines="first\nlast",
    profile="K80",
    served=True,
)


STOPPED = Ending("It was stopped at {time}.", at=1.5e9, stopped=True)


@pytest.mark.parametrize("ending", [WHOLE, STOPPED, Ending("It ended.")], ids=["whole", "stopped", "least"])
def test_what_is_stored_is_what_is_read(ending: Ending) -> None:
    """Nothing is lost, and nothing empty is stored."""
    document = ending.to_json()

    assert stored_ending({"ending": document}) == ending
    assert all(document.values())


def test_what_is_stored_has_bounds() -> None:
    """The beginning of a text is kept, and the end of a log."""
    stored = Ending("w" * 9999, lines="x" * 9999 + "last").to_json()

    assert stored == {"what": "w" * TEXT_LIMIT, "lines": "x" * (TEXT_LIMIT - 4) + "last"}


@pytest.mark.parametrize(
    "document",
    [None, {}, [], "text", {"what": ""}, {"what": 7}, {"what": "x", "log": 7}, {"what": "x", "at": "noon"}],
)
def test_what_does_not_fit_is_dropped(document: Any) -> None:
    """A damaged state never keeps a page from being shown."""
    assert stored_ending({"ending": document}) is None


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (RequestError("gpus: 9 is too many.", hint="At most 4."), Ending("gpus: 9 is too many.", advice="At most 4.")),
        (
            SubmitRejected("Slurm refused the job.", hint="Check `account`."),
            Ending(
                "Slurm refused the job.", advice=words.REFUSED.format(contact="the help desk"), hint="Check `account`."
            ),
        ),
        (
            SubmitRejected(
                "Slurm refused the job: no such QOS.", hint="Check `qos`.", for_user="There is no such QOS."
            ),
            Ending(
                "There is no such QOS.",
                advice=words.REFUSED.format(contact="the help desk"),
                hint="Slurm refused the job: no such QOS. Check `qos`.",
            ),
        ),
        (
            SlurmUnavailable("slurmctld is not responding.", hint="Check `scontrol ping`."),
            Ending(
                "Slurm is not responding at the moment.",
                advice=words.TRY_LATER.format(contact="the help desk"),
                hint="slurmctld is not responding. Check `scontrol ping`.",
            ),
        ),
        (
            ConfigError("there is no folder.", where="c.X.y", hint="Make it."),
            Ending(
                "The hub cannot start this server: it is not set up correctly.",
                advice="Please contact the help desk.",
                hint="c.X.y: there is no folder. Make it.",
            ),
        ),
    ],
)
def test_each_of_our_errors_says_who_can_do_what(error: GPUSpawnerError, ending: Ending) -> None:
    """A sentence and advice for the user; everything else is the administrator's."""
    assert ending_of(spawn_failure(error, contact="the help desk")) == ending


def test_a_failure_has_words_for_every_place_where_the_hub_shows_it() -> None:
    """REST, form and page; as HTML everything is escaped."""
    failure = start_failed("It <b>ended</b>.", detail="</pre><script>", ending=WHOLE)

    assert vars(failure)["jupyterhub_message"] == "It <b>ended</b>.\n</pre><script>"
    assert vars(failure)["jupyterhub_html_message"] == (
        '<p>It &lt;b&gt;ended&lt;/b&gt;.</p><pre class="text-start">&lt;/pre&gt;&lt;script&gt;</pre>'
    )
    assert ending_of(failure) == WHOLE
    assert ending_of(TimeoutError()) is None
