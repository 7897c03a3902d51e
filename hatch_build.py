"""The README as the package page shows it: links lead to the repository's address, where it is known, and never nowhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:)([^)]+)\)")


class PackagePage(MetadataHookInterface):  # type: ignore[misc]
    """Sets the description of the package."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the README to the metadata of a build."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        address = metadata.get("urls", {}).get("Source")
        metadata["readme"] = {"content-type": "text/markdown", "text": with_absolute_links(text, address)}


def with_absolute_links(text: str, address: str | None) -> str:
    """Text whose links into the repository are absolute; without an address, pictures are left out and links are words."""

    def absolute(link: re.Match[str]) -> str:
        picture, words, target = link.groups()
        if address is None:
            return "" if picture else words
        return f"{picture}[{words}]({address}/{'raw' if picture else 'blob'}/main/{target})"

    return LINK.sub(absolute, text)
