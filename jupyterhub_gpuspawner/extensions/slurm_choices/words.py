"""What the form and its errors say of a user's names in Slurm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jupyterhub_gpuspawner.hub.choose import words as of_form
from jupyterhub_gpuspawner.words import duration

LABELS = {
    "account": "Account",
    "partition": "Partition",
    "qos": "Quality of service (QOS)",
    "reservation": "Reservation",
}
"""What a field is called where the profile does not say, by the field of ``slurm``."""
IN_SENTENCES = {"account": "account", "partition": "partition", "qos": "QOS", "reservation": "reservation"}
ASKED = {
    "account": "Slurm's accounting",
    "partition": "Slurm",
    "qos": "Slurm's accounting",
    "reservation": "Slurm",
}
"""What knows them: slurmdbd, or slurmctld, which may go on without the other."""
NONE = {
    "account": "Your default account",
    "partition": "The default partition",
    "qos": "The account's default",
    "reservation": "No reservation",
}
"""The choice that names none."""
NONE_LEFT = "None available"
"""The only choice of a list that leaves a user nothing."""
TYPED = {
    "account": "empty: your default account",
    "partition": "empty: the default partition",
    "qos": "empty: the default of your account",
    "reservation": "empty: no reservation",
}
NO_ACCOUNT = "Slurm has no account for you on this cluster, so it would refuse the job; ask {contact}"
"""Where a person is in no association at all."""


def asked(sets: str, *, silent: bool) -> str:
    """What knows a list: slurmdbd, or slurmctld, without which (``silent``) nothing of a cluster is known."""
    return "Slurm" if silent else ASKED[sets]


def as_of(who: str, seconds: float) -> str:
    """That a list is the last known one."""
    return f"{who} is not responding: this list is {duration(seconds)} old."


def unknown(who: str, *, hidden: bool) -> str:
    """That a list is not known; the field then takes a text."""
    return f"{_not_known(who, hidden=hidden)}. You can enter a name; Slurm decides when the server is started."


def otherwise(who: str, *, hidden: bool) -> str:
    """The same where the profile's author has said what is offered instead."""
    why = _not_known(who, hidden=hidden)
    return f"{why}; these are the usual ones, and Slurm decides when the server is started."


def _not_known(who: str, *, hidden: bool) -> str:
    """In words that fit whatever the field is called."""
    why = "Slurm does not show this hub" if hidden else f"{who} is not responding, so this hub does not know"
    return f"{why} which you have"


@dataclass(frozen=True)
class Naming:
    """What the options of one profile call fields and names, such as ``project Climate``."""

    fields: Mapping[str, str] = field(default_factory=dict)
    """By the field of ``slurm``."""
    names: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """By field and name."""

    def of(self, sets: str, name: str) -> str:
        """Such as ``account acc1``, within a sentence."""
        return f"{self.fields.get(sets, IN_SENTENCES[sets])} {self.names.get((sets, name), name)}"


def for_the_script() -> dict[str, str]:
    """What the form's script says of a choice that others exclude."""
    return {"cannot": f"{{name}}{of_form.CANNOT_CHOOSE}"}


def within_sentence(label: str) -> str:
    """``project`` for ``Project``; an abbreviation stays as it is."""
    return label if label[1:2].isupper() else label[:1].lower() + label[1:]
