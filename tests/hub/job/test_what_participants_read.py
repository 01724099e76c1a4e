"""What a participant reads of an error contains nothing that is an administrator's."""

from __future__ import annotations

import ast
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from jinja2 import Environment, PackageLoader
from jupyterhub.scopes import parse_scopes

import jupyterhub_gpuspawner
from jupyterhub_gpuspawner.errors import (
    ConfigError,
    GPUSpawnerError,
    RequestError,
    SlurmOutputError,
    SlurmUnavailable,
    SubmitRejected,
)
from jupyterhub_gpuspawner.hub.job.cause import start_failed
from jupyterhub_gpuspawner.hub.job.ending import Ending
from jupyterhub_gpuspawner.hub.job.ending_words import words_of
from jupyterhub_gpuspawner.hub.job.failed_start import ending_of, spawn_failure
from jupyterhub_gpuspawner.hub.jupyterhub_compat import is_admin
from jupyterhub_gpuspawner.slurm.commands import CommandMissing
from jupyterhub_gpuspawner.slurm.job import Job, Phase
from jupyterhub_gpuspawner.slurm.messages import failure, not_cancelled, rejected
from jupyterhub_gpuspawner.slurm.reason import Words
from tests.slurm.recorded import all_recorded

ADMINS = re.compile(
    r"\b(sbatch|squeue|scontrol|scancel|sinfo|sacctmgr|slurmctld|slurmd|slurmdbd|munge|sudo|sudoers|PAM|systemd"
    r"|exec_prefix|wrapper_dir|slurm_\w+|req_\w+|profiles?_dir|password)\b|c\.\w+\.\w+|(^|[\s'\"(])/\w|`|--\w|\.py\b"
)
"""Commands, settings, paths and what sudo says."""

SUDO = (
    "sudo: a password is required",
    "sudo: a terminal is required to read the password; either use the -S option",
    "sudo: unknown user: ada",
    "hub is not in the sudoers file.  This incident will be reported.",
    "sudo: /usr/bin/sbatch: command not found",
    "runuser: cannot open session: PAM",
)
SILENCE = (
    "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
    "sbatch: error: Batch job submission failed: Protocol authentication error",
    "sbatch: fatal: Could not establish a configuration source",
    "sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received",
)


def errors() -> Iterator[tuple[str, GPUSpawnerError]]:
    """Errors of every class and source that a start can raise."""
    for text in (*SUDO, *SILENCE):
        error = failure("sbatch", text)
        assert error is not None, text
        yield text, error
    for answer in all_recorded("sbatch"):
        if answer.code != 0:
            yield f"{answer.version} {answer.name}", rejected(answer.stderr)
    forbidden = not_cancelled("7", "scancel: error: Kill job error on job id 7: Access/permission denied")
    assert forbidden is not None
    yield "scancel", forbidden
    instances: tuple[GPUSpawnerError, ...] = (
        GPUSpawnerError("/etc/x"),
        ConfigError("sbatch was not run: sudo asks for a password.", where="exec_prefix", hint="Allow it (NOPASSWD)."),
        SlurmUnavailable("sbatch did not respond within 10 s.", hint="Check `scontrol ping`."),
        CommandMissing("Slurm's command '/no/such/sbatch' does not exist.", hint="Set slurm_bin_dir."),
        SlurmOutputError("sbatch accepted the job but printed no job id.", raw="/etc/x"),
        SubmitRejected("Slurm refused the job: /etc/slurm/job_submit.lua:7: nil."),
    )
    for error in instances:
        yield type(error).__name__, error


ERRORS = dict(errors())


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS.keys())
def test_no_setting_command_path_or_word_of_sudo_reaches_a_participant(error: GPUSpawnerError) -> None:
    """On the page, in REST and in the progress stream; an administrator reads all of it."""
    failed = spawn_failure(error, contact="the help desk")
    ending = ending_of(failed)

    assert ending is not None
    words_shown = words_of(ending, contact="the help desk")
    shown = {name: str(vars(failed)[name]) for name in ("jupyterhub_message", "jupyterhub_html_message")}
    read = [words_shown.sentence, words_shown.advice, *(re.sub("</?p>", "", text) for text in shown.values())]
    assert [text for text in read if ADMINS.search(text)] == []
    assert "the help desk" in words_shown.advice
    assert error.message in words_shown.hint or words_shown.sentence == error.message


REFUSED = "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified"
WAITED = Job("7", Phase.QUEUED, reason="Priority")
ENDINGS = (Ending(start_failed("timeout"), job=WAITED), Ending(start_failed("refused"), printed=REFUSED))
WITHOUT_FILES = """
import pickle, resource, sys
from jupyterhub_gpuspawner.hub.job.ending_words import words_of

endings = pickle.load(sys.stdin.buffer)
resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
print([words_of(ending) for ending in endings])
"""


def test_a_hub_without_a_file_left_has_its_words_all_the_same() -> None:
    """Those of Slurm's messages, reasons and jobs, and of failed starts: nothing is read when a page first needs it."""
    program = [sys.executable, "-c", WITHOUT_FILES]
    answer = subprocess.run(program, input=pickle.dumps(ENDINGS), capture_output=True, check=False)

    assert (answer.stderr.decode(), answer.stdout.decode()) == ("", f"{[words_of(ending) for ending in ENDINGS]}\n")


def _raised() -> Iterator[tuple[str, str]]:
    """Constant parts of each ``for_user`` that the package gives to an error, and of each RequestError's message."""
    root = Path(jupyterhub_gpuspawner.__file__).parent
    for path in root.rglob("*.py"):
        if path.relative_to(root).parts[0] in ("cli", "demo", "measure"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            arguments = [word.value for word in node.keywords if word.arg == "for_user"]
            if node.func.id == "RequestError":
                arguments = [*node.args, *(word.value for word in node.keywords if word.arg == "hint")]
            for value in arguments:
                texts = [part.value for part in ast.walk(value) if isinstance(part, ast.Constant)]
                yield f"{path.stem}:{node.lineno}", " ".join(text for text in texts if isinstance(text, str))


def test_every_sentence_for_participants_in_the_package_is_free_of_them() -> None:
    """Wherever an error is raised; RequestErrors are for participants as a whole."""
    sentences = dict(_raised())

    assert len(sentences) > 10
    assert {where: text for where, text in sentences.items() if ADMINS.search(text)} == {}
    assert RequestError("gpus: 9 is too many.", hint="At most 4.").for_user == "gpus: 9 is too many. At most 4."


@pytest.mark.parametrize(
    ("scopes", "reads"),
    [
        ({"admin:servers"}, True),
        ({"admin:servers!group=course"}, False),
        ({"servers", "list:users"}, False),
        (set(), False),
    ],
)
def test_the_pages_fold_it_for_administrators_alone(scopes: set[str], reads: bool) -> None:
    """Those who have access to every server's state; everybody else's page has none of it."""
    templates = Environment(loader=PackageLoader("jupyterhub_gpuspawner.hub.web"), autoescape=True)
    macro = templates.get_template("gpuspawner_ending.html").module.details  # type: ignore[attr-defined]
    ending = Ending(start_failed("configuration"), quoted=Words("Oh.", hint="sudo asks for a <password>"))
    page = BeautifulSoup(macro(ending, words_of(ending), "/log", is_admin(parse_scopes(scopes))), "html.parser")
    folded = page.select("details:not([open])")

    assert [" ".join(details.get_text(" ").split()) for details in folded] == (
        ["For administrators sudo asks for a <password>"] if reads else []
    )
    assert ("password" in page.get_text()) is reads
