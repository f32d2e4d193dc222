"""Removes secrets from environments and command lines: a run folder is meant to be shared.

Of the environment, only variables that can affect a measurement are written, and none whose name or value looks like a
secret. In command lines, values under a secret's name (`--token x`, `API_KEY=x`, JSON, headers), tokens with a known
form, and values of variables with a secret's name are replaced. Secrets without such a mark are not recognised, and the
program's output is not changed.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any

HIDDEN = "***"
VARIABLES = re.compile(
    r"(NCCL|CUDA|CUDNN|CUBLAS|CUPTI|TORCH|TORCHINDUCTOR|TORCHELASTIC|PYTORCH|TRITON|GLOO|OMP|MKL|KINETO|TEARDOWN)_\w+"
    r"|NVIDIA_(VISIBLE_DEVICES|DRIVER_CAPABILITIES|TF32_OVERRIDE|PRODUCT_NAME|REQUIRE_CUDA)"
    r"|(LOCAL_|GROUP_|NODE_)?RANK|(LOCAL_)?WORLD_SIZE|OMPI_COMM_WORLD_\w+|PMIX?_(RANK|SIZE)"
    r"|SLURM_(PROCID|LOCALID|NTASKS|NNODES|NODEID|JOB_ID)"
)
"""Environment variables that can affect a measurement, or identify a process's rank and job."""
SECRET = re.compile(
    r"passw|passphrase|secret|credential|bearer|authoriz|apikey|privatekey|signature"
    r"|(^|[^a-z0-9])(pass|pat|auth|oauth2?|creds?|jwt|sas|sig|cookies?|\w*(token|keys?|pwd?))($|[^a-z0-9])"
)
"""Matches the name of a secret, in lower case, with a space between its words."""
COUNTS = re.compile(r"([a-z0-9]*_)*tokens")
"""Names that usually hold numbers, not secrets (--max-tokens 4096)."""
FORMS = re.compile(
    r"(?<![A-Za-z0-9])(?:gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{20,}|hf_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{20,}"
    r"|pypi-[\w-]{20,}|sk-[\w-]{20,}|[prs]k_(?:live|test)_[A-Za-z0-9]{10,}|nvapi-[\w-]{20,}|xox[a-z]-[\w-]{10,}"
    r"|(?:A3T[A-Z0-9]|ABIA|ACCA|AKIA|ASIA)[A-Z0-9]{16}|AIza[\w-]{35}|ya29\.[\w.-]{10,}|GOCSPX-[\w-]{20,}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"
)
"""Tokens with a known form; `_library_forms` has more."""
PRIVATE_KEY = re.compile(
    r"-{4,5} ?BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)? ?-{4,5}"
    r"(?:.*?-{4,5} ?END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)? ?-{4,5}|.*)|PuTTY-User-Key-File-\d.*",
    re.DOTALL,
)
"""A private key as a PEM block or in PuTTY's format; to the end of the text if the block does not end."""
BEARER = re.compile(r"(?P<scheme>\bbearer\s+)(?P<value>[^\s\"',;]+)", re.I)
BASIC = re.compile(r"(?P<scheme>\bbasic\s+)(?P<value>[A-Za-z0-9+/_-]{4,}={0,2})", re.I)
LOGIN = re.compile(r"(?<=://)[^/\s\"?#]*@")
"""The user and password of a URL."""
CURL_LOGIN = re.compile(r"(?<![\w-])(?:-u|--(?:proxy-)?user=)(?P<value>[\w.@%+-]+:[^\s\"']+)")
"""`-uuser:password` and `--user=user:password`."""
WORD = r"(?:\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|\\.|[^\s\"'\\])+|[\"'].*"
"""A word of a shell command with its quotes; to the end of the line if a quote does not end."""
HEADER = re.compile(
    r"(?P<quote>(?<!\\)\\*[\"'])?(?<![\w-])(?:[a-z][\w-]*-)?(?:authorization|cookies?)\s*[:=]\s*"
    r"(?!\\*[\"'])(?P<value>(?(quote)(?:(?!(?<!\\)(?P=quote)).)+|[^\r\n]+))",
    re.I | re.DOTALL,
)
"""`Authorization: Basic x` and `Cookie: a=x; b=y`, to the closing quote or the end of the line."""
QUOTED = re.compile(
    r"(?P<quote>(?<!\\)\\*[\"'])[-+]*(?P<name>[A-Za-z_][\w.-]*)(?:=|:(?!//))(?P<value>(?:(?!(?<!\\)(?P=quote)).)+)",
    re.ASCII | re.DOTALL,
)
"""`'--name=value'` inside a longer text: a quoted argument of one name and its value, blanks included."""
ASSIGNED = re.compile(
    r"(?<![\w.-])[\d_.-]*(?P<name>[A-Za-z][\w.-]*)(?:\\*[\"'])?\]?\s*(?:=>|:?=|:(?!//))\s*"
    r"(?P<value>(?P<escaped>\\+[\"'])(?s:.*?)(?<!\\)(?P=escaped)|\{[^{}]*\}|\[[^\[\]]*\]"
    r"|(?:\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|\\.|[^\s\"'\\&,;)}\]]|,(?![\s\"']|$|[A-Za-z][\w.-]*\s*[:=]))+|[\"'].*)",
    re.ASCII,
)
"""`NAME=value`, `name: value`, `"name": "value"` inside a longer text."""
OPTION = re.compile(rf"(?<![\w-])(?P<name>--?[A-Za-z][\w.-]*)\s+(?P<value>{WORD})", re.ASCII)
"""`--name value` inside a longer text."""
LEADING_NAME = re.compile(r"(?P<dashes>[-+]*)(?P<name>[A-Za-z_][\w.-]*)(?:=|:(?!//))(?P<value>(?s:.*))", re.ASCII)
"""An argument that consists of one name and its value, blanks included."""
SWITCH = re.compile(r"-*(?:ask|allow|disable|enable|has|is|no|require|show|skip|use|with|without)[-_.]", re.I)
"""Options without a value: an argument after them that starts with a dash is another option."""
MIN_SECRET_LENGTH = 8
"""Shorter values of variables are not searched for in texts: `1` would be found everywhere."""


def is_secret_name(name: str) -> bool:
    """Whether a variable, option or key of this name holds a secret."""
    # apiKey and API-Key are api_key.
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return bool(SECRET.search(re.sub(r"[^a-z0-9]+", "_", words).replace("_", " ")))


def safe_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of an environment that may be written, by name."""
    text = Redactor(environment).text
    names = (k for k in sorted(environment) if VARIABLES.fullmatch(k) and not is_secret_name(k))
    return {k: text(environment[k]) for k in names}


class Redactor:
    """Replaces secrets by `***`, also the values of the environment's secret variables wherever they occur."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        """Take the environment that the program is started with."""
        values = {v for k, v in environment.items() if is_secret_name(k) and len(v) >= MIN_SECRET_LENGTH}
        # A path is no secret (SSH_AUTH_SOCK, PWD), and command lines contain many.
        secrets = (v for v in values if not os.path.exists(v))  # noqa: PTH110 (Path raises for invalid paths)
        self.known = sorted(secrets, key=lambda v: (-len(v), v))

    def tokens(self, text: str) -> str:
        """Replace secrets that need no name: for other texts than command lines, such as kernel names."""
        for value in self.known:
            text = text.replace(value, HIDDEN)
        text = FORMS.sub(HIDDEN, PRIVATE_KEY.sub(HIDDEN, text))
        for form in _library_forms():
            text = form.sub(HIDDEN, text)
        text = BEARER.sub(rf"\g<scheme>{HIDDEN}", text)
        return BASIC.sub(lambda found: _with_value(found, HIDDEN) if _is_login(found["value"]) else found[0], text)

    def text(self, text: str) -> str:
        """Replace all secrets that are recognised in a text."""
        text = LOGIN.sub(HIDDEN + "@", self.tokens(text))
        for pattern in (HEADER, CURL_LOGIN):
            text = pattern.sub(lambda found: _with_value(found, HIDDEN), text)
        return _hide_named(text)

    def arguments(self, argv: Iterable[str]) -> list[str]:
        """Replace the secrets in a command line; the number of arguments stays the same."""
        out: list[str] = []
        previous = ""
        for argument in argv:
            assignment = LEADING_NAME.fullmatch(argument)
            # sh -c "TOKEN=x python train.py": a command that continues after the value.
            is_command = assignment is not None and not assignment["dashes"] and re.fullmatch(r"-[a-z]*c", previous)
            if _is_secret_after(previous, argument):
                out.append(HIDDEN)
            elif assignment and not is_command and _is_secret(assignment["name"], assignment["value"]):
                out.append(_with_value(assignment, HIDDEN))
            else:
                out.append(self._json(argument))
            previous = argument
        return out

    def _json(self, text: str) -> str:
        """Redact a text that may be JSON."""
        if text[:1] in ("{", "["):
            with suppress(ValueError, RecursionError):
                data = json.loads(text)
                if (redacted := self.anything(data)) != data:
                    text = json.dumps(redacted, ensure_ascii=False)
        return self.text(text)

    def anything(self, value: Any) -> Any:
        """Redact the texts in plain data (JSON); lists of texts are command lines."""
        if isinstance(value, str):
            return self._json(value)
        if isinstance(value, list | tuple):
            texts = [v for v in value if isinstance(v, str)]
            return self.arguments(texts) if len(texts) == len(value) else [self.anything(v) for v in value]
        if isinstance(value, dict):
            return {k: _hidden(k, v) if is_secret_name(k) else self.anything(v) for k, v in value.items()}
        return value


def _hide_named(text: str) -> str:
    """Hide the values of options and assignments with a secret's name; other values are searched, too."""
    for pattern, is_secret in ((OPTION, _is_secret_after), (QUOTED, _is_secret), (ASSIGNED, _is_secret)):
        parts, done = [], 0
        while found := pattern.search(text, done):
            hidden = is_secret(found["name"], found["value"])
            parts.append(text[done : found.start("value")] + HIDDEN * hidden)
            done = found.end("value") if hidden else found.start("value")
        text = "".join([*parts, text[done:]])
    return text


def _with_value(found: re.Match[str], value: str) -> str:
    """Return a match with another text for its last group, `value`."""
    return found[0][: found.start("value") - found.start()] + value


def _is_login(text: str) -> bool:
    """Whether a text is `user:password` in base64, as in `Authorization: Basic`."""
    with suppress(ValueError):
        login = base64.b64decode(text.translate({45: 43, 95: 47}) + "=" * (-len(text) % 4), validate=True).decode()
        return ":" in login and login.isprintable()
    return False


def _hidden(name: str, value: Any) -> Any:
    """Hide the texts in data under a secret's name."""
    if isinstance(value, str):
        return HIDDEN if _is_secret(name, value) else value
    if isinstance(value, list | tuple):
        return [_hidden(name, v) for v in value]
    return {k: _hidden(name, v) for k, v in value.items()} if isinstance(value, dict) else value


def _is_secret(name: str, value: str) -> bool:
    """Whether the value under this name is a secret."""
    if not is_secret_name(name) or name.endswith(("Error", "Exception")):
        return False
    return not (COUNTS.fullmatch(name.lower().replace("-", "_")) and value.isdigit())


def _is_secret_after(previous: str, value: str) -> bool:
    """Whether an argument is a secret because of the previous one: `--token x`, `-u user:password`."""
    if previous in ("-u", "--user", "--proxy-user") and ":" in value:
        return True
    # --arguments=--token x: the option may be the end of a value.
    option = re.search(r"(?:^|[\s\"'=])(--?[A-Za-z][\w.-]+)$", previous)
    if option is None or value == "--" or (value.startswith("-") and SWITCH.match(option[1])):
        return False
    return _is_secret(option[1].lstrip("-"), value)


_DETECTORS = {
    "aws": "AWSKeyDetector",
    "azure_storage_key": "AzureStorageKeyDetector",
    "discord": "DiscordBotTokenDetector",
    "github_token": "GitHubTokenDetector",
    "gitlab_token": "GitLabTokenDetector",
    "jwt": "JwtTokenDetector",
    "mailchimp": "MailchimpDetector",
    "openai": "OpenAIDetector",
    "pypi_token": "PypiTokenDetector",
    "sendgrid": "SendGridDetector",
    "slack": "SlackDetector",
    "square_oauth": "SquareOAuthDetector",
    "stripe": "StripeDetector",
    "telegram_token": "TelegramBotTokenDetector",
    "twilio": "TwilioKeyDetector",
}
"""Plugins of detect-secrets: module -> class.

Not its rules by entropy or name, which match hashes and kernel names, nor those for Artifactory, which match words.
"""


@cache
def _library_forms() -> tuple[re.Pattern[str], ...]:
    """The forms of tokens that detect-secrets knows; none if it is not installed.

    Only its patterns are used: its search returns parts of some tokens.
    """
    try:
        classes = [getattr(import_module(f"detect_secrets.plugins.{m}"), name) for m, name in _DETECTORS.items()]
    except ImportError:
        return ()
    return tuple(form for detector in classes for form in detector.denylist)
