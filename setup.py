"""What pyproject.toml cannot say: the description of a package index, and the studies.

The description is the README, but its links to files of this repository lead nowhere there: each becomes its text and
the path. The studies, which stand in a folder of their own, are found in `schemas` once installed.
"""

import re
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

_LINK_TO_FILE = re.compile(r"\[([^]]+)\]\((?!https?://)([^)#]*)(?:#[^)]*)?\)")


def description(readme: str) -> str:
    """The README without links to files and headings."""
    return _LINK_TO_FILE.sub(lambda m: f"{m[1]} (`{m[2]}`)" if m[2] else m[1], readme)


class Build(build_py):
    """Also copies the studies."""

    def run(self):
        """Build."""
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib, "schemas", "studies")
            shutil.copytree(Path(__file__).with_name("studies"), target, dirs_exist_ok=True)


setup(
    cmdclass={"build_py": Build},
    long_description=description(Path(__file__).with_name("README.md").read_text("utf-8")),
    long_description_content_type="text/markdown",
)
