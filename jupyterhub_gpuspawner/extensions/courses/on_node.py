"""What a job of ``course rehearse --real`` looks at on its node: the home folder, the GPU and the course's materials.

Its source is part of the batch script: standard library only, Python 3.9. Each fact is one line of the job's log.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

MARK = "gpuspawner-check"
"""The first word of a line that is a fact."""
SIZE = 1 << 20
"""Bytes that are written to the home folder: a quota that is reached may still take an empty file."""
SECONDS = 20
"""Time limit of a program."""


def say(fact: str, why: str) -> None:
    """Write one fact to the job's log; ``why`` is empty where nothing is wrong."""
    sys.stdout.write(f"{MARK} {fact} {json.dumps({'why': why})}\n")
    sys.stdout.flush()


def home_fault() -> str:
    """Why nothing can be written to the home folder."""
    path = Path.home() / f".gpuspawner-rehearsal-{os.getpid()}"
    try:
        with path.open("xb") as file:
            file.write(b"\0" * SIZE)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error.strerror or str(error)
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
    return ""


def gpu_fault() -> str:
    """Why the job sees no GPU."""
    if not os.environ.get("CUDA_VISIBLE_DEVICES") and not os.environ.get("SLURM_JOB_GPUS"):
        return "Slurm has given the job no GPU"
    program = shutil.which("nvidia-smi")
    return run([program, "-L"]) if program else ""


def materials_fault(git: str, branch: str) -> str:
    """Why the node cannot fetch the course's repository."""
    program = shutil.which("git")
    if program is None:
        return "there is no git"
    return run([program, "ls-remote", "--exit-code", "--heads", git, branch])


def run(command: list[str]) -> str:
    """Why a program fails, in its last line; empty where it does not."""
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False, env=environment)
    except subprocess.TimeoutExpired:
        return f"{Path(command[0]).name} took more than {SECONDS} s"
    except OSError as error:
        return error.strerror or str(error)
    if done.returncode == 0:
        return ""
    lines = (done.stderr or done.stdout).strip().splitlines()
    return lines[-1] if lines else f"{Path(command[0]).name} ended with exit code {done.returncode}"


def main(gpus: bool, git: str, branch: str) -> None:
    """Look at everything."""
    say("home", home_fault())
    if gpus:
        say("gpu", gpu_fault())
    if git:
        say("materials", materials_fault(git, branch))


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
