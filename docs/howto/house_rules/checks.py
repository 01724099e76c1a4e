"""What ``gpuspawner check`` finds in the rules of the house."""

from collections.abc import AsyncIterator

from house_rules.hub import HouseRules
from jupyterhub_gpuspawner.check.finding import Code, Context, Finding

NONE = Code("house-rules", "There are no rules of the house, so their page is empty.")


async def check_rules(context: Context) -> AsyncIterator[Finding]:
    """Whether there are any."""
    if not HouseRules(config=context.site.config).rules:
        yield NONE.warning("c.HouseRules.rules", "There are no rules of the house.", "Set them, or leave it out.")
