"""Settings of ``c.GPUSlurmSpawner`` about more time for servers."""

from __future__ import annotations

from typing import Any

from traitlets import Bool, HasTraits, Unicode

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extensions.more_time.raising import EXTEND_PREFIX, operator_prefix
from jupyterhub_gpuspawner.slurm.login_node import command_line


class MoreTimeSettings(HasTraits):
    """How the time limit of a running job is raised, and what bounds that."""

    extend_prefix = Unicode(
        "",
        config=True,
        help="""Prefix that runs the script `extend` of `wrapper_dir` as an account that is a Slurm operator, such as
        `sudo -n -u slurm`, so that servers whose profile has `extend` can be given more time. Slurm lets no user raise
        the time limit of a running job. Empty: the hub's own account does it, if it is root, SlurmUser or an operator;
        if it is not, no server is extended. `gpuspawner check` tells which.""",
    )
    extend_when_others_wait = Bool(
        default_value=False,
        config=True,
        help="""Whether a server may be extended although pending jobs could use its resources at that time. An
        instructor's or administrator's extension is bound by it, too.""",
    )

    @staticmethod
    def check_settings(settings: Any) -> None:
        """Raise ConfigError for a prefix with which no server would be extended."""
        prefix, where = operator_prefix(settings.extend_prefix), settings.configured_as(EXTEND_PREFIX)
        try:
            command_line(prefix, ())
        except ConfigError as error:
            raise ConfigError(error.message, where=where, hint=error.hint) from error
        if prefix and not settings.wrapper_dir:
            raise ConfigError("The script `extend` is in wrapper_dir, which is not set.", where=where)
