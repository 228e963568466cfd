//! Pages that show a run: one HTML file each, which needs no network and nothing beside it.
//!
//! ```
//! use hsipack_measure::page::{Page, escape};
//!
//! let html = Page::new("A run")
//!     .lead("What it shows.")
//!     .section("Rates", &format!("<p>{}</p>", escape("a < b")))
//!     .data(&serde_json::json!({ "batches": 98 }))
//!     .script("console.log(JSON.parse(document.getElementById('data').textContent).batches);")
//!     .render();
//! assert!(html.starts_with("<!doctype html>"));
//! ```
//!
//! | file | part |
//! |---|---|
//! | `mod.rs` | the skeleton: head, sections, data, script |
//! | `html.rs` | text and data that cannot break out of where they stand; tables |
//! | `page.css` | how pages look: light and dark, phone, desktop and paper |
//! | `chart.rs` | lines, steps, stacked areas, bars and scatter as SVG |
//! | `ticks.rs` | round numbers along an axis |
//! | `svg.rs` | pictures inside a page or by themselves, and their colours |
//!
//! Rules: a page loads nothing (its policy forbids it), shows no figure that is not in its `data`, and is readable
//! without its script as far as it is not an animation.

pub mod chart;
mod html;
pub mod svg;
pub mod ticks;

use serde::Serialize;

pub use html::{escape, table};

/// A page in the making.
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    lead: String,
    sections: Vec<(String, String)>,
    data: Option<String>,
    styles: String,
    scripts: Vec<String>,
}

impl Page {
    /// A page of this title, which is text.
    pub fn new(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            lead: String::new(),
            sections: Vec::new(),
            data: None,
            styles: String::new(),
            scripts: Vec::new(),
        }
    }

    /// What the page shows, in a sentence or two of text, under the title.
    #[must_use]
    pub fn lead(mut self, text: &str) -> Self {
        text.clone_into(&mut self.lead);
        self
    }

    /// Adds a section. The heading is text; the content is HTML, in which [`escape`] has to guard every text that
    /// comes from outside. An empty heading makes a section without one.
    #[must_use]
    pub fn section(mut self, heading: &str, html: &str) -> Self {
        self.sections.push((heading.to_owned(), html.to_owned()));
        self
    }

    /// The run as JSON. Scripts find it with `JSON.parse(document.getElementById('data').textContent)`.
    ///
    /// # Panics
    /// If it does not serialise to JSON, as maps without string keys.
    #[must_use]
    pub fn data(mut self, data: &impl Serialize) -> Self {
        self.data = Some(serde_json::to_string(data).expect("reports have string keys"));
        self
    }

    /// Adds rules of style after the page's own.
    #[must_use]
    pub fn style(mut self, css: &str) -> Self {
        self.styles.push_str(css);
        self
    }

    /// Adds a script, which runs when all sections are there. It is not data: nothing from outside belongs in it.
    #[must_use]
    pub fn script(mut self, js: &str) -> Self {
        self.scripts.push(js.to_owned());
        self
    }

    /// The document.
    pub fn render(&self) -> String {
        let title = escape(&self.title);
        let lead = match self.lead.as_str() {
            "" => String::new(),
            lead => format!("<p class=\"lead\">{}</p>\n", escape(lead)),
        };
        let sections: String =
            self.sections.iter().map(|(head, html)| section(head, html)).collect();
        let data = self.data.as_deref().map_or_else(String::new, |data| {
            let data = html::json(data);
            format!("<script type=\"application/json\" id=\"data\">{data}</script>\n")
        });
        let scripts: String = self
            .scripts
            .iter()
            .map(|script| format!("<script>\n{}\n</script>\n", html::script(script)))
            .collect();
        let style = [include_str!("page.css"), &svg::page_style(), &self.styles].concat();
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
             <meta name=\"generator\" content=\"hsipack {version}\">\n\
             <title>{title}</title>\n<style>\n{style}</style>\n</head>\n<body>\n\
             <header>\n<h1>{title}</h1>\n{lead}</header>\n<main>\n{sections}</main>\n\
             <footer>Made by hsipack {version}.</footer>\n{data}{scripts}</body>\n</html>\n",
            version = env!("CARGO_PKG_VERSION"),
        )
    }
}

/// Nothing is loaded from anywhere, whatever a page holds.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";

fn section(heading: &str, html: &str) -> String {
    let heading = match heading {
        "" => String::new(),
        text => format!("<h2>{}</h2>\n", escape(text)),
    };
    format!("<section>\n{heading}{html}\n</section>\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_whole_and_loads_nothing() {
        let html = Page::new("Run <1>").lead("a & b").section("Rates", "<p>1</p>").render();
        assert!(html.starts_with("<!doctype html>") && html.trim_end().ends_with("</html>"));
        assert!(html.contains("<title>Run &lt;1&gt;</title>") && html.contains("a &amp; b"));
        let others = html.replace("http://www.w3.org/2000/svg", "");
        assert!(!others.contains("http://") && !others.contains("https://"));
        assert!(!html.contains("id=\"data\""), "there is none");
    }

    #[test]
    fn data_cannot_break_out() {
        let evil = "</script><script>alert(1)</script><!-- & \u{2028}";
        let html = Page::new("x").data(&serde_json::json!({ "name": evil })).render();
        let (_, rest) = html.split_once("id=\"data\">").unwrap();
        let (json, _) = rest.split_once("</script>").unwrap();
        assert!(!json.contains('<') && !json.contains('>') && !json.contains('&'));
        let back: serde_json::Value = serde_json::from_str(json).unwrap();
        assert_eq!(back["name"], evil);
    }
}
