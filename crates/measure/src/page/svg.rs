//! Pictures in a page or in their own file, and their colours.
//!
//! In a page, colours are the page's variables, so that pictures follow its dark mode. In their own
//! file, pictures contain a style with plain colours, because many programs that draw SVG do not
//! support variables.

use super::escape;

/// Where a picture is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SvgTarget {
    /// Inside a [`Page`](super::Page), whose style it uses.
    Page,
    /// In its own file.
    File,
}

/// Name, light value and dark value of every colour. `c0` to `c6` are the colours of Okabe and Ito,
/// which people with any colour vision can tell apart, with lighter shades on dark ground.
const COLOURS: [(&str, &str, &str); 12] = [
    ("paper", "#ffffff", "#14171a"),
    ("card", "#f7f8f9", "#1c2024"),
    ("ink", "#1b1f23", "#e6e8ea"),
    ("muted", "#5a636c", "#a3acb5"),
    ("rule", "#d5dade", "#3a4148"),
    ("c0", "#0072b2", "#56a8e0"),
    ("c1", "#e69f00", "#f0b840"),
    ("c2", "#009e73", "#35c79b"),
    ("c3", "#d55e00", "#f08040"),
    ("c4", "#cc79a7", "#e29cc3"),
    ("c5", "#56b4e9", "#8fd0f5"),
    ("c6", "#7a7f85", "#b0b6bc"),
];

/// Number of colours for series.
pub const SERIES: usize = 7;

/// Meaning of the classes: `f` fills, `l` draws lines.
const RULES: &str = "\
svg text { font-family: system-ui, -apple-system, 'Segoe UI', Roboto, Arial, sans-serif; font-size: 13px; fill: var(--ink); }
svg text.small { font-size: 12px; fill: var(--muted); }
svg text.head { font-size: 15px; font-weight: 600; }
svg .ground { fill: var(--card); }
svg .rule { stroke: var(--rule); stroke-width: 1; fill: none; }
svg .axis { stroke: var(--muted); stroke-width: 1; fill: none; }
svg .error { stroke: var(--ink); stroke-width: 1.25; fill: none; }
svg .area { fill-opacity: 0.75; }
";

fn series_rules() -> String {
    (0..SERIES)
        .map(|n| {
            format!(
                "svg .f{n} {{ fill: var(--c{n}); }}\n\
                 svg .l{n} {{ stroke: var(--c{n}); stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; fill: none; }}\n"
            )
        })
        .collect()
}

/// The rules, with variables replaced by plain colours.
fn coloured(
    rules: &str,
    colour: impl Fn(&(&str, &'static str, &'static str)) -> &'static str,
) -> String {
    COLOURS.iter().fold(rules.to_owned(), |rules, entry| {
        rules.replace(&format!("var(--{})", entry.0), colour(entry))
    })
}

/// The style for pictures in a page, with all its colours.
pub(super) fn page_style() -> String {
    let list = |dark: bool| -> String {
        let value = |(name, light, night): &(&str, &str, &str)| {
            format!(" --{name}: {};", if dark { night } else { light })
        };
        COLOURS.iter().map(value).collect()
    };
    format!(
        ":root {{{} }}\n@media (prefers-color-scheme: dark) {{ :root {{{} }} }}\n\
         @media print {{ :root {{{} }} }}\n{RULES}{}",
        list(false),
        list(true),
        list(false),
        series_rules()
    )
}

/// A picture of the given size in pixels around `content`, which is SVG. Title and description are
/// plain text, and screen readers read them. `extra` are CSS rules for the content, with the page's
/// variables as colours.
pub fn picture(
    target: SvgTarget,
    [width, height]: [f64; 2],
    [title, description]: [&str; 2],
    extra: &str,
    content: &str,
) -> String {
    // All ids in a page must differ, so the id is a hash of title and description.
    let id =
        title.bytes().chain(description.bytes()).fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    let (title, description) = (escape(title), escape(description));
    let style = match target {
        SvgTarget::Page => scoped_style(extra),
        SvgTarget::File => {
            let rules = [RULES, &series_rules(), extra].concat();
            // The dark rules would only need the colours, but repeating all rules makes sure that none is forgotten.
            format!(
                "<style>\n{}@media (prefers-color-scheme: dark) {{\n{}}}\n</style>\n",
                coloured(&rules, |entry| entry.1),
                coloured(&rules, |entry| entry.2)
            )
        }
    };
    let (attributes, ground) = match target {
        SvgTarget::Page => ("", ""),
        SvgTarget::File => (
            " xmlns=\"http://www.w3.org/2000/svg\"",
            "<rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n",
        ),
    };
    format!(
        "<svg{attributes} viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" \
         aria-labelledby=\"t{id:x} d{id:x}\">\n<title id=\"t{id:x}\">{title}</title>\n\
         <desc id=\"d{id:x}\">{description}</desc>\n{style}{ground}{content}</svg>\n"
    )
}

fn scoped_style(extra: &str) -> String {
    if extra.is_empty() { String::new() } else { format!("<style>\n{extra}</style>\n") }
}

/// Width of a text of this size in pixels. In common fonts, the real width is not larger.
pub fn text_width(text: &str, size: f64) -> f64 {
    let width = |c: char| match c {
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | '\'' | '|' | '!' => 0.32,
        ' ' | 'f' | 't' | 'r' | '(' | ')' | '\u{202f}' => 0.4,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.95,
        c if c.is_ascii_uppercase() => 0.72,
        c if c.is_ascii() => 0.6,
        // Letters of other scripts may be twice as wide.
        _ => 1.0,
    };
    text.chars().map(width).sum::<f64>() * size
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_by_themselves_have_plain_colours_in_light_and_dark() {
        let svg = picture(
            SvgTarget::File,
            [100.0, 50.0],
            ["T <", "D &"],
            "",
            "<path class=\"l0\" d=\"M0 0\"/>",
        );
        assert!(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
        assert!(svg.contains("#0072b2") && svg.contains("#56a8e0") && !svg.contains("var("));
        assert!(svg.contains("prefers-color-scheme: dark") && svg.contains("role=\"img\""));
        assert!(svg.contains(">T &lt;</title>") && svg.contains(">D &amp;</desc>"));
    }

    #[test]
    fn pictures_in_pages_use_the_pages_colours() {
        let svg = picture(SvgTarget::Page, [100.0, 50.0], ["T", "D"], "", "");
        assert!(!svg.contains("<style>") && !svg.contains("xmlns"));
        let style = page_style();
        for (name, ..) in COLOURS {
            assert!(style.contains(&format!(" --{name}: #")), "{name}");
        }
    }
}
