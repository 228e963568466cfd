//! XML from files: parses it within limits, and looks up metadata.

use roxmltree::{Document, Node, ParsingOptions};

/// Texts of 500 bands take 200 KB.
pub(super) const LONGEST_TEXT: usize = 16 << 20;
/// The parser's time grows with the square of the number of attributes of one element, and its
/// memory with the square of the number of namespaces. No writer comes near these limits.
const MAX_ATTRIBUTES: usize = 1024;
const MAX_NAMESPACES: usize = 256;

/// Parses XML from a file, unless that would take very long.
///
/// # Errors
/// A message, if it would, or if the text is not well-formed.
pub(super) fn parse(text: &str) -> Result<Document<'_>, String> {
    if text.len() > LONGEST_TEXT {
        return Err("it is longer than 16 MiB".to_owned());
    }
    if text.matches("xmlns").count() > MAX_NAMESPACES {
        return Err("it has too many namespaces".to_owned());
    }
    // A tag has at most as many attributes as there are equal signs before the next tag.
    if text.split('<').any(|tag| tag.matches('=').count() > MAX_ATTRIBUTES) {
        return Err("it has too many attributes".to_owned());
    }
    let options = ParsingOptions { nodes_limit: 4 << 20, ..ParsingOptions::default() };
    Document::parse_with_options(text, options).map_err(|error| error.to_string())
}

/// The element at the end of `path`, such as `specific/bandCharacterisation`, below `node`: the
/// first with each name.
pub(super) fn at<'a, 'input>(node: Node<'a, 'input>, path: &str) -> Option<Node<'a, 'input>> {
    path.split('/').try_fold(node, |node, name| all(node, name).next())
}

/// The elements `name` directly in `node`, of any namespace.
pub(super) fn all<'a, 'input>(
    node: Node<'a, 'input>,
    name: &str,
) -> impl Iterator<Item = Node<'a, 'input>> {
    node.children().filter(move |child| child.is_element() && child.tag_name().name() == name)
}

/// The text in the element at the end of `path`; `None` if there is none.
pub(super) fn text<'a>(node: Node<'a, '_>, path: &str) -> Option<&'a str> {
    at(node, path)?.text().map(str::trim).filter(|text| !text.is_empty())
}

/// The number in the element at the end of `path`; `None` if there is no number.
pub(super) fn number(node: Node<'_, '_>, path: &str) -> Option<f64> {
    text(node, path)?.parse().ok().filter(|number: &f64| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_found_by_their_path() {
        let document = parse("<a><b><c> 1e-4 </c></b><b><d/></b><c>2</c></a>").unwrap();
        let root = document.root_element();
        assert_eq!(number(root, "b/c"), Some(1e-4));
        assert_eq!(text(root, "c"), Some("2"));
        assert_eq!(text(root, "b/d"), None, "of the first b");
        assert_eq!(number(root, "b"), None);
        let named = parse("<a xmlns='urn:x'><b>1</b><b>2</b></a>").unwrap();
        assert_eq!(all(named.root_element(), "b").count(), 2, "in a namespace");
    }

    #[test]
    fn no_entity_is_expanded() {
        assert!(parse("<!DOCTYPE a [<!ENTITY b \"c\">]><a>&b;</a>").is_err());
    }
}
