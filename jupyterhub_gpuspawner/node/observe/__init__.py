"""What a compute node has: NVML, nvidia-smi, sysfs or a topology file."""
