"""Turn LaTeX into MathML while the site is built, so that pages need no script and no network to show formulas.

Names in docstrings lose their Sphinx roles, and short names are kept on one line.

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
#: Sphinx roles of docstrings, which mkdocstrings leaves as they are.
ROLE = re.compile(r":(?:attr|class|func|meth|mod):<code>~?")
#: Options and names, which stay on one line.
SHORT_CODE = re.compile(r"<code>([^<\n]{1,24})</code>")
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

    return SHORT_CODE.sub(r'<code class="short">\1</code>', ROLE.sub("<code>", FORMULA.sub(convert, content)))


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


def on_page_markdown(markdown: str, **_: Any) -> str:
    """MkDocs calls this with the text of a page; the commands come from the parser itself."""
    return markdown.replace("<!-- commands -->", commands_text()) if "<!-- commands -->" in markdown else markdown


def commands_text() -> str:
    """What the help of every command says, as Markdown."""
    import typer

    from mixtune.cli._app import make_app

    return "\n\n".join(_command_parts("mixtune", typer.main.get_command(make_app())))


def _command_parts(name: str, command: Any) -> list[str]:
    inner = {key: each for key, each in getattr(command, "commands", {}).items() if not each.hidden}
    if inner:
        return [part for key, each in inner.items() for part in _command_parts(f"{name} {key}", each)]
    arguments = [each for each in command.params if not each.opts[0].startswith("-")]
    usage = " ".join([name, *((each.metavar or each.name.upper()) for each in arguments), "[OPTIONS]"])
    parts = [f"## {name}", f"```text\n{usage}\n```", *_paragraphs(name, command.help or "")]
    rows = [f"| {_flags(each)} | {_cell(getattr(each, 'help', None) or '')} |" for each in command.params]
    return [*parts, "\n".join(["| argument or option | meaning |", "|---|---|", *rows])] if rows else parts


def _paragraphs(name: str, text: str) -> list[str]:
    """Paragraphs of a help text; examples of the command become code."""
    found = [" ".join(part.split()) for part in re.split(r"\n\s*\n", text.replace("\b", "").replace("\f", ""))]
    return [f"```sh\n{part}\n```" if part.startswith("mixtune ") else html.escape(part) for part in found if part]


def _flags(option: Any) -> str:
    flags = option.opts[0].startswith("-")
    names = [*option.opts, *option.secondary_opts] if flags else [option.metavar or option.name]
    shown, default = ", ".join(f"`{name}`" for name in names), option.default
    plain = default is not None and not callable(default) and default not in ("", False, True, (), [])
    return f"{shown} ({_cell(default)})" if plain and flags else shown


def _cell(text: Any) -> str:
    return html.escape(" ".join(str(text).split())).replace("|", "\\|")
