"""What pyproject.toml cannot say: the description that a package index shows.

It is the README, but its links to files of this repository lead nowhere there: each becomes its text and the path.
"""

import re
from pathlib import Path

from setuptools import setup

_LINK_TO_FILE = re.compile(r"\[([^]]+)\]\((?!https?://)([^)#]*)(?:#[^)]*)?\)")


def description(readme: str) -> str:
    """The README without links to files and headings."""
    return _LINK_TO_FILE.sub(lambda m: f"{m[1]} (`{m[2]}`)" if m[2] else m[1], readme)


setup(
    long_description=description(Path(__file__).with_name("README.md").read_text("utf-8")),
    long_description_content_type="text/markdown",
)
