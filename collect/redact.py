"""What of an environment and of a command line may be written down: a run folder is made to be passed on.

Of the environment only variables that are known to bear on a measurement are kept, and none whose name or value looks
like a secret. Of a command line everything is kept but what a secret's name announces (`--token x`, `API_KEY=x`), what
has the form of one, and the value of any variable whose name is a secret's. A secret that nothing marks, and what the
program prints, cannot be told apart from the rest.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
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
    r"(?<![A-Za-z0-9])(gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{20,}|hf_[A-Za-z0-9]{20,}|sk-[\w-]{20,}|AKIA[0-9A-Z]{16}"
    r"|AIza[\w-]{35}|xox[abprs]-[\w-]{10,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)|(?<=[Bb]earer )[^\s\"']+"
)
"""Tokens that show by their form what they are."""
LOGIN = re.compile(r"(?<=://)[^/\s\"'@]*@")
"""The user and password of a URL."""
ASSIGNED = re.compile(
    r"(?P<name>[A-Za-z][\w.-]*)(?P<between>[\"']?\s*(?:=|:(?!//))\s*)(?P<value>\"[^\"]*\"|'[^']*'|[^\s\"'&,;)}\]]+)"
)
"""`NAME=value`, `name: value`, `"name": "value"` inside a longer text."""
WORDS = re.compile(r"(?:\"[^\"]*\"|'[^']*'|[^\s\"'])+")
"""Words of a shell's line, quotes and all."""
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
        return FORMS.sub(HIDDEN, text)

    def text(self, text: str) -> str:
        """A text without the secrets that can be told in it."""
        return ASSIGNED.sub(self._assigned, LOGIN.sub(HIDDEN + "@", self.tokens(text)))

    def _assigned(self, found: re.Match[str]) -> str:
        name, value = found["name"], found["value"]
        # url=https://host/?token=x: a value may hold others.
        shown = HIDDEN if _hides(name, value) else ASSIGNED.sub(self._assigned, value)
        return f"{name}{found['between']}{shown}"

    def arguments(self, argv: Iterable[str]) -> list[str]:
        """A command line without its secrets; as many arguments as before."""
        out: list[str] = []
        before = ""
        for argument in argv:
            if _hides_next(before, argument):
                out.append(HIDDEN)
            elif WORDS.fullmatch(argument):
                out.append(self.text(argument))
            else:
                out.append(self._line(argument))
            before = argument
        return out

    def _line(self, line: str) -> str:
        """A command line inside an argument (`sh -c "..."`): its words are arguments, too."""
        before = ""

        def word(found: re.Match[str]) -> str:
            nonlocal before
            hidden = _hides_next(before, found[0])
            before = found[0]
            return HIDDEN if hidden else found[0]

        return self.text(WORDS.sub(word, line))

    def anything(self, value: Any) -> Any:
        """Plain data (of JSON) with its texts redacted, and lists of texts as command lines."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list | tuple):
            texts = [v for v in value if isinstance(v, str)]
            return self.arguments(texts) if len(texts) == len(value) else [self.anything(v) for v in value]
        if isinstance(value, dict):
            return {k: HIDDEN if isinstance(v, str) and _hides(k, v) else self.anything(v) for k, v in value.items()}
        return value


def _hides(name: str, value: str) -> bool:
    """Whether a value must not be shown under this name."""
    if not is_secret_name(name) or name.endswith(("Error", "Exception")):
        return False
    return not (COUNTS.fullmatch(name.lower().replace("-", "_")) and value.isdigit())


def _hides_next(option: str, value: str) -> bool:
    """Whether the argument behind an option is a secret: `--token x`, `-u user:password`."""
    if option in ("-u", "--user") and ":" in value:
        return True
    if not re.fullmatch(r"--?[A-Za-z][\w.-]+", option) or value.startswith("-"):
        return False
    return _hides(option.lstrip("-"), value)
