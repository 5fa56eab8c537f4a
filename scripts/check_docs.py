#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that code shown in the docs is code that compiles, and that links between files lead somewhere.

A C++ block in a Markdown file follows a line `<!-- from PATH -->` and must occur in that file, word for word.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CPP_BLOCK = re.compile(r"(?:^<!-- from (\S+) -->\n)?^```cpp\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://)([^)#]+)[^)]*\)")


def faults(page):
    text = page.read_text(encoding="utf-8")
    for source, code in CPP_BLOCK.findall(text):
        if not source:
            yield f"a C++ block has no `<!-- from PATH -->` line: {code.splitlines()[0]}"
        elif not (ROOT / source).exists() or code not in (ROOT / source).read_text(encoding="utf-8"):
            yield f"a C++ block is not in {source} word for word: {code.splitlines()[0]}"
    for target in LINK.findall(text):
        if not (page.parent / target).exists():
            yield f"links to {target}, which does not exist"


def main():
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found = [f"{page.relative_to(ROOT)}: {fault}" for page in pages for fault in faults(page)]
    print("\n".join(found) if found else "docs: code and links are sound")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
