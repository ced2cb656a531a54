"""Entries of BibTeX from the lines of papers.py:    authors, title, venue (year),
arXiv:number.
"""

from __future__ import annotations

import re

__all__ = ["entry_of", "parts_of"]

INITIALS = r"[A-Z]\.(?:-?[A-Z]\.| [A-Z]\.)*"
AUTHOR = rf"{INITIALS} (?:[a-z]+ )*[^\W\d_][\w’'-]*(?: [^\W\d_][\w’'-]*)?"
AUTHORS = re.compile(rf"^((?:{AUTHOR}, )*(?:{AUTHOR} and )?{AUTHOR}), (.+)$")
VENUE = re.compile(
    r", (?=(?:NeurIPS|ICML|COLT|AISTATS|ICLR|ALT|PhD|arXiv:|Phys\.|Proc\.|J\."
    r" |SIAM|Found\.|Ann\.|Commun\.|Europhys\.|"
    r"EPL|IEEE|Inf\.|Probab\.|Math\.|Adv\.|Nat\.|Neural"
    r" |Trans\.|Mach\.|Cambridge|Springer|in )[^:]*)"
)
TEX = str.maketrans({"&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_"})


def parts_of(line: str) -> dict[str, str]:
    """Authors, title, venue, year and arXiv number of a line; what it does not say is
    left out.

    Examples
    --------
    >>> parts_of(
    ...     "D. Saad and S. A. Solla, On-line learning, Phys. Rev. E 52, 4225 (1995)."
    ... )["author"]
    'D. Saad and S. A. Solla'
    """
    found = AUTHORS.match(line.removesuffix("."))
    if found is None:
        raise ValueError(f"no authors in {line!r}")
    people, rest = found.groups()
    pieces = VENUE.split(rest, maxsplit=1)
    if len(pieces) < 2:
        raise ValueError(f"no venue in {line!r}")
    title, place = pieces
    parts = {"author": re.sub(r", (?=[A-Z]\.)", " and ", people), "title": title}
    number, year = (
        re.search(r"arXiv:([\d.]+\d)", place),
        re.search(r"\((\d{4})\)", place),
    )
    venue = re.sub(r",? ?arXiv:[\d.]+\d", "", place)
    venue = re.sub(r" ?\(\d{4}\)", "", venue).strip(" ,")
    if venue:
        parts["venue"] = venue
    if year:
        parts["year"] = year[1]
    if number:
        parts["eprint"] = number[1]
    return parts


def entry_of(key: str, line: str) -> str:
    """An entry of BibTeX.

    Examples
    --------
    >>> text = (
    ...     "D. Saad and S. A. Solla, On-line learning, Phys. Rev. E 52, 4225 (1995)."
    ... )
    >>> print(entry_of("saad1995", text))
    @article{saad1995,
      author = {Saad, D. and Solla, S. A.},
      title = {{On-line learning}},
      journal = {Phys. Rev. E 52, 4225},
      year = {1995},
    }
    """
    parts = parts_of(line)
    venue = parts.get("venue", "")
    thesis = venue.startswith("PhD thesis")
    meeting = re.match(r"(?:NeurIPS|ICML|COLT|AISTATS|ICLR|ALT|in )", venue) is not None
    kind = (
        "phdthesis"
        if thesis
        else "inproceedings"
        if meeting
        else "article"
        if venue
        else "misc"
    )
    people = (
        re.sub(rf"^({INITIALS}) (.+)$", r"\2, \1", name)
        for name in parts["author"].split(" and ")
    )
    fields = {"author": " and ".join(people), "title": f"{{{parts['title']}}}"}
    if thesis:
        fields["school"] = venue.removeprefix("PhD thesis, ")
    elif venue:
        fields["booktitle" if meeting else "journal"] = venue.removeprefix("in ")
    if "year" in parts:
        fields["year"] = parts["year"]
    if "eprint" in parts:
        fields |= {"eprint": parts["eprint"], "archiveprefix": "arXiv"}
    rows = "".join(
        f"  {name} = {{{text.translate(TEX)}}},\n" for name, text in fields.items()
    )
    return f"@{kind}{{{key},\n{rows}}}"
