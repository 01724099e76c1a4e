#!/bin/bash
# A JupyterHub server, profile p. Written by jupyterhub-gpuspawner.
#SBATCH --job-name=jupyterhub
#SBATCH --comment="jupyterhub-gpuspawner/hub/ada/#1a2b"
#SBATCH --output="/home/a da/%j.log"
#SBATCH --chdir="/home/a da"
#SBATCH --export=ALL
#SBATCH --no-requeue
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --partition=gpu
#SBATCH --account=acct
#SBATCH --qos=high
#SBATCH --reservation=day-2
#SBATCH --constraint=[r1|r2]&ib
#SBATCH --time=UNLIMITED
#SBATCH --cpus-per-task=16
#SBATCH --mem=0
#SBATCH --gres=gpu:a100:4
#SBATCH --exclusive
#SBATCH --gres-flags=enforce-binding
#SBATCH --mail-type=END
#SBATCH --licenses=ansys:2

# The profile's environment
gpuspawner_fail() { echo "gpuspawner: $*" >&2; exit 1; }
type module >/dev/null 2>&1 || gpuspawner_fail 'there is no module command on this node'
module use '/sw/my modules' || gpuspawner_fail 'module use /sw/my modules failed'
module load CUDA/12.4 || gpuspawner_fail 'module CUDA/12.4 cannot be loaded'
eval "$(conda shell.bash hook)" && conda activate "$HOME"/envs/torch || gpuspawner_fail 'conda environment ~/envs/torch cannot be activated'
source /sw/venv/bin/activate || gpuspawner_fail 'virtual environment /sw/venv cannot be activated'
export GREETING='it'"'"'s $HOME `id`'
ulimit -c 0
source /sw/env.sh

# srun does not take --cpus-per-task from its job (since Slurm 22.05)
[ -z "${SLURM_CPUS_PER_TASK:-}" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK

# Before the server: the site's own lines
echo before

# --- gpuspawner: the launcher (a Python zipapp in base64) and its plan, in a private folder that goes with the job
gpuspawner_umask=$(umask)
umask 077
GPUSPAWNER_FOLDER=$(mktemp -d "${TMPDIR:-/tmp}/gpuspawner.XXXXXXXXXX") || exit 1
trap 'rm -rf -- "$GPUSPAWNER_FOLDER"' EXIT
GPUSPAWNER_LAUNCHER=$GPUSPAWNER_FOLDER/launch.pyz
GPUSPAWNER_PLAN=$GPUSPAWNER_FOLDER/plan.json
cat > "$GPUSPAWNER_PLAN" <<'END_OF_PLAN'
{"claim": null, "cpus": null, "deadline": 3.0, "gpus": 4, "memory_policy": "preferred", "policy": "single-numa-node", "port_range": null, "report": true, "set_threads": true, "topology_file": null, "version": 1}
END_OF_PLAN
base64 -d > "$GPUSPAWNER_LAUNCHER" <<'END_OF_LAUNCHER'
dGhlIGxhdW5jaGVyJ3MgemlwYXBw
END_OF_LAUNCHER
umask "$gpuspawner_umask"
# --- gpuspawner: end of the launcher

# A Python for the launcher: 3.9 or newer; GPUSPAWNER_PYTHON may name one
gpuspawner_server=$(command -v -- jupyter || true)
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
    "$GPUSPAWNER_PYTHON" "$GPUSPAWNER_LAUNCHER" --plan "$GPUSPAWNER_PLAN" -- jupyter lab '--ServerApp.x=a b'
}
trap : TERM INT HUP
status=0
gpuspawner_serve || status=$?
# Another program took the port before the server had it: once more, with another port
if [ "$status" != 0 ] && "$GPUSPAWNER_PYTHON" "$GPUSPAWNER_LAUNCHER" --port-taken; then
    status=0
    gpuspawner_serve || status=$?
fi

# After the server: the site's own lines
echo after

exit "$status"
