"""Secrets in the lines of a log: their place is kept, their value is not shown.

What gives a secret away is the name before it (``DB_PASSWORD=...``), its place in an address, or its form. A text that
is shown to others is searched for all of these, in a time that is linear in its length: no part of a pattern can match
the same characters in two ways, and each attempt ends where the next can begin.
"""

from __future__ import annotations

import re

NOT_SHOWN = "(not shown)"

_COLOUR = r"(?:\x1b\[[0-9;]{0,16}m){0,4}"
_NAME = re.compile(
    rf"""(?<![\w.-])(?P<name>[\w.-]+)(?:\\*["']?\]?{_COLOUR}[ \t]*[=:]>?[ \t]*{_COLOUR}"""
    r"""|["'],[ \t]*(?=[bBrRuU]?["']))(?=[^\s&])"""
)
"""Before a value: ``NAME=``, ``NAME: ``, ``"NAME": ``, ``'NAME', `` of a pair."""
_OPTION = re.compile(r"(?<![\w-])(?P<name>--[\w-]+)[ \t]+(?=[^\s-])")
"""Before a value: ``--name ``."""
_QUOTED = re.compile(
    r"""[bBrRuU]{0,2}(?:"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?)"""
    r"""|\\+["'][^"'\\\n]*(?:\\+["'])?"""  # a quoted text within another
)
_WORD, _LINE, _TO_QUOTE = re.compile(r"[^\s&]+"), re.compile(r"[^\n]+"), re.compile(r"[^\n\"']+")
_SECRET = re.compile(
    r"(?:token|(?<=[_.-])pwd|credentials?|(?:api|access|private|signing|encryption)[_.-]?key)(?:[_.-]?(?:value|b64))?$"
    r"|secret|passw(?:or)?d|passphrase|authorization|cookie|[xc]srf",
    re.IGNORECASE,
)
"""In a name. Counts of tokens, tokenizers and ``PWD`` are none."""
_HEADER = re.compile(r"(?:authorization|cookie)$", re.IGNORECASE)
"""The name of a header whose value holds blanks."""
_FORMS = (
    # of an Authorization header, with a digit in it: words of a sentence have none
    re.compile(r"\b((?:bearer|basic|token)[ \t]+)(?=[A-Za-z_.~+/-]*[0-9])[\w.~+/=-]{8,}", re.IGNORECASE),
    re.compile(r"(://[^\s/?#:@]*:)[^\s/@]*(?:@[^\s/@]*)*(?=@)"),  # an address's password
    re.compile(r"(://)[\w.~%+-]{20,}(?=@)"),  # a token in the place of its user
    re.compile(r"([?&](?:code|state|sig|signature|key|auth|x-amz-[\w-]+)=)[^\s&#\"']+", re.IGNORECASE),
    # GitHub, Hugging Face, GitLab, OpenAI, Slack; AWS; a JSON web token
    re.compile(r"(?<![\w.-])()(?:gh[pousr]_|github_pat_|hf_|glpat-|sk-|xox[abps]-)[\w-]{16,}"),
    re.compile(r"(?<![\w.-])()AKIA[0-9A-Z]{16}(?!\w)"),
    re.compile(r"(?<![\w.-])()eyJ[\w-]{8,}\.[\w-]+\.[\w-]*"),
)


def redacted(text: str) -> str:
    """``text`` with :data:`NOT_SHOWN` in the place of each value that looks like a secret."""
    for pattern in (_NAME, _OPTION):
        text = _without_values(pattern, text)
    for form in _FORMS:
        text = form.sub(rf"\1{NOT_SHOWN}", text)
    return text


def _without_values(names: re.Pattern[str], text: str) -> str:
    """Hide the value after each name that is a secret's; after any other one the search goes on with its value."""
    kept, done, at = [], 0, 0
    while found := names.search(text, at):
        at = found.end("name")
        if _SECRET.search(found["name"]):
            before, value, after, at = _value(text, found)
            if value:
                kept += [text[done : found.end()], before, NOT_SHOWN, after]
                done = at
    return "".join([*kept, text[done:]])


def _value(text: str, found: re.Match[str]) -> tuple[str, str, str, int]:
    """The value after a name: its opening quote, itself, its closing quote, and where it ends."""
    start = found.end()
    if quoted := _QUOTED.match(text, start):
        opened = len(quoted[0]) - len(quoted[0].lstrip("bBrRuU").lstrip("\\")) + 1
        quote = quoted[0][:opened].lstrip("bBrRuU")
        closed = quote if len(quoted[0]) >= opened + len(quote) and quoted[0].endswith(quote) else ""
        return quoted[0][:opened], quoted[0][opened:], closed, quoted.end()
    kind = _WORD
    if _HEADER.search(found["name"]):
        kind = _TO_QUOTE if text[max(0, found.start() - 1) : found.start()].endswith(('"', "'")) else _LINE
    word = kind.match(text, start)
    return "", word[0] if word else "", "", word.end() if word else start
