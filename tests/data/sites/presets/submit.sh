#!/bin/bash
{% if account %}#SBATCH --account={{account}}{% endif %}
#SBATCH --time={{runtime}}
#SBATCH --mem={{memory}}
#SBATCH --cpus-per-task={{nprocs}}
#SBATCH --gres={{gpus}}
#SBATCH --output={{homedir}}/jupyter_%j.log
#SBATCH --job-name=jupyter
#SBATCH --chdir={{homedir}}
#SBATCH --export={{keepvars}}
{% if oversubscribe %}#SBATCH --oversubscribe{% endif %}
{% if reservation %}#SBATCH --reservation={{reservation}}{% endif %}
{% if partition %}#SBATCH --partition={{partition}}{% endif %}
{% if constraint %}#SBATCH --constraint={{constraint}}{% endif %}
unset XDG_RUNTIME_DIR
{% if modules %}
module load {{modules|join(' ')}}
{% endif %}
source /opt/teaching/bin/activate
{{cmd}}
