"""Turn LaTeX into MathML while the site is built, so that pages need no script and no network to show formulas.

``pymdownx.arithmatex`` finds ``$...$`` and ``$$...$$`` in the Markdown; ``latex2mathml`` converts what it found; and
``_tidy`` adapts the result to MathML Core, the part of MathML that browsers draw. A formula that cannot be converted
in full stops the build.
"""

from __future__ import annotations

import html
import re
import unicodedata
import xml.etree.ElementTree as ElementTree
from typing import Any

from latex2mathml.converter import convert_to_element
from mkdocs.exceptions import PluginError

Element = ElementTree.Element

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
LIMITS = {"arg min", "inf", "lim", "max", "min", "sup"}
#: Characters that latex2mathml takes for identifiers, and what they are.
OPERATORS = {"~": "∼", "⟨": "⟨", "⟩": "⟩", "⟺": "⟺", "⟹": "⟹", "↦": "↦", "⪰": "⪰"}
#: Characters that latex2mathml takes for operators, and that are none.
SYMBOLS = {"∞", "…", "⋯"}
#: Scripts of sums and the like go below and above in displayed formulas.
STACKED = {"msub": "munder", "msubsup": "munderover"}
#: Bars of absolute values and norms: as high as what they enclose only where LaTeX says left and right.
BARS = {"|", "‖"}
#: Operators without space around them.
TIGHT = set("/()[]{}")
CLOSING = {")", "]", "}", "|", "‖"}
#: Operators that serve as superscript marks here and must not be spaced like operators.
MARKS = {"⊤", "⋆", "∗", "+", "−"}


def on_page_content(content: str, *, page: Any, **_: Any) -> str:
    """MkDocs calls this with the HTML of a page before it goes into the template."""

    def convert(match: re.Match[str]) -> str:
        latex = html.unescape(match[2]).strip()
        try:
            return to_mathml(latex, display=match[1] == "div")
        except Exception as error:
            raise PluginError(f"{page.file.src_uri}: cannot convert the formula {latex!r}: {error}") from error

    return FORMULA.sub(convert, content)


def to_mathml(latex: str, *, display: bool) -> str:
    """MathML for one formula; a displayed one sits in a box that scrolls on narrow screens."""
    math = convert_to_element(latex, display="block" if display else "inline")
    _tidy(math)
    text = ElementTree.tostring(math, encoding="unicode", short_empty_elements=False)
    return f'<div class="formula">{text}</div>' if display else text


def _tidy(element: Element) -> None:
    """Adapt one element and what is inside it, in place."""
    element.text = text = html.unescape(element.text or "")
    if "\\" in text or text.strip() == "&":
        raise ValueError(f"{text!r} was not understood")
    variant = element.attrib.pop("mathvariant", None)
    if variant == "normal":
        element.set("mathvariant", "normal")
    elif variant is None and element.tag == "mi" and len(text) == 1 and "Α" <= text <= "Ω":
        element.set("mathvariant", "normal")  # upright Greek capitals, as in TeX
    elif variant is not None:
        element.text = "".join(_styled(character, variant) for character in text)
    if element.tag == "mi" and text in OPERATORS:
        element.tag, element.text = "mo", OPERATORS[text]
    elif element.tag == "mo" and ((text.isalpha() and text not in LIMITS) or text in SYMBOLS):
        element.tag = "mi"
        element.attrib.clear()
    if element.tag == "mo" and text in BARS:
        element.attrib.setdefault("stretchy", "false")
    if element.tag == "mo" and (text in BARS or text in TIGHT or _name(element) in LIMITS):
        element.attrib.update(lspace="0", rspace="0")
    if element.tag == "mtd":
        _align(element)
    if element.tag == "mspace" and element.get("width") == "negativethinmathspace":
        element.set("width", "-0.167em")
    for child in element:
        _tidy(child)
    if element.tag in STACKED and _name(element[0]) in LIMITS | {"∑"}:
        element.tag = STACKED[element.tag]
        element[0].set("movablelimits", "true")
    if element.tag in {"msup", "msubsup"} and element[-1].tag == "mo" and element[-1].text in MARKS:
        element[-1].tag = "mi"
        element[-1].set("mathvariant", "normal")
    if element.tag in {"mover", "munder"}:
        _decorate(element)
    _space(element)


def _styled(character: str, variant: str) -> str:
    """The Unicode character that looks like ``character`` in a style: browsers ignore the attribute for it."""
    kind = unicodedata.name(character).replace("LATIN ", "").replace("GREEK ", "").replace("LETTER ", "")
    style = variant.upper().replace("BOLD-ITALIC", "BOLD ITALIC")
    for name in (f"MATHEMATICAL {style} {kind}", f"{style} {kind}"):
        try:
            return unicodedata.lookup(name)
        except KeyError:
            continue
    raise ValueError(f"there is no {variant} {character!r}")


def _align(cell: Element) -> None:
    """Columns of an aligned display: the attribute is not part of MathML Core, the style is."""
    side = cell.attrib.pop("columnalign", None)
    if side is not None:
        cell.set("class", f"align-{side}")


def _decorate(element: Element) -> None:
    """Bars and braces as rules drawn by the stylesheet: they fit their base in every font, stretched glyphs do not."""
    mark = element[-1]
    if mark.text in {"¯", "―", "⏟"}:
        del element[-1]
        element.tag = "mrow"
        element.attrib = {"class": "braced" if mark.text == "⏟" else "bar"}
    elif mark.text in {"^", "~"}:
        mark.attrib = {"stretchy": "false"}
        element.set("accent", "true")


def _name(element: Element) -> str:
    return (element.text or "").replace("\u2009", " ").strip()


def _space(row: Element) -> None:
    """Spaces as TeX sets them: thin ones around a function's name, none after a sign."""
    children = list(row)
    for position in reversed(range(len(children))):
        child = children[position]
        before = children[position - 1] if position else None
        after = children[position + 1] if position + 1 < len(children) else None
        leads = before is None or (before.tag == "mo" and before.text not in CLOSING)
        if leads and child.tag == "mo" and child.text in {"−", "+"}:
            child.set("form", "prefix")
        if not _is_function(child) or row.tag not in {"mrow", "math", "mtd", "msqrt"}:
            continue
        if after is not None and after.tag not in {"mo", "mspace"}:
            row.insert(position + 1, Element("mspace", width="0.167em"))
        if before is not None and (before.tag not in {"mo", "mspace"} or before.text in CLOSING):
            row.insert(position, Element("mspace", width="0.167em"))


def _is_function(element: Element) -> bool:
    name = element[0] if element.tag in {"msup", "munder", "msub"} else element
    letters = _name(name).replace(" ", "")
    return name.tag in {"mi", "mo"} and len(letters) > 1 and letters.isascii() and letters.isalpha()
