"""Why a job does not run its server, as it reports it to the hub.

The batch script calls :func:`main` when it ends before its server has run, or when the server has failed: by then the
launcher may not have been unpacked, so the script reads it from its own text
(:mod:`jupyterhub_gpuspawner.batch.shell`).
What cannot be sent is not written to the log either, whose last line then is the hub's best explanation.
"""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.node import child, folder
from jupyterhub_gpuspawner.placement.topology import in_print
from jupyterhub_gpuspawner.wire.documents import (
    FAULTS_WITH_LINE,
    LOG_MARK,
    SLURM_LINE,
    NodeReport,
    PlacementDocument,
    StartFailure,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jupyterhub_gpuspawner.node.child import Say

SEND_SECONDS = 10.0
"""Seconds for all tries to send a failure: the job holds its GPUs meanwhile."""
READ_SECONDS = 2.0
"""Seconds to read the end of the log."""
SILENT_SECONDS = 20.0
"""Seconds after which a folder that takes no byte is silent; a file server that is only slow is done by then."""
TAIL = 8192
"""Bytes of the log that are read."""


def main(arguments: Sequence[str]) -> None:
    """Report to the hub; ``arguments``: the fault, what has failed, and the launcher's folder (both may be empty)."""
    from jupyterhub_gpuspawner.node import port

    fault, subject, launched = arguments
    if fault == "script" and port.remembered(launched):  # a site's own script does not say when it starts the server
        fault = "server"
    environ = dict(os.environ)
    try:
        folder.certificates_in_memory(environ)
    except (OSError, ValueError):
        return
    send(StartFailure(fault, subject, last_line() if fault in FAULTS_WITH_LINE else ""), environ)


def send(failure: StartFailure, environ: Mapping[str, str]) -> None:
    """Report a failure that ends the job, in a child process; gives up after :data:`SEND_SECONDS`."""
    from jupyterhub_gpuspawner.node.report import post_patiently

    node = environ.get("SLURMD_NODENAME") or os.uname().nodename
    placement = PlacementDocument(job_id=environ.get("SLURM_JOB_ID"), node=node)
    report = in_print(NodeReport(0, placement, failure=failure))
    try:
        child.ask(lambda _: post_patiently(report, environ), SEND_SECONDS)
    except OSError:  # no process can be had
        return


def last_line() -> str:
    """The last line in the job's log that is neither Slurm's nor ours; empty if it cannot be read in time."""
    stderr = f"/proc/{os.getpid()}/fd/2"  # the file itself: its path may name another one in this mount namespace

    def read(say: Say) -> None:
        with open(os.open(stderr, os.O_RDONLY | os.O_NONBLOCK), "rb") as log:
            about = os.fstat(log.fileno())
            if stat.S_ISREG(about.st_mode):
                log.seek(max(0, about.st_size - TAIL))
                say(line=last_of(log.read(TAIL).decode("utf-8", "replace")))

    try:
        documents, _ = child.ask_documents(read, READ_SECONDS)
    except OSError:
        return ""
    return str(documents[0]["line"]) if documents else ""


def last_of(text: str) -> str:
    """The last line of a log's end that a program of the job has written, without colours."""
    import re

    plain = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)
    others = re.compile(rf"{LOG_MARK}|\++ .*gpuspawner_|{SLURM_LINE}")
    lines = [line.strip() for line in plain.splitlines()]
    return next((line for line in reversed(lines) if line and not others.match(line)), "")


def report_if_silent(report: NodeReport, environ: Mapping[str, str], log: str) -> None:
    """Report the server once more, with the fault, if a folder is still faulty after :data:`SILENT_SECONDS`.

    In a process of its own: the server has started meanwhile. One that waits for its home then has its reason.
    """
    from jupyterhub_gpuspawner.node.report import fit, post_patiently, with_problems

    failure, sentence = folder.faulty_folder(environ, log, SILENT_SECONDS)
    if failure is not None:
        post_patiently(fit(replace(with_problems(report, [sentence]), failure=in_print(failure))), environ)
