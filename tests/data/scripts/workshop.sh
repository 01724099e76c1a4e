#!/bin/bash
#SBATCH --comment=jupyterhub-gpuspawner/hub/ada/
#SBATCH --nodes=1
#SBATCH --export=ALL
#SBATCH --partition=gpu
#SBATCH --time=8:00:00
#SBATCH --output=/home/ada/jupyterhub_slurmspawner_%j.log
#SBATCH --job-name=jupyterhub-spawner
#SBATCH --cpus-per-task=40
#SBATCH --chdir=/home/ada
#SBATCH --mem=32000M

# --- gpuspawner: the launcher (a Python zipapp in base64) and its plan, in a private folder that goes with the job
gpuspawner_umask=$(umask)
umask 077
GPUSPAWNER_FOLDER=$(mktemp -d "${TMPDIR:-/tmp}/gpuspawner.XXXXXXXXXX") || exit 1
trap 'rm -rf -- "$GPUSPAWNER_FOLDER"' EXIT
GPUSPAWNER_LAUNCHER=$GPUSPAWNER_FOLDER/launch.pyz
GPUSPAWNER_PLAN=$GPUSPAWNER_FOLDER/plan.json
cat > "$GPUSPAWNER_PLAN" <<'END_OF_PLAN'
{"claim": null, "cpus": null, "deadline": 3.0, "gpus": null, "memory_policy": "preferred", "policy": "best-effort", "port_range": null, "report": true, "set_threads": true, "topology_file": null, "version": 1}
END_OF_PLAN
base64 -d > "$GPUSPAWNER_LAUNCHER" <<'END_OF_LAUNCHER'
dGhlIGxhdW5jaGVyJ3MgemlwYXBw
END_OF_LAUNCHER
umask "$gpuspawner_umask"
# --- gpuspawner: end of the launcher
# srun does not take --cpus-per-task from its job (since Slurm 22.05)
[ -z "${SLURM_CPUS_PER_TASK:-}" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
# A Python for the launcher: 3.9 or newer; GPUSPAWNER_PYTHON may name one
gpuspawner_server=$(command -v -- jupyterhub-singleuser || true)
for gpuspawner_try in "${GPUSPAWNER_PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9 \
        "${gpuspawner_server%/*}/python3" /usr/bin/python3 /usr/libexec/platform-python none; do
    [ -n "$gpuspawner_try" ] || continue
    "$gpuspawner_try" -S -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null && break
done
GPUSPAWNER_PYTHON=$gpuspawner_try
# none yet: one that the lines below bring
[ "$GPUSPAWNER_PYTHON" != none ] || GPUSPAWNER_PYTHON=python3

source /sw/apps/mpi/env.sh
source /sw/modules/init/bash
module load courses/env
module load cuda/8.0.61
module load hdf5/1.8.16
which jupyterhub-singleuser
"$GPUSPAWNER_PYTHON" "$GPUSPAWNER_LAUNCHER" --plan "$GPUSPAWNER_PLAN" -- jupyterhub-singleuser
