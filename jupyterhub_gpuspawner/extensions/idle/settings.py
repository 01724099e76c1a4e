"""The setting of ``c.GPUSlurmSpawner`` about idle servers."""

from __future__ import annotations

from typing import Any

from traitlets import Dict, HasTraits, TraitError

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extensions.idle.fields import Idle
from jupyterhub_gpuspawner.profiles.schema import dotted, validated


class IdleFields(Dict):
    """The fields of a profile's ``idle``."""

    bounds = "the fields of a profile's `idle`"

    def validate(self, obj: Any, value: Any) -> dict[str, Any]:
        """Return the dict; raises TraitError, which names the field at fault."""
        fields: dict[str, Any] = super().validate(obj, value) or {}
        try:
            validated(Idle, fields, lambda path: dotted([str(self.name), *path]))
        except ConfigError as error:
            raise TraitError(str(error)) from None
        return fields


class IdleSettings(HasTraits):
    """What is done with idle servers whose profile does not say it."""

    idle = IdleFields(
        {"gpu": "60min", "action": "report", "keep": {"by": "30min", "times": 2}},
        config=True,
        help="""When a server counts as idle, and what is done then, if its profile does not say otherwise: the fields
        of a profile's `idle`, such as `{"gpu": "90min", "action": "stop"}`. Fields that are left out have the values of
        the default. With `action: report` nothing is done; `gpuspawner idle` lists what would have been stopped.""",
    ).tag(not_of_a_group=True)
