"""What of an environment and of a command line may be written down: a run folder is made to be passed on.

Of the environment only variables that are known to bear on a measurement are kept, and none whose name or value looks
like a secret. A command line is kept but for values under a secret's name (`--token x`, `API_KEY=x`, JSON, headers),
what has the form of a secret, and the values of variables with a secret's name. A secret that nothing marks, and what
the program prints, cannot be told apart from the rest.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

HIDDEN = "***"
VARIABLES = re.compile(
    r"(NCCL|CUDA|CUDNN|CUBLAS|CUPTI|TORCH|TORCHINDUCTOR|TORCHELASTIC|PYTORCH|TRITON|GLOO|OMP|MKL|KINETO|TEARDOWN)_\w+"
    r"|NVIDIA_(VISIBLE_DEVICES|DRIVER_CAPABILITIES|TF32_OVERRIDE|PRODUCT_NAME|REQUIRE_CUDA)"
    r"|(LOCAL_|GROUP_|NODE_)?RANK|(LOCAL_)?WORLD_SIZE|OMPI_COMM_WORLD_\w+|PMIX?_(RANK|SIZE)"
    r"|SLURM_(PROCID|LOCALID|NTASKS|NNODES|NODEID|JOB_ID)"
)
"""Environment variables that bear on a measurement, or say which rank of what job a process is."""
SECRET = re.compile(
    r"passw|passphrase|secret|credential|bearer|authoriz|apikey|privatekey|signature"
    r"|(^|[^a-z0-9])(pass|pat|auth|oauth2?|creds?|jwt|sas|sig|cookies?|\w*(token|keys?|pwd?))($|[^a-z0-9])"
)
"""What the name of a secret contains, in lower case and with `_` for what separates its words."""
COUNTS = re.compile(r"([a-z0-9]*_)*tokens")
"""Names that are numbers far more often than secrets (--max-tokens 4096)."""
FORMS = re.compile(
    r"(?<![A-Za-z0-9])(?:gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{20,}|hf_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{20,}"
    r"|pypi-[\w-]{20,}|sk-[\w-]{20,}|[prs]k_(?:live|test)_[A-Za-z0-9]{10,}|nvapi-[\w-]{20,}|xox[a-z]-[\w-]{10,}"
    r"|(?:A3T[A-Z0-9]|ABIA|ACCA|AKIA|ASIA)[A-Z0-9]{16}|AIza[\w-]{35}|ya29\.[\w.-]{10,}|GOCSPX-[\w-]{20,}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"
)
"""Tokens that show by their form what they are; `_library_forms` has more."""
PRIVATE_KEY = re.compile(
    r"-{4,5} ?BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)? ?-{4,5}"
    r"(?:.*?-{4,5} ?END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)? ?-{4,5}|.*)|PuTTY-User-Key-File-\d.*",
    re.DOTALL,
)
"""A private key as a PEM block, or one in PuTTY's form; to the end of the text where a block has no end."""
BEARER = re.compile(r"(?P<scheme>\bbearer\s+)(?P<value>[^\s\"',;]+)", re.I)
BASIC = re.compile(r"(?P<scheme>\bbasic\s+)(?P<value>[A-Za-z0-9+/_-]{4,}={0,2})", re.I)
LOGIN = re.compile(r"(?<=://)[^/\s\"?#]*@")
"""The user and password of a URL."""
CURL_LOGIN = re.compile(r"(?<![\w-])(?:-u|--(?:proxy-)?user=)(?P<value>[\w.@%+-]+:[^\s\"']+)")
"""`-uuser:password` and `--user=user:password`."""
WORD = r"(?:\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|\\.|[^\s\"'\\])+|[\"'].*"
"""A word of a shell's line, quotes and all; to the end of the line where a quote has no end."""
HEADER = re.compile(
    r"(?P<quote>(?<!\\)\\*[\"'])?(?<![\w-])(?:[a-z][\w-]*-)?(?:authorization|cookies?)\s*[:=]\s*"
    r"(?!\\*[\"'])(?P<value>(?(quote)(?:(?!(?<!\\)(?P=quote)).)+|[^\r\n]+))",
    re.I | re.DOTALL,
)
"""`Authorization: Basic x` and `Cookie: a=x; b=y`: to the quote that ends the header, else to the end of the line."""
QUOTED = re.compile(
    r"(?P<quote>(?<!\\)\\*[\"'])[-+]*(?P<name>[A-Za-z_][\w.-]*)(?:=|:(?!//))(?P<value>(?:(?!(?<!\\)(?P=quote)).)+)",
    re.ASCII | re.DOTALL,
)
"""`'--name=value'` inside a longer text: an argument that is all of one name and its value, blanks included."""
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
"""An argument that is all of one name and its value, blanks included."""
SWITCH = re.compile(r"-*(?:ask|allow|disable|enable|has|is|no|require|show|skip|use|with|without)[-_.]", re.I)
"""Options that need no value: one that begins with a dash is the next option."""
SHORTEST = 8
"""Characters; a shorter value of a variable is not looked for elsewhere: `1` would be everywhere."""


def is_secret_name(name: str) -> bool:
    """Whether a variable, option or key of this name holds a secret."""
    # apiKey and API-Key are api_key.
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return bool(SECRET.search(re.sub(r"[^a-z0-9]+", "_", words).replace("_", " ")))


def safe_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of an environment that may be written down, by name."""
    text = Redactor(environment).text
    names = (k for k in sorted(environment) if VARIABLES.fullmatch(k) and not is_secret_name(k))
    return {k: text(environment[k]) for k in names}


class Redactor:
    """Replaces secrets by `***`; knows the values of the environment's secret variables, wherever they turn up."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        """Take the environment that the program is started with."""
        values = {v for k, v in environment.items() if is_secret_name(k) and len(v) >= SHORTEST}
        # SSH_AUTH_SOCK, PWD: a path is not a secret, and the command line is full of them.
        secrets = (v for v in values if not os.path.exists(v))  # noqa: PTH110 (Path raises for what is no path)
        self.known = sorted(secrets, key=lambda v: (-len(v), v))

    def tokens(self, text: str) -> str:
        """A text without the secrets that need no name: for texts that are not command lines, such as kernel names."""
        for value in self.known:
            text = text.replace(value, HIDDEN)
        text = FORMS.sub(HIDDEN, PRIVATE_KEY.sub(HIDDEN, text))
        for form in _library_forms():
            text = form.sub(HIDDEN, text)
        text = BEARER.sub(rf"\g<scheme>{HIDDEN}", text)
        return BASIC.sub(lambda found: _with_value(found, HIDDEN) if _is_login(found["value"]) else found[0], text)

    def text(self, text: str) -> str:
        """A text without the secrets that can be told in it."""
        text = LOGIN.sub(HIDDEN + "@", self.tokens(text))
        for pattern in (HEADER, CURL_LOGIN):
            text = pattern.sub(lambda found: _with_value(found, HIDDEN), text)
        return _hide_named(ASSIGNED, _hides, _hide_named(QUOTED, _hides, _hide_named(OPTION, _hides_next, text)))

    def arguments(self, argv: Iterable[str]) -> list[str]:
        """A command line without its secrets; as many arguments as before."""
        out: list[str] = []
        before = ""
        for argument in argv:
            whole = LEADING_NAME.fullmatch(argument)
            # sh -c "TOKEN=x python train.py": a line that goes on behind the value.
            is_line = whole is not None and not whole["dashes"] and re.fullmatch(r"-[a-z]*c", before)
            if _hides_next(before, argument):
                out.append(HIDDEN)
            elif whole and not is_line and _hides(whole["name"], whole["value"]):
                out.append(_with_value(whole, HIDDEN))
            else:
                out.append(self._json(argument))
            before = argument
        return out

    def _json(self, text: str) -> str:
        """A text, which may be JSON."""
        if text[:1] in ("{", "["):
            with suppress(ValueError, RecursionError):
                data = json.loads(text)
                if (shown := self.anything(data)) != data:
                    text = json.dumps(shown, ensure_ascii=False)
        return self.text(text)

    def anything(self, value: Any) -> Any:
        """Plain data (of JSON) with its texts redacted, and lists of texts as command lines."""
        if isinstance(value, str):
            return self._json(value)
        if isinstance(value, list | tuple):
            texts = [v for v in value if isinstance(v, str)]
            return self.arguments(texts) if len(texts) == len(value) else [self.anything(v) for v in value]
        if isinstance(value, dict):
            return {k: _hidden(k, v) if is_secret_name(k) else self.anything(v) for k, v in value.items()}
        return value


def _hide_named(pattern: re.Pattern[str], hides: Callable[[str, str], bool], text: str) -> str:
    """A text without the values that `hides` hides by their names, as `pattern` finds both; a value may hold more."""
    parts, done = [], 0
    while found := pattern.search(text, done):
        hidden = hides(found["name"], found["value"])
        parts.append(text[done : found.start("value")] + HIDDEN * hidden)
        done = found.end("value") if hidden else found.start("value")
    return "".join([*parts, text[done:]])


def _with_value(found: re.Match[str], shown: str) -> str:
    """What a pattern found, with another text for its group `value`, which ends it."""
    return found[0][: found.start("value") - found.start()] + shown


def _is_login(text: str) -> bool:
    """Whether a text is `user:password` in base64, as of `Authorization: Basic`."""
    with suppress(ValueError):
        login = base64.b64decode(text.translate({45: 43, 95: 47}) + "=" * (-len(text) % 4), validate=True).decode()
        return ":" in login and login.isprintable()
    return False


def _hidden(name: str, value: Any) -> Any:
    """Data under a secret's name without its texts."""
    if isinstance(value, str):
        return HIDDEN if _hides(name, value) else value
    if isinstance(value, list | tuple):
        return [_hidden(name, v) for v in value]
    return {k: _hidden(name, v) for k, v in value.items()} if isinstance(value, dict) else value


def _hides(name: str, value: str) -> bool:
    """Whether a value must not be shown under this name."""
    if not is_secret_name(name) or name.endswith(("Error", "Exception")):
        return False
    return not (COUNTS.fullmatch(name.lower().replace("-", "_")) and value.isdigit())


def _hides_next(before: str, value: str) -> bool:
    """Whether the argument behind another is a secret: `--token x`, `-u user:password`."""
    if before in ("-u", "--user", "--proxy-user") and ":" in value:
        return True
    # --arguments=--token x: the option may end a value.
    option = re.search(r"(?:^|[\s\"'=])(--?[A-Za-z][\w.-]+)$", before)
    if option is None or value == "--" or (value.startswith("-") and SWITCH.match(option[1])):
        return False
    return _hides(option[1].lstrip("-"), value)


@cache
def _library_forms() -> tuple[re.Pattern[str], ...]:
    """The forms of tokens that detect-secrets knows; none where it is not installed.

    Left out: its rules that judge by randomness or by the name alone, which hashes and kernels fall under, and those of
    Artifactory, which begin like ordinary words. Its own search yields parts of some tokens, hence its patterns.
    """
    try:
        from detect_secrets.plugins import (
            aws,
            azure_storage_key,
            discord,
            github_token,
            gitlab_token,
            jwt,
            mailchimp,
            openai,
            pypi_token,
            sendgrid,
            slack,
            square_oauth,
            stripe,
            telegram_token,
            twilio,
        )
    except ImportError:
        return ()
    detectors = (
        aws.AWSKeyDetector,
        azure_storage_key.AzureStorageKeyDetector,
        discord.DiscordBotTokenDetector,
        github_token.GitHubTokenDetector,
        gitlab_token.GitLabTokenDetector,
        jwt.JwtTokenDetector,
        mailchimp.MailchimpDetector,
        openai.OpenAIDetector,
        pypi_token.PypiTokenDetector,
        sendgrid.SendGridDetector,
        slack.SlackDetector,
        square_oauth.SquareOAuthDetector,
        stripe.StripeDetector,
        telegram_token.TelegramBotTokenDetector,
        twilio.TwilioKeyDetector,
    )
    return tuple(form for detector in detectors for form in detector.denylist)
