"""What :mod:`~jupyterhub_gpuspawner.hub.words` says, where the server is somebody else's than the reader's.

Administrators, instructors, and those with whom a server is shared open its pages, too.
"""

from __future__ import annotations

from typing import Any

from jupyterhub_gpuspawner.hub import words
from jupyterhub_gpuspawner.hub.times import silence
from jupyterhub_gpuspawner.words import people

CONTACT = "the administrator"
TOLD = "What {owner} is told: {advice}"
"""Advice is for the user, and reaches the one who may help."""
_NOT_AFFECTED = "The server is not affected."


def _people_ahead(others: int, position: int) -> str:
    if others:
        return f"{people(others)} ahead of it"
    return "It is next" if position <= 1 else "Another job of its user is ahead"


_WORDS: dict[str, Any] = {
    "CHECKING": "Checking on the server",
    "FOR_LATER": "Slurm does not answer at the moment. The server is kept for later, and starts when Slurm is back.",
    "FOR_LATER_UNTIL": "If Slurm does not answer by {time}, the start is given up.",
    "KEPT": "Its place in line is kept until somebody stops it.",
    "KEPT_UNTIL": "Its place in line is kept until {time}.",
    "BOOTING": "Slurm is powering on node {node} for the server. That may take up to {time}.",
    "SETTLING": "What was chosen is free: it starts in a moment.",
    "NOT_FREE": "That choice is no longer free, so the server is still in line.",
    "SILENT": f"Slurm is not responding at the moment. {_NOT_AFFECTED}",
    "LAST_ANSWER": silence(since_the_start=False, more=_NOT_AFFECTED),
    "NO_ANSWER_YET": silence(since_the_start=True, more=_NOT_AFFECTED),
    "FAILED": "The server did not start",
    "CONTACT": CONTACT,
    "people_ahead": _people_ahead,
}


class _WordsOfAnother:
    def __getattr__(self, name: str) -> Any:
        return _WORDS[name] if name in _WORDS else getattr(words, name)


_OF_ANOTHER = _WordsOfAnother()


def words_for(*, own: bool) -> Any:
    """The words of pages for the server's user, or for somebody else; by the names of those in ``hub.words``."""
    return words if own else _OF_ANOTHER


def title_of_another(title: str) -> str:
    """The title of a server (:func:`words.title`) that is somebody else's."""
    return "Server" if title == words.MY_SERVER else title


def of_its_user(sentence: str) -> str:
    """What Slurm's reasons and a changed estimate say to the user, for somebody else."""
    return sentence.replace("your own jobs", "its user's own jobs").replace("ahead of you", "ahead of it")
