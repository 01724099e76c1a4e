"""Which parts of a line are hidden as secrets."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.hub.site.secrets import redacted

HIDDEN = {
    "a variable": ("JUPYTERHUB_API_TOKEN=0123 HOME=/home/ada", "JUPYTERHUB_API_TOKEN=(not shown) HOME=/home/ada"),
    "after another name": ("env: API_TOKEN=0123", "env: API_TOKEN=(not shown)"),
    "exported, in quotes, with blanks": (
        "export DB_PASSWORD='correct horse' HOME=/",
        "export DB_PASSWORD='(not shown)' HOME=/",
    ),
    "with a quote in it": (r'PASSWORD="a \" b" x', 'PASSWORD="(not shown)" x'),
    "a quote that does not close": ("PASSWORD='a b\nnext", "PASSWORD='(not shown)\nnext"),
    "a dict of Python": (
        "{'HOME': '/root', 'JUPYTERHUB_API_TOKEN': 'ab cd', 'LANG': 'C'}",
        "{'HOME': '/root', 'JUPYTERHUB_API_TOKEN': '(not shown)', 'LANG': 'C'}",
    ),
    "a dict of bytes": ("{b'X_TOKEN': b'0123'}", "{b'X_TOKEN': b'(not shown)'}"),
    "environ": ("environ({'X_TOKEN': '0123'})", "environ({'X_TOKEN': '(not shown)'})"),
    "a pair": ("[('X_TOKEN', '0123'), ('A', 'b')]", "[('X_TOKEN', '(not shown)'), ('A', 'b')]"),
    "an item": ("os.environ['X_TOKEN'] = '0123'", "os.environ['X_TOKEN'] = '(not shown)'"),
    "JSON": ('{"api_key":"0 1","n":3}', '{"api_key":"(not shown)","n":3}'),
    "JSON in JSON": (r"{\"password\": \"0 1\", \"n\": 3}", r"{\"password\": \"(not shown)\", \"n\": 3}"),
    "YAML": ("client_secret: 0123", "client_secret: (not shown)"),
    "traitlets": ("c.Thing.api_token = '0123'", "c.Thing.api_token = '(not shown)'"),
    "in colour": ("\x1b[32mTOKEN\x1b[0m=\x1b[31m0123", "\x1b[32mTOKEN\x1b[0m=\x1b[31m(not shown)"),
    "an option": ("run --token 0123 --password=0123 -v", "run --token (not shown) --password=(not shown) -v"),
    "an option in quotes": ("sh -c 'run --token 0123 x'", "sh -c 'run --token (not shown) x'"),
    "a header": ("Authorization: token 0123 and more", "Authorization: (not shown)"),
    "a header in quotes": (
        "curl -H 'Authorization: Bearer abc' http://hub",
        "curl -H 'Authorization: (not shown)' http://hub",
    ),
    "a header in a dict": (
        "{'Authorization': 'token abc', 'Accept': '*/*'}",
        "{'Authorization': '(not shown)', 'Accept': '*/*'}",
    ),
    "a header of bytes": ("(b'authorization', b'Bearer abc')", "(b'authorization', b'(not shown)')"),
    "cookies": ("Cookie: a=b; _xsrf=0123", "Cookie: (not shown)"),
    "a cookie that is set": ("Set-Cookie: jupyterhub-session-id=0123; Path=/", "Set-Cookie: (not shown)"),
    "a scheme alone": ("sent Bearer ab12cd34ef to it", "sent Bearer (not shown) to it"),
    "a scheme alone, JupyterHub's": ("sent token ab12cd34ef", "sent token (not shown)"),
    "a parameter": ("http://g1:8888/lab?token=abc&x=1", "http://g1:8888/lab?token=(not shown)&x=1"),
    "a parameter of OAuth": ("/oauth?code=abc&state=xyz", "/oauth?code=(not shown)&state=(not shown)"),
    "a signed address": ("s3?X-Amz-Signature=ab&x=1", "s3?X-Amz-Signature=(not shown)&x=1"),
    "an address's password": ("postgres://ada:pw@db/x", "postgres://ada:(not shown)@db/x"),
    "with an @ in it": ("http_proxy=http://ada:p@w@proxy:3128/", "http_proxy=http://ada:(not shown)@proxy:3128/"),
    "without a user": ("redis://:pw@db", "redis://:(not shown)@db"),
    "a token for a user": (f"https://{'x' * 40}@github.com/a", "https://(not shown)@github.com/a"),
    "by its form": (f"got hf_{'a' * 34}.", "got (not shown)."),
    "a web token": ("got eyJhbGciOiJI.eyJzdWIi.c2ln", "got (not shown)"),
}
READABLE = [
    "no token here",
    "SyntaxError: invalid token",
    "ValueError: too many tokens: 4097",
    "max_tokens=512 n_tokens: 3 tokens/s: 35.1 tokenizer=gpt2",
    "TOKENIZERS_PARALLELISM=false",
    "PWD=/home/ada OLDPWD=/tmp",
    "key: value; monkey=1",
    "basic training of bearer tokens has begun",
    "KeyError: 'HOME'",
    "http://g1:8888/lab?reset=1",
    "ssh://git@github.com/a/b",
    "user ada@example.org at 10:30:00",
    "--tokens 512 --verbose",
    "NVIDIA A100-SXM4-40GB, uuid GPU-5a1e9ad0-6a6b-4a2c-9d2e-6f1f5b7c0a11",
    "PASSWORD=",
    "",
]


@pytest.mark.parametrize(("line", "shown"), HIDDEN.values(), ids=HIDDEN.keys())
def test_a_secret_is_hidden_and_what_stands_around_it_is_not(line: str, shown: str) -> None:
    """Its name stays, its quotes too."""
    assert redacted(line) == shown
    assert redacted(f"before\n{line}\nafter") == f"before\n{shown}\nafter"


@pytest.mark.parametrize("line", READABLE)
def test_what_is_no_secret_stays_readable(line: str) -> None:
    """Words, counts, paths and addresses."""
    assert redacted(line) == line


MANY = 200_000
HOSTILE = {
    "one word": "a" * MANY,
    "one name": "token" * MANY,
    "names": "token-" * MANY,
    "blanks": "token" + " " * MANY + "x",
    "separators": "token" + "=" * MANY,
    "quotes": "token='" + "\\'" * MANY,
    "backslashes": "token=" + "\\" * MANY,
    "colours": "token" + "\x1b[0m" * MANY,
    "many colours": "a\x1b[0m " * MANY,
    "addresses": "://a:" * MANY,
    "at signs": "://a:" + "@" * MANY + "/",
    "no at sign": "://a:" + "b" * MANY,
    "options": "--token " * MANY,
    "parameters": "?code=" * MANY,
    "schemes": "bearer " * MANY,
    "dots": "eyJaaaaaaaaa." * MANY,
    "dashes": "sk-" * MANY,
    "pairs": "'token', " * MANY,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_no_text_takes_long(text: str) -> None:
    """Quadratic time would be hours here, and exceed the test's time limit."""
    assert redacted(text).count("\n") == 0
