"""A hub in front of a Slurm cluster.

Change what is marked SITE, here and in the folders of profiles and courses, and run `gpuspawner check` before starting
the hub. The reference "Settings" lists all settings.
"""

c = get_config()  # noqa: F821 - JupyterHub provides it

# Enables the plugin. JupyterHub knows the spawner by this name.
c.JupyterHub.spawner_class = "gpu-profiles"

# The profiles. Files in this folder are read again when they change; a new profile needs no restart.
c.GPUProfilesSpawner.profiles_dir = "/etc/jupyterhub/profiles"  # SITE

# What these files may contain beyond requests to Slurm; the guide "Add a profile" has the list. With "software" and
# "variables", the author of a file decides what runs as the users who pick its profile. Leave it empty if you do not
# trust everyone who can write to the folder.
c.GPUProfilesSpawner.profiles_dir_allows = ["software", "variables", "local"]  # SITE

# Courses, one file for each. Whoever writes to this folder can offer the profiles above, narrowed, to those who may use
# them. The guide "Prepare a course" is for instructors.
c.GPUProfilesSpawner.courses_dir = "/etc/jupyterhub/courses"  # SITE

# --- Network ---------------------------------------------------------------------------------------

# Nodes connect to the hub: its address in the cluster's network, never 127.0.0.1. The port is 8081 unless hub_port is
# set.
c.JupyterHub.hub_ip = "10.0.0.10"  # SITE

# The proxy connects to the nodes on one of these ports; they must be open from the hub's machine to the nodes.
c.GPUSlurmSpawner.port_range = "20000-20999"  # SITE

# --- Slurm -----------------------------------------------------------------------------------------

# Jobs belong to the user who signed in. This prefix is used for four fixed scripts only, and never with a shell.
# `gpuspawner files /etc/jupyterhub --wrappers --sudoers` writes the scripts and the file for sudo that allows exactly
# these. A hub that runs as root needs neither: set these to "runuser -u {username} --" and "".
c.GPUSlurmSpawner.exec_prefix = "sudo -n -u {username}"
c.GPUSlurmSpawner.wrapper_dir = "/etc/jupyterhub/wrappers"

# A prefix that runs the fifth script, `extend`, as a Slurm operator; it gives running servers more time where a profile
# allows that. The last lines of the sudoers file allow it, and HUB in the script must be the hub_name below.
# c.GPUSlurmSpawner.extend_prefix = "sudo -n -u slurm"  # SITE  # noqa: ERA001 - one of two choices

# The folder of Slurm's commands; empty if they are on the hub's PATH.
c.GPUSlurmSpawner.slurm_bin_dir = ""  # SITE

# Part of each job's comment, by which the hub finds its jobs again. Two hubs on one cluster need different names.
c.GPUSlurmSpawner.hub_name = "jupyter"  # SITE

# Defaults for Slurm profiles.
c.GPUSlurmSpawner.req_partition = "gpu"  # SITE
c.GPUSlurmSpawner.req_runtime = "8:00:00"  # SITE

# Seconds from Slurm's allocation until the server has reported. Waiting for a free GPU does not count.
c.GPUSlurmSpawner.start_timeout = 300

# How long a job may wait in Slurm's queue, such as "12:00:00". UNLIMITED: until its user stops it.
c.GPUSlurmSpawner.queue_timeout = "UNLIMITED"

# The folder of the jobs' logs. Jobs make this one, and keep their user's last twenty logs in it; any other one must
# exist on the nodes and be writable for the user.
c.GPUSlurmSpawner.log_dir = "{homedir}/.local/share/gpuspawner/logs"

# --- The server on the node ------------------------------------------------------------------------

# Found on the node's PATH after the profile's modules or environment have been loaded; an absolute path always works.
c.Spawner.cmd = ["jupyterhub-singleuser"]  # SITE

# Seconds from the report until the server answers. Slow file systems may need this.
c.Spawner.http_timeout = 120
c.Spawner.default_url = "/lab"

# --- Placement -------------------------------------------------------------------------------------

# best-effort makes the best of what Slurm granted. restricted is requested from Slurm, so jobs may wait longer; a
# profile may set its own policy.
c.GPUSlurmSpawner.placement_policy = "best-effort"

# preferred: allocate memory close to the cores, and elsewhere when that is full. bind: never elsewhere.
c.GPUSlurmSpawner.memory_policy = "preferred"

# --- The hub ---------------------------------------------------------------------------------------

# Start the hub in its own folder, such as /var/lib/jupyterhub: it creates its database and its cookie secret there.

# Keep servers running while the hub is restarted.
c.JupyterHub.cleanup_servers = False
c.JupyterHub.cleanup_proxy = False

# Who may sign in, and the groups that `allow: {groups: [...]}` of a profile refers to.
c.LocalAuthenticator.allowed_groups = {"notebookusers"}  # SITE
c.JupyterHub.load_groups = {  # SITE
    "course": {"users": ["train001", "train002"]},
    "training": {"users": ["ada"]},
}
