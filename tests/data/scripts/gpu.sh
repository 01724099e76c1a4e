#!/bin/bash -l
# A JupyterHub server, profile p. Written by jupyterhub-gpuspawner.
#SBATCH --job-name=jupyterhub
#SBATCH --comment=jupyterhub-gpuspawner/hub/ada/
#SBATCH --output=/home/ada/jupyterhub-%j.log
#SBATCH --chdir=/home/ada
#SBATCH --export=ALL
#SBATCH --no-requeue
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --partition=gpu
#SBATCH --time=1:30:00
#SBATCH --cpus-per-task=4
#SBATCH --mem=16384M
#SBATCH --gres=gpu:1

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
{"claim": null, "cpus": null, "deadline": 3.0, "gpus": 1, "memory_policy": "preferred", "policy": "best-effort", "port_range": null, "report": true, "set_threads": true, "topology_file": null, "version": 1}
END_OF_PLAN
base64 -d > "$GPUSPAWNER_LAUNCHER" <<'END_OF_LAUNCHER'
dGhlIGxhdW5jaGVyJ3MgemlwYXBw
END_OF_LAUNCHER
umask "$gpuspawner_umask"
# --- gpuspawner: end of the launcher

# A Python for the launcher: 3.9 or newer; GPUSPAWNER_PYTHON may name one
gpuspawner_server=$(command -v -- jupyterhub-singleuser || true)
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
    "$GPUSPAWNER_PYTHON" "$GPUSPAWNER_LAUNCHER" --plan "$GPUSPAWNER_PLAN" -- jupyterhub-singleuser
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
