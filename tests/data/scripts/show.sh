#!/bin/bash -l
# A JupyterHub server, profile course. Written by jupyterhub-gpuspawner.
#SBATCH --job-name=jupyterhub
#SBATCH --comment=jupyterhub-gpuspawner/site/ada/second
#SBATCH --output=/var/log/jupyter/ada/jupyterhub-%j.log
#SBATCH --chdir=/home/ada
#SBATCH --export=ALL
#SBATCH --no-requeue
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --partition=gpu
#SBATCH --account=course42
#SBATCH --time=8:00:00
#SBATCH --cpus-per-task=8
#SBATCH --mem=32768M
#SBATCH --gres=gpu:a100:2
#SBATCH --gres-flags=enforce-binding
#SBATCH --mail-type=END

# The profile's environment
gpuspawner_fail() { echo "gpuspawner: $*" >&2; exit 1; }
type module >/dev/null 2>&1 || gpuspawner_fail 'there is no module command on this node'
module load CUDA/12.4 || gpuspawner_fail 'module CUDA/12.4 cannot be loaded'
eval "$(conda shell.bash hook)" && conda activate torch || gpuspawner_fail 'conda environment torch cannot be activated'
export COURSE='it'"'"'s 42'

# srun does not take --cpus-per-task from its job (since Slurm 22.05)
[ -z "${SLURM_CPUS_PER_TASK:-}" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK

# --- gpuspawner: the launcher (a Python zipapp in base64) and its plan, in a private folder that goes with the job
gpuspawner_umask=$(umask)
umask 077
GPUSPAWNER_FOLDER=$(mktemp -d "${TMPDIR:-/tmp}/gpuspawner.XXXXXXXXXX") || exit 1
trap 'rm -rf -- "$GPUSPAWNER_FOLDER"' EXIT
GPUSPAWNER_LAUNCHER=$GPUSPAWNER_FOLDER/launch.pyz
GPUSPAWNER_PLAN=$GPUSPAWNER_FOLDER/plan.json
cat > "$GPUSPAWNER_PLAN" <<'END_OF_PLAN'
{"claim": null, "cpus": 8, "deadline": 3.0, "gpus": 2, "memory_policy": "preferred", "policy": "restricted", "port_range": [20000, 20999], "report": true, "set_threads": true, "topology_file": null, "version": 1}
END_OF_PLAN
base64 -d > "$GPUSPAWNER_LAUNCHER" <<'END_OF_LAUNCHER'
(the launcher)
END_OF_LAUNCHER
umask "$gpuspawner_umask"
# --- gpuspawner: end of the launcher

# A Python for the launcher: 3.9 or newer; GPUSPAWNER_PYTHON may name one
gpuspawner_server=$(command -v -- /sw/jupyter/bin/jupyterhub-singleuser || true)
for gpuspawner_try in "${GPUSPAWNER_PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9 \
        "${gpuspawner_server%/*}/python3" /usr/bin/python3 /usr/libexec/platform-python none; do
    [ -n "$gpuspawner_try" ] || continue
    "$gpuspawner_try" -S -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null && break
done
GPUSPAWNER_PYTHON=$gpuspawner_try
if [ "$GPUSPAWNER_PYTHON" = none ]; then
    echo "gpuspawner: no Python 3.9 or newer on $(hostname); load a module that has one, or set GPUSPAWNER_PYTHON" >&2
    exit 1
fi

# The server. A signal waits for its end, so that the lines below still run
gpuspawner_serve() {
    "$GPUSPAWNER_PYTHON" "$GPUSPAWNER_LAUNCHER" --plan "$GPUSPAWNER_PLAN" -- /sw/jupyter/bin/jupyterhub-singleuser --debug
}
trap : TERM INT HUP
status=0
gpuspawner_serve || status=$?
# Another program took the port before the server had it: once more, with another port
if [ "$status" != 0 ] && "$GPUSPAWNER_PYTHON" "$GPUSPAWNER_LAUNCHER" --port-taken; then
    status=0
    gpuspawner_serve || status=$?
fi

exit "$status"
