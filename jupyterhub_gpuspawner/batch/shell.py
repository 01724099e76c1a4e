"""The shell lines of a batch script: the profile's environment, the launcher brought to the node, and its call."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Sequence
from dataclasses import replace

from jupyterhub_gpuspawner.profiles.program import ServerCommand
from jupyterhub_gpuspawner.profiles.resources import Environment
from jupyterhub_gpuspawner.wire.documents import LaunchPlan

_FAIL = """\
gpuspawner_fail() { gpuspawner_fault=$1; gpuspawner_subject=$2; echo "gpuspawner: $3" >&2; exit 1; }"""
PYTHONS = "python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9"
"""Names that are searched in the job's PATH, the environment's own Python first."""

_UNPACK = """\
# --- gpuspawner: the launcher (a Python zipapp in base64) and its plan, in a private folder of the job
gpuspawner_plan() { command printf '%s\\n' \\
@PLAN@
}
gpuspawner_launcher() ( { set +x; } 2>/dev/null; command printf '%s\\n' '
@LAUNCHER@
' )
# Use the first folder that can hold both. No here-documents: the shell would write them to TMPDIR. The name is known
# before there is such a folder: who ends this shell meanwhile leaves none behind
gpuspawner_name=$(
    { set +eux; } 2>/dev/null
    PATH=/usr/bin:/bin:${PATH:-}
    gpuspawner_name=$(command uname -n) || exit 1
    case $gpuspawner_name in *[!A-Za-z0-9._-]*) gpuspawner_name=node ;; esac
    command mktemp -u "gpuspawner.$gpuspawner_name.XXXXXXXXXX"
) || gpuspawner_name=
gpuspawner_unpack() (
    { set +eux; } 2>/dev/null
    set +C
    umask 077
    PATH=/usr/bin:/bin:${PATH:-}
    gpuspawner_folder=
    trap '[ -z "$gpuspawner_folder" ] || command rm -rf -- "$gpuspawner_folder"; exit 143' TERM INT HUP PIPE
    [ -n "$gpuspawner_name" ] || exit 1
    gpuspawner_last=
    for gpuspawner_try in "${TMPDIR:-/tmp}" /tmp /dev/shm "${HOME:-/nonexistent}"; do
        gpuspawner_try=$gpuspawner_try/$gpuspawner_name
        [ "$gpuspawner_try" != "$gpuspawner_last" ] || continue
        gpuspawner_last=$gpuspawner_try
        gpuspawner_folder=$gpuspawner_try
        case $gpuspawner_try in
            /*) gpuspawner_why=$(command mkdir -m 700 -- "$gpuspawner_try" 2>&1) ;;
            *) gpuspawner_why="not a full path"; false ;;
        esac || gpuspawner_folder=
        [ -n "$gpuspawner_folder" ] && gpuspawner_why=$(
            { command printf '%s %s\\n' "$$" "${SLURM_JOB_ID:-}" > "$gpuspawner_folder/shell" &&
                gpuspawner_plan > "$gpuspawner_folder/plan.json" &&
                gpuspawner_launcher | command base64 -d > "$gpuspawner_folder/launch.pyz"; } 2>&1
        ) && command printf '%s\\n' "$gpuspawner_folder" && exit 0
        command printf 'gpuspawner: %s cannot be used for the launcher: %s\\n' \\
            "${gpuspawner_try%/*}" "${gpuspawner_why:-it cannot be written}" >&2
        [ -z "$gpuspawner_folder" ] || command rm -rf -- "$gpuspawner_folder"
        gpuspawner_folder=
    done
    exit 1
)
@REMOVE@trap @AT_EXIT@ EXIT
GPUSPAWNER_FOLDER=$(gpuspawner_unpack) || GPUSPAWNER_FOLDER=
gpuspawner_name=
GPUSPAWNER_LAUNCHER=$GPUSPAWNER_FOLDER/launch.pyz
GPUSPAWNER_PLAN=$GPUSPAWNER_FOLDER/plan.json
# --- gpuspawner: end of the launcher"""

_REMOVE = """\
gpuspawner_remove() {
    PATH=/usr/bin:/bin:${PATH:-}
    if [ -n "${GPUSPAWNER_FOLDER:-}" ]; then
        set -- "$GPUSPAWNER_FOLDER"
    elif [ -n "${gpuspawner_name:-}" ]; then # it was being made
        set -- "${TMPDIR:-/tmp}/$gpuspawner_name" "/tmp/$gpuspawner_name" "/dev/shm/$gpuspawner_name" \\
            "${HOME:-/nonexistent}/$gpuspawner_name"
    else
        return 0
    fi
    # again, if a process that ends with the server wrote there meanwhile
    command rm -rf -- "$@" || { command sleep 1; command rm -rf -- "$@"; } || :
}
"""

_REPORT = """\
# --- gpuspawner: if the job ends before its server has run, it reports why. The launcher is read from this script
gpuspawner_fault=setup
gpuspawner_report() (
    [ -n "${gpuspawner_fault:-}" ] || exit 0
    { set +eux; } 2>/dev/null
    PATH=${PATH:-}:/usr/bin:/bin
    for gpuspawner_try in "${GPUSPAWNER_PYTHON:-}" @PYTHONS@ \\
            /usr/bin/python3 /usr/libexec/platform-python; do
        gpuspawner_try=$(unset -f python3; unalias python3 2>/dev/null; command -v -- "$gpuspawner_try") || continue
        "$gpuspawner_try" -I -c '
@BOOTSTRAP@
' \\
            "$0" "$gpuspawner_fault" "${gpuspawner_subject:-}" "${GPUSPAWNER_FOLDER:-}" </dev/null
        case $? in 99 | 126 | 127) ;; *) break ;; esac
    done
)
@REMOVE@gpuspawner_end() {
    gpuspawner_status=$?
    trap : TERM INT HUP # a signal ends the report, and not what follows it
    case $gpuspawner_status:${gpuspawner_fault:-} in
        *: | 0:script | 129:* | 130:* | 143:*) ;;
        *) gpuspawner_report || : ;;
    esac
    gpuspawner_remove
}
trap gpuspawner_end EXIT
# Other shells than bash do nothing at their end where a signal is their end
[ -n "${BASH_VERSION:-}" ] || { trap 'exit 129' HUP; trap 'exit 130' INT; trap 'exit 143' TERM; }"""
AT_EXIT = "gpuspawner_end"
"""The function of :func:`report_failure` that a script runs at its end."""
_FROM_SCRIPT = """\
import sys
sys.excepthook = lambda *_: None
if sys.version_info < (3, 9):
    sys.exit(99)
import base64, os, re, tempfile
lines = re.search(rb"\\n((?:[A-Za-z0-9+/=]{120}\\n){9,}[A-Za-z0-9+/=]+)\\n", open(sys.argv[1], "rb").read())
try:
    memory = getattr(os, "memfd_create", None)  # conda builds its Pythons for a libc that lacks it
    file = open(memory("launch.pyz"), "wb", 0) if memory else tempfile.TemporaryFile("wb", 0)
except OSError:
    sys.exit(99)
file.write(base64.b64decode(lines[1]))
sys.path.insert(0, "/proc/self/fd/%d" % file.fileno())
from jupyterhub_gpuspawner.node.failure import main
main(sys.argv[2:])"""

_FIND_PYTHON = """\
gpuspawner_fault=launcher
# Find a Python for the launcher: 3.9 or newer; GPUSPAWNER_PYTHON may name one. PYTHONHOME and similar variables are
# ignored (-I), and so are functions and aliases called python3
gpuspawner_server=$(command -v -- @SERVER@ || :)
gpuspawner_found=none
for gpuspawner_try in "${GPUSPAWNER_PYTHON:-}" @PYTHONS@ \\
        "${gpuspawner_server%/*}/python3" /usr/bin/python3 /usr/libexec/platform-python; do
    gpuspawner_try=$(unset -f python3 || :; unalias python3 2>/dev/null || :; command -v -- "$gpuspawner_try") ||
        continue
    [ "$("$gpuspawner_try" -I -S -c 'import sys, zlib; print(sys.version_info >= (3, 9))' \\
        2>/dev/null </dev/null)" = True ] || continue
    gpuspawner_found=$gpuspawner_try
    break
done
GPUSPAWNER_PYTHON=$gpuspawner_found
if [ -n "${PYTHONHOME:-}" ]; then
    gpuspawner_try=${gpuspawner_server%/*}/python3
    [ -x "$gpuspawner_try" ] || gpuspawner_try=$GPUSPAWNER_PYTHON
    if ! "$gpuspawner_try" -S -c '' 2>/dev/null && "$gpuspawner_try" -I -S -c '' 2>/dev/null; then
        echo "gpuspawner: with PYTHONHOME=$PYTHONHOME $gpuspawner_try does not start: it is unset for the server" >&2
        unset PYTHONHOME
    fi
fi"""

_NO_PYTHON = """\
if [ "$GPUSPAWNER_PYTHON" = none ]; then
    echo "gpuspawner: no Python 3.9 or newer on $(hostname); load a module that has one, or set GPUSPAWNER_PYTHON" >&2
    exit 1
fi"""

_HOLD = """\
# No folder can hold the launcher: a process keeps it in memory while this script runs
if [ -z "$GPUSPAWNER_FOLDER" ]; then
    GPUSPAWNER_PLAN=$(gpuspawner_plan)
    GPUSPAWNER_LAUNCHER=$(gpuspawner_launcher | "$GPUSPAWNER_PYTHON" -I -c '
import base64, os, sys, time
archive = base64.b64decode(sys.stdin.buffer.read())
with os.fdopen(os.memfd_create("launch.pyz"), "wb") as file:
    file.write(archive)
    file.flush()
    holder = os.fork()
    if holder:
        print(f"/proc/{holder}/fd/{file.fileno()}")
        os._exit(sys.stdout.flush() or 0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in 0, 1, 2:
        os.dup2(nothing, standard)
    while os.path.exists(f"/proc/{sys.argv[1]}"):
        time.sleep(1)
' "$$") || {
        echo "gpuspawner: neither a folder nor the memory of $(hostname) can hold the launcher: no server" >&2
        exit 1
    }
    echo "gpuspawner: no folder could hold the launcher; it is kept in memory" >&2
fi"""

_LATER_PYTHON = """\
# none yet: use the one that the lines below provide
[ "$GPUSPAWNER_PYTHON" != none ] || GPUSPAWNER_PYTHON=python3"""

_OWN_LOG = """\
# The log moves to a folder of its own, in which the last @KEPT@ are kept: Slurm, which has it open, goes on writing to
# it. It stays where the folder is on another file system, or cannot be made
(
    { set +eux; } 2>/dev/null
    PATH=/usr/bin:/bin:${PATH:-}
    gpuspawner_log=@LOG@
    gpuspawner_logs=@FOLDER@
    command mkdir -p -m 700 -- "$gpuspawner_logs" && cd -- "$gpuspawner_logs" &&
        command ln -- "$gpuspawner_log" ".$SLURM_JOB_ID" && command rm -f -- ".$SLURM_JOB_ID" &&
        command mv -f -- "$gpuspawner_log" . &&
        command ls -t | command grep -x 'jupyterhub-[0-9]*\\.log' | command tail -n +@MORE@ |
            while read -r gpuspawner_log; do command rm -f -- "$gpuspawner_log"; done
) </dev/null >/dev/null 2>&1 || :"""

_SRUN = """\
# Since Slurm 22.05, srun does not inherit --cpus-per-task from its job
[ -z "${SLURM_CPUS_PER_TASK:-}" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK"""


def setup_lines(environment: Environment) -> list[str]:
    """Shell lines that set up the profile's environment; a step that fails ends the job and says what failed."""
    steps: list[str] = []
    if environment.modules or environment.module_use:
        steps.append(
            "type module >/dev/null 2>&1 || " + _fail("module_command", "", "there is no module command on this node")
        )
    steps += [
        f"module use {shlex.quote(folder)} || " + _fail("module_path", folder, f"module use {folder} failed")
        for folder in environment.module_use
    ]
    steps += [
        f"module load {shlex.quote(name)} || " + _fail("module", name, f"module {name} cannot be loaded")
        for name in environment.modules
    ]
    if environment.conda:
        missing = _fail("conda_command", "", "there is no conda command on this node")
        steps.append(f"type conda >/dev/null 2>&1 || {missing}")
        failed = _fail("conda", environment.conda, f"conda environment {environment.conda} cannot be activated")
        steps.append(f'eval "$(conda shell.bash hook)" && conda activate {_path(environment.conda)} || {failed}')
    if environment.venv:
        activate = _path(f"{environment.venv}/bin/activate")
        sentence = f"virtual environment {environment.venv} cannot be activated"
        steps.append(f"source {activate} || " + _fail("venv", environment.venv, sentence))
    steps += [f"export {name}={shlex.quote(value)}" for name, value in environment.variables.items()]
    if any(" || gpuspawner_fail " in step for step in steps):
        steps.insert(0, _FAIL)
    return [*steps, *environment.setup]


def _fail(fault: str, subject: str, sentence: str) -> str:
    return f"gpuspawner_fail {fault} {shlex.quote(subject)} {shlex.quote(sentence)}"


def report_failure() -> str:
    """Lines that have the job report to the hub why it ends before its server has run.

    ``gpuspawner_fault`` is the step that is being taken, one of ``FAULTS`` of
    :mod:`~jupyterhub_gpuspawner.wire.bounds`; it is empty once nothing is to be reported. They precede all
    other lines: the profile's may end the job.
    """
    return _REPORT.replace("@PYTHONS@", PYTHONS).replace("@BOOTSTRAP@", _FROM_SCRIPT).replace("@REMOVE@", _REMOVE)


def _path(path: str) -> str:
    """Quote a path, except for a leading ``~/``, which is the user's home."""
    if path.startswith("~/"):
        return '"$HOME"/' + shlex.quote(path.removeprefix("~/"))
    return shlex.quote(path)


def in_container(environment: Environment, command: ServerCommand, *, gpu: bool) -> ServerCommand:
    """The server's command, run in the profile's container if it has one. ``gpu``: whether the job requests GPUs."""
    container = environment.container
    if container is None:
        return command
    nv = ("--nv",) if (container.nv if container.nv is not None else gpu) else ()
    bound = (word for folder in (*container.binds, *command.shared) for word in ("--bind", folder))
    return replace(command, words=(container.runtime, "exec", *nv, *bound, container.image, *command.words))


def unpack(launcher: bytes, plan: LaunchPlan, *, at_exit: str = "") -> str:
    """Lines that write launcher and plan to the first folder that can hold them, and remove them when the script ends.

    ``at_exit``: what the script runs at its end, :data:`AT_EXIT`; empty: only the removal.

    TMPDIR, /tmp, /dev/shm and the user's home are tried in this order, by writing. The lines are POSIX shell, since a
    site's own script may be run by sh. The folder's name contains that of the node, so that no other node that shares
    its parent removes it (:mod:`jupyterhub_gpuspawner.node.folder`).
    """
    text = base64.b64encode(launcher).decode("ascii")
    encoded = "\n".join(text[start : start + 120] for start in range(0, len(text), 120))
    lines = _UNPACK.replace("@PLAN@", shlex.quote(plan.dumps())).replace("@REMOVE@", "" if at_exit else _REMOVE)
    lines = lines.replace("@AT_EXIT@", at_exit or "gpuspawner_remove")
    return lines.replace("@LAUNCHER@", encoded)


def find_python(server: str, *, now: bool) -> str:
    """Lines that set ``GPUSPAWNER_PYTHON``, which may lie beside the program ``server``.

    With ``now`` they fail if there is no Python yet, else it may come later.
    If :func:`unpack` found no folder, they keep the launcher in memory.
    """
    lines = _FIND_PYTHON.replace("@SERVER@", shlex.quote(server)).replace("@PYTHONS@", PYTHONS)
    return f"{lines}\n{_NO_PYTHON if now else _LATER_PYTHON}\n{_HOLD}"


KEPT_LOGS = 20
"""Logs of a person that are kept in the folder that jobs make themselves."""


def own_log(log: str, folder: str) -> str:
    """Lines that move the job's log to ``folder``, which they make; ``log`` is its path, with ``%j`` for the job id.

    Slurm opens the log before the script runs, and does not make a folder for it.
    """
    path = '"$SLURM_JOB_ID"'.join(map(shlex.quote, log.split("%j")))
    lines = _OWN_LOG.replace("@KEPT@", str(KEPT_LOGS)).replace("@MORE@", str(KEPT_LOGS + 1))
    return lines.replace("@LOG@", path).replace("@FOLDER@", shlex.quote(folder))


def srun_cpus() -> str:
    """Lines that let a job step use all CPUs of its job."""
    return _SRUN


def call(command: Sequence[str]) -> str:
    """The command that launches the server; raises ValueError if a word is not printable."""
    for word in command:
        if not word.isprintable():
            raise ValueError(f"{word!r} in the server's command is not printable")
    words = shlex.join(command)
    return f'"$GPUSPAWNER_PYTHON" -I "$GPUSPAWNER_LAUNCHER" --plan "$GPUSPAWNER_PLAN" -- {words}'
