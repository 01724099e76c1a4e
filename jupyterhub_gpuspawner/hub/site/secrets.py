"""Replaces the values of secrets in lines that people read: of a job's log, or of what a node reports. Pure.

A secret is recognised by the name before it (``DB_PASSWORD=...``), by its position in a URL, or by its form. The
search takes time linear in the length of the text: no part of a pattern can match the same characters in two ways,
and each attempt ends where the next can begin.
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
"""Matches the name of a secret, but not counts of tokens, tokenizers and ``PWD``."""
_HEADER = re.compile(r"(?:authorization|cookie)$", re.IGNORECASE)
"""Matches the name of a header whose value contains blanks."""
_FORMS = (
    # after the scheme of an Authorization header, with a digit in it: the words of a sentence have none
    re.compile(r"\b((?:bearer|basic|token)[ \t]+)(?=[A-Za-z_.~+/-]*[0-9])[\w.~+/=-]{8,}", re.IGNORECASE),
    re.compile(r"(://[^\s/?#:@]*:)[^\s/@]*(?:@[^\s/@]*)*(?=@)"),  # the password in a URL
    re.compile(r"(://)[\w.~%+-]{20,}(?=@)"),  # a token in place of the user in a URL
    re.compile(r"([?&](?:code|state|sig|signature|key|auth|x-amz-[\w-]+)=)[^\s&#\"']+", re.IGNORECASE),
    # GitHub, Hugging Face, GitLab, OpenAI, Slack; AWS; a JSON web token
    re.compile(r"(?<![\w.-])()(?:gh[pousr]_|github_pat_|hf_|glpat-|sk-|xox[abps]-)[\w-]{16,}"),
    re.compile(r"(?<![\w.-])()AKIA[0-9A-Z]{16}(?!\w)"),
    re.compile(r"(?<![\w.-])()eyJ[\w-]{8,}\.[\w-]+\.[\w-]*"),
)


def redacted(text: str) -> str:
    """``text`` with each value that looks like a secret replaced by :data:`NOT_SHOWN`."""
    for pattern in (_NAME, _OPTION):
        text = _without_values(pattern, text)
    for form in _FORMS:
        text = form.sub(rf"\1{NOT_SHOWN}", text)
    return text


def _without_values(names: re.Pattern[str], text: str) -> str:
    """Replace the value after each name of a secret; after any other name the search continues with the value."""
    parts, done, at = [], 0, 0
    while match := names.search(text, at):
        at = match.end("name")
        if _SECRET.search(match["name"]):
            before, value, after, at = _value(text, match)
            if value:
                parts += [text[done : match.end()], before, NOT_SHOWN, after]
                done = at
    return "".join([*parts, text[done:]])


def _value(text: str, match: re.Match[str]) -> tuple[str, str, str, int]:
    """The value after a name: its opening quote, itself, its closing quote, and the position of its end."""
    start = match.end()
    if quoted := _QUOTED.match(text, start):
        opened = len(quoted[0]) - len(quoted[0].lstrip("bBrRuU").lstrip("\\")) + 1
        quote = quoted[0][:opened].lstrip("bBrRuU")
        closed = quote if len(quoted[0]) >= opened + len(quote) and quoted[0].endswith(quote) else ""
        return quoted[0][:opened], quoted[0][opened:], closed, quoted.end()
    kind = _WORD
    if _HEADER.search(match["name"]):
        kind = _TO_QUOTE if text[max(0, match.start() - 1) : match.start()].endswith(('"', "'")) else _LINE
    word = kind.match(text, start)
    return "", word[0] if word else "", "", word.end() if word else start
