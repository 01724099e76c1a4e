"""The launcher's entry: observe the node, choose GPUs and CPUs, bind, report to the hub, and exec the server.

``python3 launch.pyz --plan FILE -- COMMAND ARGUMENT…``; instead of FILE, the plan itself may be given as JSON.
Any step may fail: what could not be learned or done is a sentence in the report (``problems``), and the command is
started in any case.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.node import child, folder
from jupyterhub_gpuspawner.node.placing import Launch, NoGpus, entry, faults
from jupyterhub_gpuspawner.node.turn import wait_for_turn
from jupyterhub_gpuspawner.placement.topology import NodeTopology, to_document
from jupyterhub_gpuspawner.wire.documents import (
    UNKNOWN_STEP,
    LaunchPlan,
    NodeReport,
    PlacementDocument,
    StartFailure,
    Step,
    recover_plan,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping, Sequence
    from typing import NoReturn

    from jupyterhub_gpuspawner.node.report import PortReporter

USAGE = "usage: launch.pyz --plan FILE|JSON -- COMMAND [ARGUMENT...]"
VERBOSE = "GPUSPAWNER_VERBOSE"
"""If this variable is set, a launch without a report writes its placement to standard error, in one line."""
TAKEN = "--port-taken"
"""Argument used by the batch script after the server failed; exit code 0 if another process has taken its port."""
ENTRY = "--entry"
"""First argument of what is no launch: a ``module:function`` of the archive follows, and the function's arguments."""
PORT = "{port}"
"""Replaced in the command's arguments, for servers that do not read ``JUPYTERHUB_SERVICE_URL``."""


def launch(plan: LaunchPlan, command: Sequence[str], environ: MutableMapping[str, str], *problems: str) -> NoReturn:
    """Place this process, report the placement if the plan says so, and become ``command``.

    Changes ``environ`` and this process's CPU affinity and memory policy. Problems are written to standard error too.
    """
    placing = _placing(plan, environ)
    placing.problems[:0] = problems
    failure: StartFailure | None = None
    if plan.report:
        log, well = folder.log_folder(), (failure, "")
        failure, problem = placing.attempt("Writing a byte", lambda: folder.faulty_folder(environ, log), well)
        if failure is None or failure.fault not in folder.SILENT:  # a folder that is only slow is no problem
            placing.problems.extend(filter(None, [problem]))
    document, topology = placing.attempt(  # observe, determine what was granted, choose, bind
        "Placing the server", placing.place, (PlacementDocument(node=placing.node), NodeTopology())
    )
    if plan.report:
        placing.attempt("Holding the launcher's folder", lambda: folder.lock_and_clean_up(environ), None)
        for step in plan.before:
            placing.attempt(step.doing, partial(_take, step, environ, command), None)
        port = placing.attempt("Reporting", lambda: _report(placing, document, topology, failure), 0)
        command = [argument.replace(PORT, str(port)) for argument in command] if port else command
    elif environ.get(VERBOSE):
        gpus = f"GPUs {environ.get('CUDA_VISIBLE_DEVICES', 'not set') or 'none'}"
        cpus = f"CPUs {document.cpus or 'not known'}"
        child.complain(f"{document.node}: {gpus}; {cpus}; memory {document.memory_policy}")
        placing.problems.extend(faults(topology, range(len(topology.gpus))))
    for problem in dict.fromkeys(placing.problems):
        child.complain(problem)
    try:
        if plan.instead is not None:
            command = entry(plan.instead.entry)(plan.instead.settings, command, environ)
        child.exec_command(command, environ)
    except child.CommandError as error:  # what is missing is in the log
        if plan.report:
            from jupyterhub_gpuspawner.node.failure import send

            fault = "command" if error.code == child.NO_COMMAND else "command_refused"
            send(StartFailure(fault, error.command), environ)
        raise


def _take(step: Step, *arguments: object) -> None:
    entry(step.entry)(step.settings, *arguments)


def _placing(plan: LaunchPlan, environ: MutableMapping[str, str]) -> Launch:
    """The class for this launch: with GPUs that something chooses, with none, or the plain case."""
    if plan.choose is None:
        return Launch(plan, environ)
    why = "without the launch plan, it is unknown whether GPUs must be claimed on this node"
    if plan.choose != UNKNOWN_STEP:
        try:
            placing: Launch = entry(plan.choose.entry)(plan, environ)
        except Exception as error:  # noqa: BLE001 - the notebook always starts
            why = f"what chooses GPUs on this node failed: {type(error).__name__}: {error}"
        else:
            return placing
    nothing = NoGpus(plan, environ)
    nothing.problems.append(f"No GPU is used: {why}.")
    return nothing


def _report(placing: Launch, document: PlacementDocument, topology: NodeTopology, failure: StartFailure | None) -> int:
    """Announce the server, and set its URL in the environment; returns its port, 0 if it has none."""
    nothing = not topology.gpus and not topology.numa_nodes
    slow = failure is not None and failure.fault in folder.SILENT
    reported = None if slow else failure
    report = NodeReport(
        0, placing.with_problems(document), None if nothing else to_document(topology), failure=reported
    )
    announced = announce(report, placing.plan, placing.environ)
    if slow:
        from jupyterhub_gpuspawner.node.failure import report_if_silent

        environ, log = folder.for_another_process(placing.environ), folder.log_folder()
        child.detach(lambda: report_if_silent(report, environ, log))
    placing.problems.extend(announced.problems)
    if announced.service_url:
        placing.environ["JUPYTERHUB_SERVICE_URL"] = announced.service_url
    return announced.port


DEADLINE = 20.0
"""Seconds for picking the port and all tries of the first report together."""


@dataclass(frozen=True)
class Announcement:
    """The server's port, its URL with that port, and what went wrong."""

    port: int = 0
    service_url: str | None = None
    problems: tuple[str, ...] = ()


def announce(
    report: NodeReport, plan: LaunchPlan, environ: Mapping[str, str], *, deadline: float = DEADLINE
) -> Announcement:
    """Pick the server's port and deliver ``report``, both in a child process; port 0 if there is none to be had.

    Looking up a host name has no time limit of its own. The port itself is reported later, by a process beside the
    server, once the server listens there (:class:`~.report.PortReporter`). That process also takes the steps that go on
    beside the server.
    """
    from jupyterhub_gpuspawner.node.report import PortReporter, deliver, with_problems

    documents, finished = child.ask_documents(lambda say: deliver(say, report, plan.port_range, environ), deadline)
    port, service_url, problems, retry = 0, None, [], not finished
    for document in documents:
        if "port" in document:  # problems with the port, which belong in the report
            report = with_problems(report, document["problems"])
        port = document.get("port", port)
        service_url = document.get("service_url", service_url)
        problems += document.get("problems", ())
        retry = document.get("again", retry)
    if not finished:
        problems.append(f"Reporting to the hub timed out after {deadline:g} s.")
    if port and environ.get("JUPYTERHUB_API_URL"):
        if retry:
            # in one sentence: where the server then fails, this is the last line of the log that is ours
            reason = "".join(problems[-1:]).rstrip(".")
            problems[-1:] = [f"{reason}. The report will be sent again for up to ten minutes."]
        reporter = PortReporter(report, port, folder.for_another_process(environ), os.getpid(), is_reported=not retry)
        child.detach(lambda: accompany(reporter, plan.beside))
    return Announcement(port, service_url, tuple(problems))


def accompany(reporter: PortReporter, steps: Sequence[Step]) -> None:
    """Report the server's port, and take the steps in threads of their own, until the server has ended.

    A step gets a function that waits for so many seconds, or until the server has ended, and returns whether it has.
    """
    if not steps:
        return reporter.run()
    import gc
    import threading

    gc.enable()  # the launcher, whose fork this is, has no time for it
    over = child.wait_for_end(reporter.server)
    reporting = threading.Thread(target=reporter.run, daemon=True)
    others = [threading.Thread(target=_take, args=(step, reporter, over), daemon=True) for step in steps]
    for thread in (reporting, *others):
        thread.start()
    for thread in others:
        thread.join()
    if not over(0):
        reporting.join()
    return None


def parse_arguments(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """Split the arguments into plan (a file name or JSON; empty if none is given) and command; raises ValueError."""
    words = list(arguments)
    plan = ""
    while words and words[0] != "--":
        word = words.pop(0)
        if word == "--plan" and words:
            plan = words.pop(0)
        elif word.startswith("--plan="):
            plan = word[len("--plan=") :]
        else:
            raise ValueError(f"{word}: unknown argument")
    if len(words) < 2:
        raise ValueError("there is no command after --")
    return plan, words[1:]


def read_plan(text: str) -> tuple[LaunchPlan, str]:
    """Read the plan that ``text`` is, or whose file it names; returns it with its faults. Raises OSError."""
    if not text:
        return LaunchPlan(), ""
    if text.lstrip().startswith("{"):
        return recover_plan(text)
    with open(text, encoding="utf-8", errors="replace") as file:
        return recover_plan(file.read())


def _open_standard() -> None:
    """Open the null device for each of standard input, output and error that is closed.

    Otherwise the next file, or the connection to the hub, would get that number, and log messages would go there.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
            os.set_inheritable(number, True)


def main(arguments: Sequence[str]) -> NoReturn:
    """The zipapp's entry: ``--plan FILE|JSON -- COMMAND ARGUMENT…``; exits with 2 for other arguments."""
    _open_standard()
    if arguments[:1] == [ENTRY]:
        raise SystemExit(entry(arguments[1])(arguments[2:]))
    if list(arguments) == [TAKEN]:
        from jupyterhub_gpuspawner.node import port

        raise SystemExit(0 if port.is_taken(os.path.dirname(os.path.abspath(sys.argv[0]))) else 1)
    try:
        text, command = parse_arguments(arguments)
    except ValueError as error:
        child.complain(f"{error}; {USAGE}")
        raise SystemExit(2) from None
    problems = []
    try:
        plan, fault = read_plan(text)
    except Exception as error:  # noqa: BLE001 - it belongs to this one file
        plan, fault = LaunchPlan(choose=UNKNOWN_STEP), str(error)
    if fault:
        problems.append(f"The launch plan could not be read: {fault}")
    try:
        folder.unpack_certificates(os.environ, os.path.dirname(os.path.abspath(sys.argv[0])))
    except (OSError, ValueError) as error:
        problems.append(f"The server's certificates could not be written: {error}")
    wait_for_turn(os.environ)
    os.environ.update(GPUSPAWNER_PYTHON=sys.executable, GPUSPAWNER_LAUNCHER=os.path.abspath(sys.argv[0]))
    launch(plan, command, os.environ, *problems)
