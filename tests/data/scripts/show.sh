#!/bin/bash -l
# A JupyterHub server, profile course. Written by jupyterhub-gpuspawner.
#SBATCH --job-name=jupyterhub
#SBATCH --comment=jupyterhub-gpuspawner/site/ada/second
#SBATCH --output=/var/log/jupyter/ada/jupyterhub-%j.log
#SBATCH --chdir=/home/ada
#SBATCH --export=ALL
#SBATCH --no-requeue
#SBATCH --nodes=1
#SBATCH --partition=gpu
#SBATCH --account=course42
#SBATCH --time=8:00:00
#SBATCH --cpus-per-task=8
#SBATCH --mem=32768M
#SBATCH --gres=gpu:a100:2
#SBATCH --ntasks=1
#SBATCH --gres-flags=enforce-binding
#SBATCH --mail-type=END

# --- gpuspawner: if the job ends before its server has run, it reports why. The launcher is read from this script
gpuspawner_fault=setup
gpuspawner_report() (
    [ -n "${gpuspawner_fault:-}" ] || exit 0
    { set +eux; } 2>/dev/null
    PATH=${PATH:-}:/usr/bin:/bin
    for gpuspawner_try in "${GPUSPAWNER_PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9 \
            /usr/bin/python3 /usr/libexec/platform-python; do
        gpuspawner_try=$(unset -f python3; unalias python3 2>/dev/null; command -v -- "$gpuspawner_try") || continue
        "$gpuspawner_try" -I -c '
import sys
sys.excepthook = lambda *_: None
if sys.version_info < (3, 9):
    sys.exit(99)
import base64, os, re, tempfile
lines = re.search(rb"\n((?:[A-Za-z0-9+/=]{120}\n){9,}[A-Za-z0-9+/=]+)\n", open(sys.argv[1], "rb").read())
try:
    memory = getattr(os, "memfd_create", None)  # conda builds its Pythons for a libc that lacks it
    file = open(memory("launch.pyz"), "wb", 0) if memory else tempfile.TemporaryFile("wb", 0)
except OSError:
    sys.exit(99)
file.write(base64.b64decode(lines[1]))
sys.path.insert(0, "/proc/self/fd/%d" % file.fileno())
from jupyterhub_gpuspawner.node.failure import main
main(sys.argv[2:])
' \
            "$0" "$gpuspawner_fault" "${gpuspawner_subject:-}" "${GPUSPAWNER_FOLDER:-}" </dev/null
        case $? in 99 | 126 | 127) ;; *) break ;; esac
    done
)
gpuspawner_remove() {
    PATH=/usr/bin:/bin:${PATH:-}
    if [ -n "${GPUSPAWNER_FOLDER:-}" ]; then
        set -- "$GPUSPAWNER_FOLDER"
    elif [ -n "${gpuspawner_name:-}" ]; then # it was being made
        set -- "${TMPDIR:-/tmp}/$gpuspawner_name" "/tmp/$gpuspawner_name" "/dev/shm/$gpuspawner_name" \
            "${HOME:-/nonexistent}/$gpuspawner_name"
    else
        return 0
    fi
    # again, if a process that ends with the server wrote there meanwhile
    command rm -rf -- "$@" || { command sleep 1; command rm -rf -- "$@"; } || :
}
gpuspawner_end() {
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
[ -n "${BASH_VERSION:-}" ] || { trap 'exit 129' HUP; trap 'exit 130' INT; trap 'exit 143' TERM; }

# The profile's environment
gpuspawner_fail() { gpuspawner_fault=$1; gpuspawner_subject=$2; echo "gpuspawner: $3" >&2; exit 1; }
type module >/dev/null 2>&1 || gpuspawner_fail module_command '' 'there is no module command on this node'
module load CUDA/12.4 || gpuspawner_fail module CUDA/12.4 'module CUDA/12.4 cannot be loaded'
type conda >/dev/null 2>&1 || gpuspawner_fail conda_command '' 'there is no conda command on this node'
eval "$(conda shell.bash hook)" && conda activate torch || gpuspawner_fail conda torch 'conda environment torch cannot be activated'
export COURSE='it'"'"'s 42'

# Since Slurm 22.05, srun does not inherit --cpus-per-task from its job
[ -z "${SLURM_CPUS_PER_TASK:-}" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
# The task is for Slurm's choice of cores: programs take these for srun's, and wait for tasks that nobody starts
unset SLURM_NTASKS SLURM_NPROCS

# --- gpuspawner: the launcher (a Python zipapp in base64) and its plan, in a private folder of the job
gpuspawner_plan() { command printf '%s\n' \
'{"choose": null, "before": [], "beside": [], "cpus": 8, "deadline": 3.0, "gpu_type": "a100", "gpus": 2, "instead": null, "memory_policy": "preferred", "policy": "restricted", "port_range": [20000, 20999], "readers": [], "report": true, "set_threads": true, "topology_file": null, "version": 1}'
}
gpuspawner_launcher() ( { set +x; } 2>/dev/null; command printf '%s\n' '
(the launcher)
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
            { command printf '%s %s\n' "$$" "${SLURM_JOB_ID:-}" > "$gpuspawner_folder/shell" &&
                gpuspawner_plan > "$gpuspawner_folder/plan.json" &&
                gpuspawner_launcher | command base64 -d > "$gpuspawner_folder/launch.pyz"; } 2>&1
        ) && command printf '%s\n' "$gpuspawner_folder" && exit 0
        command printf 'gpuspawner: %s cannot be used for the launcher: %s\n' \
            "${gpuspawner_try%/*}" "${gpuspawner_why:-it cannot be written}" >&2
        [ -z "$gpuspawner_folder" ] || command rm -rf -- "$gpuspawner_folder"
        gpuspawner_folder=
    done
    exit 1
)
trap gpuspawner_end EXIT
GPUSPAWNER_FOLDER=$(gpuspawner_unpack) || GPUSPAWNER_FOLDER=
gpuspawner_name=
GPUSPAWNER_LAUNCHER=$GPUSPAWNER_FOLDER/launch.pyz
GPUSPAWNER_PLAN=$GPUSPAWNER_FOLDER/plan.json
# --- gpuspawner: end of the launcher

gpuspawner_fault=launcher
# Find a Python for the launcher: 3.9 or newer; GPUSPAWNER_PYTHON may name one. PYTHONHOME and similar variables are
# ignored (-I), and so are functions and aliases called python3
gpuspawner_server=$(command -v -- /sw/jupyter/bin/jupyterhub-singleuser || :)
gpuspawner_found=none
for gpuspawner_try in "${GPUSPAWNER_PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9 \
        "${gpuspawner_server%/*}/python3" /usr/bin/python3 /usr/libexec/platform-python; do
    gpuspawner_try=$(unset -f python3 || :; unalias python3 2>/dev/null || :; command -v -- "$gpuspawner_try") ||
        continue
    [ "$("$gpuspawner_try" -I -S -c 'import sys, zlib; print(sys.version_info >= (3, 9))' \
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
fi
if [ "$GPUSPAWNER_PYTHON" = none ]; then
    echo "gpuspawner: no Python 3.9 or newer on $(hostname); load a module that has one, or set GPUSPAWNER_PYTHON" >&2
    exit 1
fi
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
fi

# The server. Signals are handled after it ends, so that the lines below still run
gpuspawner_stopped=
gpuspawner_serve() {
    [ -z "$gpuspawner_stopped" ] || return 143 # by a signal that came before there was a server to get it
    "$GPUSPAWNER_PYTHON" -I "$GPUSPAWNER_LAUNCHER" --plan "$GPUSPAWNER_PLAN" -- /sw/jupyter/bin/jupyterhub-singleuser --debug
}
gpuspawner_fault=server
trap 'gpuspawner_fault= gpuspawner_stopped=yes' TERM INT HUP
status=0
gpuspawner_serve || status=$?
# If another program took the port before the server had it, start again with another port
if [ "$status" != 0 ] && "$GPUSPAWNER_PYTHON" -I "$GPUSPAWNER_LAUNCHER" --port-taken; then
    status=0
    gpuspawner_serve || status=$?
fi
[ "$status" = 0 ] || gpuspawner_report || :
gpuspawner_fault=

exit "$status"
