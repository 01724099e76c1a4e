"""Whatever somebody else has written into a line of the log is a part of that line, and can be seen."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest
from jupyterhub.log import CoroutineLogFormatter

from jupyterhub_gpuspawner.hub.site.log_lines import VisibleText

CHARACTERS = {
    "newline": ("\n", r"\n"),
    "carriage return": ("\r", r"\r"),
    "vertical tab": ("\v", r"\x0b"),
    "form feed": ("\f", r"\x0c"),
    "ESC": ("\x1b", r"\x1b"),
    "NUL": ("\0", r"\x00"),
    "DEL": ("\x7f", r"\x7f"),
    "CSI of C1": ("\x9b", r"\x9b"),
    "next line of C1": ("\x85", r"\x85"),
    "line separator": ("\u2028", r"\u2028"),
    "paragraph separator": ("\u2029", r"\u2029"),
    "right-to-left override": ("\u202e", r"\u202e"),
    "isolate": ("\u2066", r"\u2066"),
    "half of a character": ("\udc9b", r"\udc9b"),
}
FORGED = "[I 2026-03-02 10:00:00 JupyterHub log:1] 200 GET /hub"


@pytest.fixture
def output() -> Iterator[io.StringIO]:
    """What the logger ``gpuspawner-test`` writes, as JupyterHub formats it."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(CoroutineLogFormatter(fmt="[%(levelname)1.1s] %(message)s", color=False))
    handler.addFilter(VisibleText(handler))
    logger = logging.getLogger("gpuspawner-test")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    yield stream
    logger.removeHandler(handler)


@pytest.mark.parametrize(("character", "shown"), CHARACTERS.values(), ids=CHARACTERS)
def test_a_character_that_does_not_print_is_shown(output: io.StringIO, character: str, shown: str) -> None:
    """In a value, in the representation of one, in a message that was put together before, and in a mapping."""
    log = logging.getLogger("gpuspawner-test")
    text = f"ann{character}{FORGED}"
    log.warning("no server %s", text)
    log.warning("no server %s", ValueError(text))
    log.warning("".join(("no server ", text)))
    log.warning("no server %(name)s of %(number)d", {"name": text, "number": 2})

    line = f"[W] no server ann{shown}{FORGED}"
    assert output.getvalue().split("\n") == [line, line, line, f"{line} of 2", ""]


def test_names_in_any_script_stay_as_they_are(output: io.StringIO) -> None:
    """And so do numbers with their formats."""
    logging.getLogger("gpuspawner-test").info("%s took %.1f s (%d)", "Zoë 王芳 Ольга", 2.25, 7)

    assert output.getvalue() == "[I] Zoë 王芳 Ольга took 2.2 s (7)\n"


def test_the_lines_of_a_message_and_of_a_traceback_stay_lines(output: io.StringIO) -> None:
    """The headers of a request as JSON, tornado's line with the request, and an exception with somebody's text."""
    log = logging.getLogger("gpuspawner-test")
    log.error('{\n  "Host": "hub"\n}')
    log.error("Uncaught exception %s\n%r", "GET /", "request")
    try:
        raise ValueError("\x1b[31mred")
    except ValueError:
        log.exception("It failed")

    lines = output.getvalue().rstrip().splitlines()
    assert lines[:6] == [
        "[E] {",
        '      "Host": "hub"',
        "    }",
        "[E] Uncaught exception GET /",
        "    'request'",
        "[E] It failed",
    ]
    assert lines[-1] == r"    ValueError: \x1b[31mred"
