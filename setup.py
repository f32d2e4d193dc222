"""What pyproject.toml cannot say: the description of a package index, the studies and the sample.

The description is the README, but its links to files of this repository lead nowhere there: each becomes its text and
the path. The studies and the sample of `analyze demo` have folders of their own here. In a wheel they are in packages.
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
    """Also copies the studies, and the sample of `analyze demo`."""

    def run(self):
        """Build."""
        super().run()
        if not self.editable_mode:
            here = Path(__file__).parent
            copied = {"studies": "schemas/studies", "sample_traces/slow-loader": "analyze/samples/slow-loader"}
            for folder, target in copied.items():
                shutil.copytree(here / folder, Path(self.build_lib, target), dirs_exist_ok=True)


setup(
    cmdclass={"build_py": Build},
    long_description=description(Path(__file__).with_name("README.md").read_text("utf-8")),
    long_description_content_type="text/markdown",
)
