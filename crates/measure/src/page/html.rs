//! Text and data inside HTML.

use hsipack_format::text;

/// Text as HTML: in elements and in attributes with quotes.
pub fn escape(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            // HTML and XML have no control characters; others would turn the direction of what follows.
            c if text::is_control(c) && !matches!(c, '\n' | '\t') => html.push('\u{fffd}'),
            c => html.push(c),
        }
    }
    html
}

/// A table in a box of its own, which scrolls where it is wider than the page. All cells are text; the first column
/// names the rows, all others are set to the right.
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
    // A box that scrolls has to be reached with the keyboard.
    format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"Table\">\n<table>\n\
         <thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n</div>"
    )
}

/// JSON inside a script element: the same value, without a character that HTML takes for its own.
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

/// A script inside its element; `<\/` is `</` in a string of JavaScript.
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
