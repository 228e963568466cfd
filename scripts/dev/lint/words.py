#!/usr/bin/env python3
"""Counts vague words in the Rust code, and compares the counts with scripts/dev/lint/words.txt.

usage: scripts/dev/lint/words.py                  fails if a count is not the one in words.txt
       scripts/dev/lint/words.py --list [CRATE]   shows each of them
       scripts/dev/lint/words.py --lower          writes lower counts into words.txt, no higher ones

Rules:
  what       doc lines that open with "What": name the thing, or start with a verb
  long       doc lines of more than 100 characters, indented, except tables, code and diagrams
  bindings   variables, parameters and fields with a name of VAGUE: name what they hold;
             `left` beside `right` or `top` is a side, and does not count
  tests      tests named what_, who_, where_ or ..._is_no_...: name the behaviour
  types      types with a name of TYPES: use a noun
  constants  constants and statics with a name of CONSTANTS, or MOST_...: use a noun, with its unit

Bindings are found by regular expressions and matching brackets, not by a parser. They are seen in
`let` (also `if let`, `while let`, `let ... else`), `for`, `match` arms, parameters of functions and
closures, and fields of structs and variants. They are not seen in `matches!` and other macros with
patterns, and where a macro makes names of fragments.
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# fmt: off
VAGUE = {
    "told", "given", "one", "own", "rest", "behind", "there", "known", "left", "asked", "seen",
    "said", "made", "place",
}
TYPES = {
    "Held", "Made", "Given", "Place", "Of", "Way", "Here", "Together", "Through",
}
CONSTANTS = {
    "AMPLE", "AT_ONCE", "BESIDE", "BESIDES", "COMPARED", "DECIDED", "ENOUGH", "FAILED_FOR",
    "FAR", "HELD", "IGNORED_FOR", "KEPT", "KNOWN", "LEFT", "LEFT_OUT", "LINGER", "LOOK", "MADE",
    "MOST", "NEAR", "NEVER", "OTHERWISE", "OWN", "PATIENCE", "REMEMBERED", "REST", "SAME",
    "SEARCHED", "SEE", "SHUFFLED_TOGETHER", "TOGETHER", "WORTHWHILE", "WORTH_READING_OVER",
}
# fmt: on
LONGEST_DOC_LINE = 100

# Comments, strings and characters. A lifetime is not followed by a quote.
NO_CODE = re.compile(
    r"//[^\n]*|/\*.*?\*/|\bb?r(#*)\".*?\"\1|\bb?\"(?:\\.|[^\"\\])*\"|\"(?:\\.|[^\"\\])*\""
    r"|'(?:\\u\{[^}]*\}|\\x..|\\.|[^\\'\n])'",
    re.DOTALL,
)
VAGUE_WORD = re.compile(rf"\b(?:{'|'.join(sorted(VAGUE))})\b")
NAME = re.compile(r"(?<![\w.:'])(?:ref\s+|mut\s+)*([a-z_]\w*)\b(?!\s*(?:::|\(|!|:(?!:)))")
FIELD = re.compile(r"[{,(\]]\s*(?:pub(?:\([^)]*\))?\s+)?([a-z_]\w*)\s*:(?!:)")
CLOSURE = re.compile(r"(?:[(,=>{;:&]|\bmove|\breturn|\belse)\s*\|(?!\|)([^|;]*)\|")
FUNCTION = re.compile(r"\bfn\s+([a-z_]\w*)\s*")
TEST = re.compile(r"#\[test\]\s*(?:#\[[^\]]*\]\s*)*fn\s+(\w+)")
VAGUE_TEST = re.compile(r"(?:what|who|where)_|.*_is_no_")
TYPE = re.compile(r"\b(?:struct|enum|union|trait|type)\s+([A-Z]\w*)")
CONSTANT = re.compile(r"\b(?:const|static)\s+(?:mut\s+)?([A-Z][A-Z0-9_]*)\s*:")
DOC_LINE = re.compile(r"\s*//[/!](?!/)\s?(.*)")
OPENING, CLOSING = "([{", ")]}"


class Hit(NamedTuple):
    rule: str
    line: int
    word: str


def code_of(text: str) -> str:
    """The text with spaces instead of comments, strings and characters."""
    return NO_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def end_of(code: str, start: int, stops: str) -> int:
    """Position of the first of `stops` outside of brackets, or of the bracket that closes it."""
    depth = 0
    for match in re.compile(f"[][(){{}}{stops}]").finditer(code, start):
        at, character = match.start(), match[0]
        if depth == 0 and character in stops:
            # `..=`, `==`, `=>`, `::`.
            around = code[at - 1 : at + 2]
            if character == "=" and (around[0] == "." or around[1:] in ("==", "=>")):
                continue
            if character == ":" and "::" in around:
                continue
            return at
        if character in OPENING:
            depth += 1
        elif character in CLOSING:
            depth -= 1
            if depth < 0:
                return at
    return len(code)


def opening_of(code: str, closing: int) -> int:
    """Position of the bracket that the one at `closing` closes."""
    depth = 0
    for at in range(closing, -1, -1):
        if code[at] in CLOSING:
            depth += 1
        elif code[at] in OPENING:
            depth -= 1
            if depth == 0:
                return at
    return 0


def start_of_arm(code: str, arrow: int) -> int:
    """Position at which the pattern before the arrow of a `match` arm starts."""
    at = arrow - 1
    while at >= 0:
        character = code[at]
        if character in OPENING or character in ",;":
            return at + 1
        if character in CLOSING:
            opening = opening_of(code, at)
            # A block that ends the arm before, unless it is the pattern of a struct.
            if character == "}" and not re.search(
                r"\b[A-Z]\w*\s*$", code[max(0, opening - 80) : opening]
            ):
                return at + 1
            at = opening
        at -= 1
    return 0


def patterns(code: str) -> Iterator[tuple[int, int]]:
    """Start and end of each pattern in which names are bound."""
    for match in re.finditer(r"\blet\b", code):
        yield match.end(), end_of(code, match.end(), "=:;")
    for match in re.finditer(r"\bfor\b(?!\s*<)", code):
        end = end_of(code, match.end(), ";")
        inner = re.compile(r"\bin\b").search(code, match.end(), end)
        if inner and "}" not in re.sub(r"\{[^{}]*\}", "", code[match.end() : inner.start()]):
            yield match.end(), inner.start()
    for match in re.finditer(r"=>", code):
        if not VAGUE_WORD.search(code, max(0, match.start() - 1000), match.start()):
            continue
        start = start_of_arm(code, match.start())
        guard = re.compile(r"\bif\b").search(code, start, match.start())
        yield start, guard.start() if guard else match.start()
    for match in CLOSURE.finditer(code):
        yield from parameters(code, match.start(1), match.end(1))
    for match in FUNCTION.finditer(code):
        start = match.end()
        if code[start : start + 1] == "<":
            start = end_of(code, start, "(")
        if code[start : start + 1] == "(":
            yield from parameters(code, start + 1, end_of(code, start + 1, ")"))


def parameters(code: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The patterns of parameters, without their types."""
    while start < end:
        yield start, min(end, end_of(code, start, ":,"))
        angles = 0
        # Commas in `HashMap<K, V>` separate no parameters.
        while start < end:
            stop = min(end, end_of(code, start, ",<>"))
            start = stop + 1
            if code[stop] == "<":
                angles += 1
            elif code[stop] == ">" and code[stop - 1] != "-":
                angles -= 1
            elif code[stop] == "," and angles <= 0:
                break


def is_side(code: str, position: int, word: str) -> bool:
    """Whether `left` is a side, beside `right` or `top`, and not a remainder."""
    return (
        word == "left"
        and re.search(r"\b(?:right|top)\b", code[max(0, position - 200) : position + 200])
        is not None
    )


def bindings(code: str) -> Iterator[tuple[int, str]]:
    """Position and name of each binding and field with a vague name."""
    for start, end in patterns(code):
        for match in NAME.finditer(code, start, end):
            if match[1] in VAGUE and not is_side(code, match.start(1), match[1]):
                yield match.start(1), match[1]
    for match in re.finditer(r"\b(?:struct|enum|union)\s+[A-Z]\w*[^;{(]*\{", code):
        end = end_of(code, match.end(), "}")
        for field in FIELD.finditer(code, match.end() - 1, end):
            if field[1] in VAGUE and not is_side(code, field.start(1), field[1]):
                yield field.start(1), field[1]


def hits(text: str) -> list[Hit]:
    """Everything in one file that breaks a rule, in the order of lines."""
    found = set()
    is_fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        doc = DOC_LINE.match(line)
        if doc is None or doc[1].lstrip().startswith("```"):
            is_fenced = doc is not None and not is_fenced
        if doc and re.match(r"What\b", doc[1]):
            found.add((number, 0, Hit("what", number, line.strip())))
        is_prose = doc and not is_fenced and not doc[1].startswith("|")
        if is_prose and len(line) > LONGEST_DOC_LINE:
            found.add((number, 0, Hit("long", number, line.strip())))
    code = code_of(text)

    def add(rule: str, position: int, word: str) -> None:
        line = code.count("\n", 0, position) + 1
        found.add((line, position, Hit(rule, line, word)))

    for position, word in bindings(code):
        add("bindings", position, word)
    for match in TEST.finditer(code):
        if VAGUE_TEST.match(match[1]):
            add("tests", match.start(1), match[1])
    for match in TYPE.finditer(code):
        if match[1] in TYPES:
            add("types", match.start(1), match[1])
    for match in CONSTANT.finditer(code):
        if match[1] in CONSTANTS or match[1].startswith("MOST_"):
            add("constants", match.start(1), match[1])
    return [hit for _, _, hit in sorted(found)]


def files(root: Path) -> Iterator[tuple[str, Path]]:
    """Each Rust file with its crate."""
    for path in sorted((root / "crates").rglob("*.rs")):
        if "target" not in path.parts:
            yield path.relative_to(root / "crates").parts[0], path


def read_allowed(path: Path) -> dict[tuple[str, str], int]:
    """The counts of words.txt by crate and rule."""
    allowed = {}
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            crate, rule, number = line.split()
            allowed[crate, rule] = int(number)
    return allowed


def write_allowed(path: Path, allowed: dict[tuple[str, str], int]) -> None:
    head = [line for line in path.read_text().splitlines() if line.startswith("#")]
    lines = [
        f"{crate} {rule} {number}" for (crate, rule), number in sorted(allowed.items()) if number
    ]
    path.write_text("\n".join(head + lines) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Counts words in the Rust code that say too little."
    )
    parser.add_argument("--list", nargs="?", const="", metavar="CRATE", help="show each of them")
    parser.add_argument("--lower", action="store_true", help="write lower counts into words.txt")
    parser.add_argument(
        "--root",
        type=Path,
        default=Path(__file__).resolve().parents[3],
        help="folder of crates/ (for tests)",
    )
    options = parser.parse_args()

    if options.list is not None:
        for crate, path in files(options.root):
            if options.list in ("", crate):
                for hit in hits(path.read_text()):
                    print(f"{path.relative_to(options.root)}:{hit.line}: {hit.rule}: {hit.word}")
        return 0

    counts: Counter[tuple[str, str]] = Counter()
    for crate, path in files(options.root):
        counts.update((crate, hit.rule) for hit in hits(path.read_text()))
    exceptions = options.root / "scripts/dev/lint/words.txt"
    allowed = read_allowed(exceptions)
    more = less = False
    for crate, rule in sorted(counts.keys() | allowed.keys()):
        count, limit = counts[crate, rule], allowed.get((crate, rule), 0)
        if count > limit:
            more = True
            print(
                f"error: crates/{crate} has {count} of the rule '{rule}', "
                f"and words.txt allows {limit}; "
                f"scripts/dev/lint/words.py --list {crate} shows them",
                file=sys.stderr,
            )
        elif count < limit:
            less = True
            allowed[crate, rule] = count
            if not options.lower:
                print(
                    f"error: crates/{crate} has {count} of the rule '{rule}', "
                    f"fewer than the {limit} of words.txt; "
                    "run scripts/dev/lint/words.py --lower",
                    file=sys.stderr,
                )
    if less and options.lower:
        write_allowed(exceptions, allowed)
    return 1 if more or (less and not options.lower) else 0


if __name__ == "__main__":
    sys.exit(main())
