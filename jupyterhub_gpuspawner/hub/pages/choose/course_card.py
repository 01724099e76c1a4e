"""The cards of courses on the form: first, and selected while a session is open."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jupyterhub_gpuspawner.courses.course_profile import CourseProfile
    from jupyterhub_gpuspawner.hub.pages.choose.filled_in import FilledIn
    from jupyterhub_gpuspawner.hub.pages.choose.offer import Offer


def with_courses(found: Sequence[Offer], courses: Sequence[CourseProfile], filled_in: FilledIn) -> list[Offer]:
    """The same offers, those of courses first.

    A course whose session is open is selected, unless the form is filled in with something else. A server that is
    started without a form keeps the admin's default.
    """
    of = {each.profile.slug: each for each in courses}
    cards = [replace(offer, course=of.get(offer.profile.slug)) for offer in found]
    cards.sort(key=lambda card: card.course is None)
    now = next((card for card in cards if card.course is not None and card.course.is_open and not card.closed), None)
    if now is None or filled_in.profile or filled_in.fault:
        return cards
    return [replace(card, checked=card is now) for card in cards]
