"""The shell lines that bring the launcher to the node, inside the batch script, and those that call it."""

from __future__ import annotations

import base64
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jupyterhub_gpuspawner.wire import LaunchPlan

PYTHONS = "python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9"
"""Names looked for in the job's PATH, the environment's own first."""

_UNPACK = """\
# --- gpuspawner: the launcher (a Python zipapp in base64) and its plan, in a private folder that goes with the job
gpuspawner_umask=$(umask)
umask 077
GPUSPAWNER_FOLDER=$(mktemp -d "${TMPDIR:-/tmp}/gpuspawner.XXXXXXXXXX") || exit 1
trap 'rm -rf -- "$GPUSPAWNER_FOLDER"' EXIT
GPUSPAWNER_LAUNCHER=$GPUSPAWNER_FOLDER/launch.pyz
GPUSPAWNER_PLAN=$GPUSPAWNER_FOLDER/plan.json
cat > "$GPUSPAWNER_PLAN" <<'END_OF_PLAN'
@PLAN@
END_OF_PLAN
base64 -d > "$GPUSPAWNER_LAUNCHER" <<'END_OF_LAUNCHER'
@LAUNCHER@
END_OF_LAUNCHER
umask "$gpuspawner_umask"
# --- gpuspawner: end of the launcher"""

_FIND_PYTHON = """\
# A Python for the launcher: 3.9 or newer; GPUSPAWNER_PYTHON may name one
gpuspawner_server=$(command -v -- @SERVER@ || true)
for gpuspawner_try in "${GPUSPAWNER_PYTHON:-}" @PYTHONS@ \\
        "${gpuspawner_server%/*}/python3" /usr/bin/python3 /usr/libexec/platform-python none; do
    [ -n "$gpuspawner_try" ] || continue
    "$gpuspawner_try" -S -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null && break
done
GPUSPAWNER_PYTHON=$gpuspawner_try"""

_NO_PYTHON = """\
if [ "$GPUSPAWNER_PYTHON" = none ]; then
    echo "gpuspawner: no Python 3.9 or newer on $(hostname); load a module that has one, or set GPUSPAWNER_PYTHON" >&2
    exit 1
fi"""

_LATER_PYTHON = """\
# none yet: one that the lines below bring
[ "$GPUSPAWNER_PYTHON" != none ] || GPUSPAWNER_PYTHON=python3"""

_SRUN = """\
# srun does not take --cpus-per-task from its job (since Slurm 22.05)
[ -z "${SLURM_CPUS_PER_TASK:-}" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK"""


def unpack(launcher: bytes, plan: LaunchPlan) -> str:
    """Lines that write launcher and plan, and remove them when the script ends."""
    text = base64.b64encode(launcher).decode("ascii")
    encoded = "\n".join(text[start : start + 120] for start in range(0, len(text), 120))
    return _UNPACK.replace("@PLAN@", plan.dumps()).replace("@LAUNCHER@", encoded)


def find_python(command: Sequence[str], *, now: bool) -> str:
    """Lines that set ``GPUSPAWNER_PYTHON``; unless ``now``, one that later lines bring will do."""
    lines = _FIND_PYTHON.replace("@SERVER@", shlex.quote(command[0])).replace("@PYTHONS@", PYTHONS)
    return f"{lines}\n{_NO_PYTHON if now else _LATER_PYTHON}"


def srun_cpus() -> str:
    """Lines that give a job step the CPUs of its job."""
    return _SRUN


def call(command: Sequence[str]) -> str:
    """The command that launches the server; raises ValueError where a word is not printable."""
    for word in command:
        if not word.isprintable():
            raise ValueError(f"{word!r} in the server's command is not printable")
    words = " ".join(shlex.quote(word) for word in command)
    return f'"$GPUSPAWNER_PYTHON" "$GPUSPAWNER_LAUNCHER" --plan "$GPUSPAWNER_PLAN" -- {words}'
