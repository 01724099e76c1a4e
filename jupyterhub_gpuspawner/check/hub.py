"""JupyterHub's own settings: those that keep people out of the hub, and those unsuited to servers in Slurm jobs."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from jupyterhub.auth import PAMAuthenticator
from jupyterhub.proxy import ConfigurableHTTPProxy
from traitlets import TraitError

from jupyterhub_gpuspawner.check.finding import Code, Context, Finding, names_no_cluster
from jupyterhub_gpuspawner.check.inherited_settings import is_old_launcher
from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.site import configuration
from jupyterhub_gpuspawner.site.configured import configured_value
from jupyterhub_gpuspawner.site.people import is_unix_group
from jupyterhub_gpuspawner.site.values import configured_values

# Addresses, and the people who may sign in.

URL_FOR_ADDRESS = Code(
    "hub-address-url",
    "`hub_connect_ip`, `hub_ip` or `ip` is a URL: JupyterHub puts it into one, so that nobody finds the hub there.",
)
NO_CERTIFICATE = Code(
    "certificate-missing", "`bind_url` is https, and there is no certificate, so that the proxy speaks http alone."
)
NO_GROUP = Code(
    "unix-group-missing", "Members of a group may sign in or are admins, and the hub's machine has no such group."
)
NOBODY = Code(
    "sign-in-nobody",
    "The authenticator is PAM's and no setting allows anybody (`allow_all`, `allowed_users`, `allowed_groups`, ...): "
    "JupyterHub lets nobody in, not even admins.",
)
_OF_PROXY = "--ssl-"


@names_no_cluster
def check_hub_settings(context: Context) -> Iterator[Finding]:
    """Look at the section of JupyterHub."""
    hub = context.site.config.JupyterHub
    for name in ("hub_connect_ip", "hub_ip", "ip"):
        if "://" in str(hub.get(name, "")):
            yield _url_for_address(name, str(hub[name]))
    settings = configured_values(context.site.config, ConfigurableHTTPProxy)
    proxy = {setting.name: configured_value(setting.value) for setting in settings}
    if (
        urlsplit(str(hub.get("bind_url", ""))).scheme == "https"
        and not hub.get("ssl_cert")
        and "proxy_class" not in hub
        and proxy.get("should_start", True)  # else the site starts it, with options of its own
        and _OF_PROXY not in str(proxy.get("command", ""))
    ):
        yield NO_CERTIFICATE.error(
            "c.JupyterHub.bind_url",
            "it is https, and there is no certificate: the proxy speaks http alone at that address.",
            "Set ssl_key and ssl_cert, or write http:// where a web server in front of the hub has the certificate.",
        )


def _url_for_address(name: str, value: str) -> Finding:
    host = urlsplit(value).hostname or "its address"
    text = f"{value} is a URL, and this setting is an address, such as {host}: nobody would find the hub there."
    if name == "hub_connect_ip":
        return URL_FOR_ADDRESS.error(
            f"c.JupyterHub.{name}", text, f"Write {host!r}, or set c.JupyterHub.hub_connect_url to the URL."
        )
    url = {"hub_ip": "hub_bind_url", "ip": "bind_url"}[name]
    return URL_FOR_ADDRESS.error(f"c.JupyterHub.{name}", text, f"Write {host!r}, or set c.JupyterHub.{url} to the URL.")


@names_no_cluster
def check_sign_in(context: Context) -> Iterator[Finding]:
    """Look at who may sign in by accounts of the hub's machine."""
    try:
        app = configuration.application(context.site.config)
        authenticator = app.authenticator_class
        # only an authenticator of JupyterHub's own is made: any other may do anything, and allow people in its own way
        lets_nobody_in = authenticator is PAMAuthenticator and not authenticator(parent=app).any_allow_config
    except (ConfigError, TraitError, ImportError):  # which the check of names reports
        return
    if lets_nobody_in:
        yield NOBODY.error(
            "c.Authenticator",
            "nobody may sign in, not even admins: since version 5 JupyterHub lets in only whom a setting allows.",
            "Set c.Authenticator.allow_all = True for everyone who has an account, or allowed_users, or "
            "c.LocalAuthenticator.allowed_groups.",
        )
    if issubclass(authenticator, PAMAuthenticator):
        yield from _groups(context, authenticator)


def _groups(context: Context, authenticator: type[PAMAuthenticator]) -> Iterator[Finding]:
    """Groups in the settings of PAM's authenticator that the machine does not have."""
    for setting in configured_values(context.site.config, authenticator):
        if setting.name not in ("allowed_groups", "admin_groups"):
            continue
        value = configured_value(setting.value)
        for name in sorted(map(str, value)) if isinstance(value, (set, list, tuple)) else ():
            if not is_unix_group(name):
                does = "may sign in by it" if setting.name == "allowed_groups" else "is an admin by it"
                yield NO_GROUP.warning(
                    setting.where,
                    f"this machine has no group {name}, so nobody {does}.",
                    "Write the group's name as `getent group` prints it.",
                )


# What servers get of settings that every spawner of JupyterHub has.

OLD_COMMAND = Code(
    "old-launcher",
    "A command begins with `batchspawner-singleuser`, which asks the hub for an address that does not exist.",
)
NOT_SLURMS = Code(
    "limit-without-effect", "A limit of JupyterHub's is set, which Slurm does not know: a job has what it requests."
)
FIXED = Code("server-port-fixed", "`args` set the port or the address of every server, which its job must choose.")
OF_HUB = Code("hub-variable-kept", "`env_keep` gives every server a variable that is for the hub or its machine.")
_LIMITS = {"mem_limit": "memory", "mem_guarantee": "memory", "cpu_limit": "cpus", "cpu_guarantee": "cpus"}
_SECRETS = frozenset(["CONFIGPROXY_AUTH_TOKEN", "JPY_COOKIE_SECRET", "JUPYTERHUB_CRYPT_KEY", "OAUTH_CLIENT_SECRET"])
_OF_MACHINE = frozenset(
    ["CONDA_PREFIX", "HOME", "LD_LIBRARY_PATH", "PATH", "PYTHONHOME", "PYTHONPATH", "TMPDIR", "VIRTUAL_ENV"]
)


@names_no_cluster
def check_servers(context: Context) -> Iterator[Finding]:
    """Look at the settings of the Slurm servers, and at those of their profiles."""
    yield from (*_commands(context), *_limits(context), *_arguments(context), *_variables(context))


def _commands(context: Context) -> Iterator[Finding]:
    commands = {context.setting("cmd"): list(context.spawner.cmd)}
    for profile in context.of_slurm():
        if profile.command:
            commands[context.location(profile, "command")] = list(profile.command)
    for where, command in commands.items():
        if is_old_launcher(command):
            yield OLD_COMMAND.error(
                where,
                "batchspawner-singleuser asks the hub for an address that does not exist, so no server starts.",
                f"Write {command[1:] or ['jupyterhub-singleuser']}.",
            )


def _limits(context: Context) -> Iterator[Finding]:
    for name, field in _LIMITS.items():
        if getattr(context.spawner, name, None):
            yield NOT_SLURMS.warning(
                context.setting(name),
                f"it limits no job: Slurm gives each job what its profile requests (slurm.{field}).",
                f"Set slurm.{field} in the profiles.",
            )


def _arguments(context: Context) -> Iterator[Finding]:
    for argument in map(str, context.spawner.args):
        name = argument.partition("=")[0]
        if name.rpartition(".")[2].lstrip("-") in ("port", "ip"):
            yield FIXED.error(
                context.setting("args"),
                f"{argument} would have a server listen elsewhere than at the address that its job reports to the hub.",
                "Remove it; c.GPUSlurmSpawner.port_range says which ports jobs may use.",
            )


def _variables(context: Context) -> Iterator[Finding]:
    env_keep = {*map(str, context.spawner.env_keep)}
    for name in sorted(env_keep & _SECRETS):
        text = f"every server, and so every user, gets the hub's own {name}."
        yield OF_HUB.error(f"{context.setting('env_keep')}: {name}", text, "Remove it.")
    for name in sorted(env_keep & _OF_MACHINE):
        yield OF_HUB.warning(
            f"{context.setting('env_keep')}: {name}",
            "every server gets the value that this machine has, and its node may have others.",
            "Remove it, and set environment in the profiles.",
        )
