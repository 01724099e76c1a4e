"""The page on which a server is chosen."""

from __future__ import annotations

from jupyterhub_gpuspawner.hub.pages.text import _

HEADING = _("Start a server")
LEGEND = _("What do you need?")
START = _("Start")
STARTING = _("Starting …")
NOTHING_STARTED = _("Nothing was started")
FROM_A_LINK = _("This link has filled in the form. Nothing has been started yet: look it over, and start.")
LINK_FAULT = _("This link asks for something that cannot be had")
NO_PROFILE = _("There is no profile for you at present. Please ask your administrator.")
FAULTS = _(
    "For administrators: these profiles have a fault. Their last good versions are offered, where there were any."
)
SILENT = _("Slurm does not answer at the moment, so what is said below may be old. You may start all the same.")
SILENT_FROM_THE_START = _(
    "Slurm does not answer at the moment, so nothing is known of what is free. You may start all the same."
)
LINK = _("Link to this choice")
ASKING = _("Asking Slurm when it would start …")
COPY = _("Copy link")
COPIED = _("Copied")
QUESTION = _("This hub offers no choice: one click starts your server.")


def heading(server_name: str) -> str:
    """The page's first line."""
    return _("Start server {name}").format(name=server_name) if server_name else HEADING


def for_whom(user: str) -> str:
    """Where an admin starts somebody else's server."""
    return _("For {user}").format(user=user)


def options_of(profile: str) -> str:
    """The name of a profile's group of fields, for screen readers."""
    return _("Options of {profile}").format(profile=profile)


AGE = {
    "now": _("as of now"),
    "s": _("as of {count} s ago"),
    "min": _("as of {count} min ago"),
    "h": _("as of {count} h ago"),
}


def age(seconds: float) -> str:
    """How old what is said is."""
    if seconds < 5:
        return AGE["now"]
    if seconds < 90:
        return AGE["s"].format(count=round(seconds))
    if seconds < 90 * 60:
        return AGE["min"].format(count=round(seconds / 60))
    return AGE["h"].format(count=round(seconds / 3600))


def sentence(clause: str) -> str:
    """With capital and full stop."""
    return f"{clause[:1].upper()}{clause[1:]}{'' if clause.endswith('.') else '.'}"


def not_yet(reason: str) -> str:
    """Of a profile that this user may use later."""
    return _("Not yet: {reason}.").format(reason=reason)


def no_longer(reason: str) -> str:
    """Of a last choice that cannot be had any more; ``reason`` is a sentence."""
    return _("Your last choice cannot be had any more. {reason} The form shows what is usual instead.").format(
        reason=reason
    )


def for_the_script() -> dict[str, object]:
    """The sentences that the page's script says."""
    return {"age": AGE, "copy": COPY, "copied": COPIED, "asking": ASKING}
