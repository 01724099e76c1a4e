"""A hub in front of a Slurm cluster.

Copy this file to /etc/jupyterhub and config/profiles beside it, change what is marked SITE, and run `gpuspawner check`
before the hub. Every setting is in docs/reference/settings.md.
"""

c = get_config()  # noqa: F821 - JupyterHub provides it

# The one line. JupyterHub knows the spawner by this name.
c.JupyterHub.spawner_class = "gpu-profiles"

# What people may pick. The files of this folder are read anew when they change: no restart for a new profile.
c.GPUProfilesSpawner.profiles_dir = "/etc/jupyterhub/profiles"  # SITE

# What those files may say beside plain requests of Slurm; docs/howto/add-a-profile.md has the list. With "software" and
# "variables" a file's author decides what runs as whoever picks the profile. Empty, if just anybody writes files there.
c.GPUProfilesSpawner.profiles_dir_allows = ["software", "variables", "local"]  # SITE

# --- Network ---------------------------------------------------------------------------------------

# Nodes call the hub: its address in the cluster's network, never 127.0.0.1. Port 8081, unless hub_port says another.
c.JupyterHub.hub_ip = "10.0.0.10"  # SITE

# The proxy calls the nodes: one of these ports, open from the hub's machine to the nodes.
c.GPUSlurmSpawner.port_range = "20000-20999"  # SITE

# --- Slurm -----------------------------------------------------------------------------------------

# Jobs belong to whoever signed in. This stands before four fixed scripts and nothing else; it is never a shell.
# config/sudoers allows exactly them; docs/howto/sudo.md says how to install both. A hub that runs as root needs
# neither: "runuser -u {username} --" and "".
c.GPUSlurmSpawner.exec_prefix = "sudo -n -u {username}"
c.GPUSlurmSpawner.wrapper_dir = "/usr/local/libexec/gpuspawner"

# The folder of Slurm's commands; empty where they are on the hub's PATH.
c.GPUSlurmSpawner.slurm_bin_dir = ""  # SITE

# In the comment of each job, so that it can be found again. Two hubs on one cluster need two names.
c.GPUSlurmSpawner.hub_name = "jupyter"  # SITE

# What holds where a Slurm profile says nothing.
c.GPUSlurmSpawner.req_partition = "gpu"  # SITE
c.GPUSlurmSpawner.req_runtime = "8:00:00"  # SITE

# Seconds from the click until the server has reported. Waiting for a free GPU counts, so give it time.
c.GPUSlurmSpawner.start_timeout = 900

# The jobs' logs, in a folder that exists on the nodes and that the user may write to.
c.GPUSlurmSpawner.log_dir = "{homedir}"

# --- The server on the node ------------------------------------------------------------------------

# Found on the node's PATH after the profile's modules or environment are loaded; a full path is found always.
c.Spawner.cmd = ["jupyterhub-singleuser"]  # SITE

# Seconds from the report until the server answers. A cold file system may need them.
c.Spawner.http_timeout = 120
c.Spawner.default_url = "/lab"

# --- Placement -------------------------------------------------------------------------------------

# best-effort takes the best of what Slurm granted. restricted and single-numa-node are asked of Slurm, so jobs may wait
# longer; a profile may say so for itself.
c.GPUSlurmSpawner.placement_policy = "best-effort"

# preferred: memory beside the cores, and elsewhere when that is full. bind: nowhere else.
c.GPUSlurmSpawner.memory_policy = "preferred"

# --- The hub ---------------------------------------------------------------------------------------

# Start it in a folder of its own, such as /var/lib/jupyterhub: its database and its cookie secret are made there.

# Servers go on while the hub is restarted.
c.JupyterHub.cleanup_servers = False
c.JupyterHub.cleanup_proxy = False

# Who may sign in, and who is in which group: `allow: {groups: [...]}` of a profile means these groups.
c.LocalAuthenticator.allowed_groups = {"users"}  # SITE
c.JupyterHub.load_groups = {"course": {"users": ["train001", "train002"]}}  # SITE
