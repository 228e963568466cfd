"""scripts/dev/lint/words.py finds vague words and nothing else, and its exceptions only shrink."""

import subprocess
import sys
from pathlib import Path

import pytest

LINT = Path(__file__).resolve().parents[4] / "scripts/dev/lint/words.py"

VAGUE = {
    "doc that opens with What": ("/// What it does.\nfn f() {}", ["what"]),
    "long doc line": (f"//! {'x' * 147}\n", ["long"]),
    "let": ("fn f() { let given = 1; }", ["bindings"]),
    "let of several": ("fn f() { let (mut told, b) = g(); }", ["bindings"]),
    "let of a field": ("fn f() { let Point { x: one, y } = p; }", ["bindings"]),
    "if let": ("fn f() { if let Some(rest) = x {} }", ["bindings"]),
    "let chain": ("fn f() { if a && let Some(known) = x {} }", ["bindings"]),
    "let else": ("fn f() { let [first, rest @ ..] = x else { return }; }", ["bindings"]),
    "for": ("fn f() { for (place, b) in x {} }", ["bindings"]),
    "for in a method of an impl": (
        "impl A for B { fn f() { for place in x {} } }",
        ["bindings"],
    ),
    "arms": ("fn f() { match x { Some(asked) => 1, seen => 2 } }", ["bindings"] * 2),
    "arm after a block": ("fn f() { match x { A => {} said if b => 2 } }", ["bindings"]),
    "arm of a struct": ("fn f() { match x { A { made, .. } => 1 } }", ["bindings"]),
    "closure": ("fn f() { x.map(|(at, own)| at) }", ["bindings"]),
    "closure with a type": ("fn f() { let g = |behind: &A<B, C>| 1; }", ["bindings"]),
    "parameter": ("fn f<'a>(a: &'a HashMap<K, V>, there: usize) {}", ["bindings"]),
    "field": ("struct A {\n    pub(crate) place: u8,\n}", ["bindings"]),
    "field of a variant": ("enum A { B { told: u8 } }", ["bindings"]),
    "left that is no side": ("fn f() { let left = a - b; }", ["bindings"]),
    "test": ("#[test]\nfn what_is_read_is_kept() {}", ["tests"]),
    "test with a negation": ("#[test]\n#[ignore]\nfn a_text_is_no_number() {}", ["tests"]),
    "type": ("struct Made;\nenum Of { A }", ["types"] * 2),
    "constants": ("const AT_ONCE: u8 = 1;\nstatic MOST_FILES: u8 = 1;", ["constants"] * 2),
}

PLAIN = {
    "comments and strings": 'fn f() { /* let given */ g("let told = 1", \'"\'); } // let one',
    "raw string": 'fn f() { g(r#"let "told" = 1"#) }',
    "methods and fields": "fn f() { let a = b.own().place; given(told::one); }",
    "field of a pattern": "fn f() { let Point { place: x, made: y } = p; }",
    "field of a literal": "fn f() { let a = Point { place: x }; }",
    "values": "fn f() { let a = given; g(known, |b| b == one); }",
    "guard": "fn f() { match x { a if a == known => 1, _ => 2 } }",
    "or": "fn f() { let a = b || one | rest; }",
    "longer names": "fn f() { let given_name = 1; for place_of in x {} }",
    "lifetime": "fn f<'made>(a: &'made str) {}",
    "impl": "impl Place for Thing {}",
    "sides": "fn f() { let [left, top, right, bottom] = x; }",
    "a function that is no test": "fn what_it_holds() {}",
    "another type": "struct MadeOfWood;\nstruct Places;",
    "a comment that is no doc": "// What it does.\n",
    "a row of a table": f"//! | {'x' * 200} |\n",
}


def lint(root: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(LINT), "--root", str(root), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def write(root: Path, code: str, exceptions: str = "") -> Path:
    (root / "crates/a/src").mkdir(parents=True, exist_ok=True)
    (root / "crates/a/src/lib.rs").write_text(code)
    (root / "scripts/dev/lint").mkdir(parents=True, exist_ok=True)
    path = root / "scripts/dev/lint/words.txt"
    path.write_text(f"# head\n{exceptions}")
    return path


@pytest.mark.parametrize(("code", "rules"), VAGUE.values(), ids=VAGUE.keys())
def test_vague_words_are_found(tmp_path: Path, code: str, rules: list[str]) -> None:
    write(tmp_path, code)
    found = [line.split(": ")[1] for line in lint(tmp_path, "--list", "a").stdout.splitlines()]
    assert found == rules


@pytest.mark.parametrize("code", PLAIN.values(), ids=PLAIN.keys())
def test_plain_words_are_not_found(tmp_path: Path, code: str) -> None:
    write(tmp_path, code)
    assert lint(tmp_path, "--list").stdout == ""


def test_exceptions_only_shrink(tmp_path: Path) -> None:
    two = "fn f() { let given = 1; let told = 2; }"
    exceptions = write(tmp_path, two, "a bindings 2\n")
    assert lint(tmp_path).returncode == 0

    write(tmp_path, two, "a bindings 1\n")
    more = lint(tmp_path, "--lower")
    assert more.returncode == 1
    assert "crates/a has 2 of the rule 'bindings', and words.txt allows 1" in more.stderr
    assert exceptions.read_text() == "# head\na bindings 1\n"

    write(tmp_path, two, "a bindings 3\na types 1\n")
    fewer = lint(tmp_path)
    assert fewer.returncode == 1
    assert "run scripts/dev/lint/words.py --lower" in fewer.stderr
    assert lint(tmp_path, "--lower").returncode == 0
    assert exceptions.read_text() == "# head\na bindings 2\n"
    assert lint(tmp_path).returncode == 0
