//! Escapes text and data for HTML.

use hsipack_format::text;

/// Escapes text for HTML elements and quoted attributes.
pub fn escape(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            // HTML and XML allow no control characters. Bidirectional controls would change the direction of the text
            // after them.
            c if text::is_control(c) && !matches!(c, '\n' | '\t') => html.push('\u{fffd}'),
            c => html.push(c),
        }
    }
    html
}

/// A table in its own box, which scrolls if it is wider than the page. All cells are plain text.
/// The first column names the rows; all other columns are right-aligned.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let head: String =
        head.iter().map(|cell| format!("<th scope=\"col\">{}</th>", escape(cell))).collect();
    let row = |cells: &Vec<String>| {
        let cells = cells.iter().enumerate().map(|(number, cell)| match number {
            0 => format!("<th scope=\"row\">{}</th>", escape(cell)),
            _ => format!("<td>{}</td>", escape(cell)),
        });
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    };
    let rows: String = rows.iter().map(row).collect();
    // A box that scrolls must be reachable with the keyboard.
    format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"Table\">\n<table>\n\
         <thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n</div>"
    )
}

/// Escapes JSON for a script element: the value stays the same, but no character has a meaning in
/// HTML.
pub(super) fn json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            c if matches!(c, '<' | '>' | '&') || text::is_control(c) => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out
}

/// Escapes a script for its element; in a JavaScript string, `<\/` means `</`.
pub(super) fn script(js: &str) -> String {
    js.replace("</", "<\\/").replace("<!--", "<\\!--")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text() {
        assert_eq!(
            escape("<a href=\"x\">'&\u{7}\u{202e}"),
            "&lt;a href=&quot;x&quot;&gt;&#39;&amp;\u{fffd}\u{fffd}"
        );
        let html = table(&["<"], &[vec!["&".into(), ">".into()]]);
        assert!(html.contains(">&lt;<") && html.contains(">&amp;<") && html.contains(">&gt;<"));
    }

    #[test]
    fn scripts_end_where_they_should() {
        assert_eq!(script("'</script>'"), "'<\\/script>'");
        assert_eq!(json("{\"a\":\"<!--\"}"), "{\"a\":\"\\u003c!--\"}");
    }
}
