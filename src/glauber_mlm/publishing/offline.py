"""Which resources of a built site would be fetched from another host."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

from glauber_mlm import checks
from glauber_mlm.errors import UserError

_FETCHED_LINKS = {
    "stylesheet",
    "preload",
    "prefetch",
    "modulepreload",
    "icon",
    "shortcut",
    "apple-touch-icon",
    "manifest",
    "preconnect",
    "dns-prefetch",
}
_OUTSIDE = re.compile(r"^\s*(https?:)?//", re.IGNORECASE)
_STYLE_URL = re.compile(r"""(?:url\(\s*['"]?|@import\s+['"])\s*((?:https?:)?//[^'")\s]+)""", re.IGNORECASE)


class _Resources(HTMLParser):
    """Collects what a browser fetches by itself when it opens a page; links to click are not among it."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._in_style = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self._in_style = tag == "style"
        if tag == "link" and _FETCHED_LINKS & set(given.get("rel", "").lower().split()):
            self.found.append(given.get("href", ""))
        if tag == "object":
            self.found.append(given.get("data", ""))
        if tag not in ("a", "link"):
            self.found += [
                given.get("src", ""),
                *(part.split()[0] for part in given.get("srcset", "").split(",") if part.strip()),
            ]
        self.found += _STYLE_URL.findall(given.get("style", ""))

    def handle_endtag(self, tag: str) -> None:
        self._in_style = False

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.found += _STYLE_URL.findall(data)


def outside_resources(site: Path) -> list[str]:
    """Scripts, styles, fonts, images and frames that pages or style sheets of `site` take from another host.

    Returns
    -------
    list of str
        `page: address`, sorted. What a script decides to fetch later is not seen.

    Raises
    ------
    UserError
        If `site` is no folder: nothing would be found in it.
    """
    site = checks.path("site", site)
    if not site.is_dir():
        raise UserError(f"site {site} is no folder; build it with `glauber-mlm html`")
    asked = set()
    for path in [*site.rglob("*.html"), *site.rglob("*.css")]:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".css":
            addresses = _STYLE_URL.findall(text)
        else:
            parser = _Resources()
            parser.feed(text)
            addresses = parser.found
        asked |= {
            f"{path.relative_to(site).as_posix()}: {address}"
            for address in addresses
            if _OUTSIDE.match(address)
        }
    return sorted(asked)
