"""What a compute node has: NVML, sysfs or a topology file."""
