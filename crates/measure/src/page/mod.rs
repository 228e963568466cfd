//! Pages that show a run. Each is a single HTML file that needs no network and no other files.
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
//! | `html.rs` | escapes text and data; tables |
//! | `page.css` | the style of pages: light and dark, phone, desktop and paper |
//! | `chart.rs` | lines, steps, stacked areas, bars and scatter plots as SVG |
//! | `ticks.rs` | round numbers along an axis |
//! | `svg.rs` | pictures in a page or in their own file, and their colours |
//!
//! Rules: a page loads nothing (its policy forbids it), and shows no figure that is not in its
//! `data`. Everything except animations can be read without its script.

pub mod chart;
mod html;
pub mod svg;
pub mod ticks;

use serde::Serialize;

pub use html::{escape, table};

/// A page under construction.
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
    /// A page with this title, which is plain text.
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

    /// Sets the lead under the title: a sentence or two of plain text on what the page shows.
    #[must_use]
    pub fn lead(mut self, text: &str) -> Self {
        text.clone_into(&mut self.lead);
        self
    }

    /// Adds a section. The heading is plain text. The content is HTML: use [`escape`] for all text
    /// that comes from outside. A section with an empty heading has no heading.
    #[must_use]
    pub fn section(mut self, heading: &str, html: &str) -> Self {
        self.sections.push((heading.to_owned(), html.to_owned()));
        self
    }

    /// Sets the run as JSON. Scripts read it with
    /// `JSON.parse(document.getElementById('data').textContent)`.
    ///
    /// # Panics
    /// If the data cannot be serialised to JSON, like maps without string keys.
    #[must_use]
    pub fn data(mut self, data: &impl Serialize) -> Self {
        self.data = Some(serde_json::to_string(data).expect("reports have string keys"));
        self
    }

    /// Adds CSS rules after the page's own.
    #[must_use]
    pub fn style(mut self, css: &str) -> Self {
        self.styles.push_str(css);
        self
    }

    /// Adds a script, which runs after all sections. Do not put data from outside into it.
    #[must_use]
    pub fn script(mut self, js: &str) -> Self {
        self.scripts.push(js.to_owned());
        self
    }

    /// Renders the document.
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

/// The page may load nothing, whatever it contains.
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
        let (_, after) = html.split_once("id=\"data\">").unwrap();
        let (json, _) = after.split_once("</script>").unwrap();
        assert!(!json.contains('<') && !json.contains('>') && !json.contains('&'));
        let back: serde_json::Value = serde_json::from_str(json).unwrap();
        assert_eq!(back["name"], evil);
    }
}
