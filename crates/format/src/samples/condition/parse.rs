//! Parses words into a condition. There is one function for each line of the grammar.

use super::node::{Comparison, Node, Operand, What, problem};
use super::words::{Word, words};
use crate::Result;

/// Maximum nesting of brackets and `not`. There is a limit because the parser is recursive.
const DEEPEST: usize = 64;

/// Parses a whole condition.
pub(super) fn condition(text: &str) -> Result<Node> {
    let mut parser = Parser { text, words: words(text)?, position: 0, depth: 0 };
    let node = parser.any()?;
    match parser.next() {
        None => Ok(node),
        Some(_) => Err(parser.wrong_before("'and' or 'or' is missing before this")),
    }
}

struct Parser<'a> {
    text: &'a str,
    words: Vec<(usize, Word)>,
    position: usize,
    depth: usize,
}

impl Parser<'_> {
    fn next(&mut self) -> Option<Word> {
        let word = self.words.get(self.position).map(|(_, word)| word.clone());
        self.position += 1;
        word
    }

    /// Consumes the sign if it is next.
    fn takes(&mut self, sign: &str) -> bool {
        let is_next =
            matches!(self.words.get(self.position), Some((_, Word::Sign(next))) if *next == sign);
        self.position += usize::from(is_next);
        is_next
    }

    /// Where the next word begins, or the end of the text if there is none.
    fn at(&self) -> usize {
        self.words.get(self.position).map_or(self.text.chars().count(), |(at, _)| *at)
    }

    fn wrong(&self, what: &str) -> crate::Error {
        problem(self.text, self.at(), what).with_remedy(
            "write a condition such as label == 'urban' and cloud < 10, with ==, !=, <, <=, >, >=, in, and, or, not and brackets",
        )
    }

    /// The error about the word that was consumed last.
    fn wrong_before(&mut self, what: &str) -> crate::Error {
        self.position -= 1;
        self.wrong(what)
    }

    fn any(&mut self) -> Result<Node> {
        let mut nodes = vec![self.all()?];
        while self.takes("or") {
            nodes.push(self.all()?);
        }
        Ok(one_or(nodes, Node::Or))
    }

    fn all(&mut self) -> Result<Node> {
        let mut nodes = vec![self.one()?];
        while self.takes("and") {
            nodes.push(self.one()?);
        }
        Ok(one_or(nodes, Node::And))
    }

    fn one(&mut self) -> Result<Node> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.wrong("too many nested brackets"));
        }
        let node = if self.takes("not") {
            Node::Not(Box::new(self.one()?))
        } else if self.takes("(") {
            let inside = self.any()?;
            self.close(")")?;
            inside
        } else {
            self.comparison()?
        };
        self.depth -= 1;
        Ok(node)
    }

    fn close(&mut self, bracket: &str) -> Result<()> {
        match self.takes(bracket) {
            true => Ok(()),
            false => Err(self.wrong(&format!("'{bracket}' is missing"))),
        }
    }

    fn comparison(&mut self) -> Result<Node> {
        let first = self.operand()?;
        let start = self.position;
        match self.next() {
            Some(Word::Sign("in")) => return self.list(first),
            Some(Word::Sign("not")) if self.takes("in") => {
                return Ok(Node::Not(Box::new(self.list(first)?)));
            }
            Some(Word::Sign(sign)) => {
                if let Some(comparison) = Comparison::of(sign) {
                    return Ok(Node::Compare(first, comparison, self.operand()?));
                }
            }
            _ => {}
        }
        self.position = start;
        match first.what {
            What::Column(_) => Ok(Node::Is(first)),
            What::Value(_) => Err(self.wrong("a comparison is missing")),
        }
    }

    fn list(&mut self, first: Operand) -> Result<Node> {
        let close = if self.takes("(") {
            ")"
        } else if self.takes("[") {
            "]"
        } else {
            return Err(self.wrong("'in' needs a list, such as ('a', 'b')"));
        };
        let mut list = vec![self.operand()?];
        while self.takes(",") {
            if self.takes(close) {
                return Ok(Node::In(first, list));
            }
            list.push(self.operand()?);
        }
        self.close(close)?;
        Ok(Node::In(first, list))
    }

    fn operand(&mut self) -> Result<Operand> {
        let at = self.at();
        let what = match self.next() {
            Some(Word::Column(name)) => What::Column(name),
            Some(Word::Value(value)) => What::Value(value),
            _ => return Err(self.wrong_before("a column or a value is missing")),
        };
        Ok(Operand { what, at })
    }
}

/// The node itself if there is only one, otherwise all nodes combined by `all`.
fn one_or(mut nodes: Vec<Node>, all: impl FnOnce(Vec<Node>) -> Node) -> Node {
    match nodes.pop() {
        Some(only) if nodes.is_empty() => only,
        last => {
            nodes.extend(last);
            all(nodes)
        }
    }
}

impl Comparison {
    fn of(sign: &str) -> Option<Self> {
        Some(match sign {
            "==" => Self::Equal,
            "!=" => Self::Unequal,
            "<" => Self::Less,
            "<=" => Self::LessOrEqual,
            ">" => Self::Greater,
            ">=" => Self::GreaterOrEqual,
            _ => return None,
        })
    }
}
