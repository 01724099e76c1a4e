"""Replaces what batchspawner needs from the host: accounts of the users, and resolvable node names."""

import os

from traitlets import HasTraits, default


class WithoutAccounts(HasTraits):
    """Mixin for a subclass of ``batchspawner.SlurmSpawner``; it does not change how Slurm is queried."""

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
