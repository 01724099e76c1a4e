"""What batchspawner asks the host for and cannot have here: accounts of the users, and names that lead to nodes."""

import os

from traitlets import HasTraits, default


class WithoutAccounts(HasTraits):
    """Stands before a class derived from ``batchspawner.SlurmSpawner``; changes nothing of how Slurm is asked."""

    @default("req_homedir")
    def _homedir(self):
        return f"{os.environ['GPUSPAWNER_DEMO_FOLDER']}/homes/{self.user.name}"

    def user_env(self, env):
        """USER, HOME and SHELL, without the account database."""
        env.update(USER=self.user.name, HOME=self.req_homedir, SHELL="/bin/bash")
        return env

    def state_gethost(self):
        """All nodes are this host."""
        return "127.0.0.1" if super().state_gethost() else None
