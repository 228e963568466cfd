//! Text: measures, shortens and wraps it, and draws its glyphs.

use std::sync::LazyLock;

use ab_glyph::{Font, FontRef, Glyph, GlyphId, PxScale, ScaleFont, point};

static FONTS: LazyLock<[FontRef<'static>; 2]> = LazyLock::new(|| {
    [epaint_default_fonts::UBUNTU_LIGHT, epaint_default_fonts::HACK_REGULAR]
        .map(|bytes| FontRef::try_from_slice(bytes).expect("the built-in fonts are sound"))
});

/// The font and glyph of a letter, from the first font that has it; `None` if no font has it.
fn glyph_of(letter: char) -> Option<(&'static FontRef<'static>, GlyphId)> {
    FONTS.iter().map(|font| (font, font.glyph_id(letter))).find(|(_, id)| id.0 != 0)
}

/// The glyphs of `text`. If no font has a letter, for example a Chinese one, it is written as
/// Python would escape it (`\u80bf`), so that a name never looks shorter than it is.
fn glyphs(text: &str) -> impl Iterator<Item = (&'static FontRef<'static>, GlyphId)> {
    text.chars().flat_map(|letter| match glyph_of(letter) {
        Some(glyph) => vec![glyph],
        None => escaped(letter).chars().filter_map(glyph_of).collect(),
    })
}

fn escaped(letter: char) -> String {
    let code = u32::from(letter);
    if code <= 0xFFFF { format!("\\u{code:04x}") } else { format!("\\U{code:08x}") }
}

/// Width of `text` in pixels at `size`.
pub fn width(text: &str, size: f32) -> f32 {
    glyphs(text).map(|(font, id)| font.as_scaled(PxScale::from(size)).h_advance(id)).sum()
}

/// Calls `paint` with the coverage (0 to 1) of every pixel that `text` touches. The text starts at
/// `x`, and `y` is its base line.
pub fn rasterise(text: &str, x: f32, y: f32, size: f32, paint: &mut dyn FnMut(i32, i32, f32)) {
    let scale = PxScale::from(size);
    let mut pen = x;
    for (font, id) in glyphs(text) {
        let glyph = Glyph { id, scale, position: point(pen, y) };
        pen += font.as_scaled(scale).h_advance(id);
        if let Some(outline) = font.outline_glyph(glyph) {
            let origin = outline.px_bounds().min;
            outline.draw(|dx, dy, coverage| {
                paint(origin.x as i32 + dx as i32, origin.y as i32 + dy as i32, coverage);
            });
        }
    }
}

/// Shortens `text` in the middle if it is wider than `room`, because the ends of paths and names
/// are most informative.
pub fn fit(text: &str, size: f32, room: f32) -> String {
    if width(text, size) <= room {
        return text.to_owned();
    }
    let letters: Vec<char> = text.chars().collect();
    for kept in (0..letters.len()).rev() {
        let head: String = letters[..kept.div_ceil(2)].iter().collect();
        let tail: String = letters[letters.len() - kept / 2..].iter().collect();
        let short = format!("{head}…{tail}");
        if width(&short, size) <= room {
            return short;
        }
    }
    String::new()
}

/// Breaks `text` at spaces into lines of at most `room` pixels.
pub fn wrap(text: &str, size: f32, room: f32) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(&format!("{line} {word}"), size) <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(fit(word, size, room)),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_lose_their_middle() {
        let name = "a/very/long/path/to/some/cube_0001.hdr";
        let short = fit(name, 14.0, 120.0);
        assert!(width(&short, 14.0) <= 120.0, "{short}");
        assert!(
            short.starts_with("a/") && short.ends_with(".hdr") && short.contains('…'),
            "{short}"
        );
        assert_eq!(fit("abc", 14.0, 120.0), "abc");
        assert_eq!(fit("abc", 14.0, 1.0), "");
    }

    #[test]
    fn lines_stay_within_their_room() {
        let lines = wrap("one two three four five six seven eight", 14.0, 90.0);
        assert!(lines.len() > 2);
        assert!(lines.iter().all(|line| width(line, 14.0) <= 90.0), "{lines:?}");
        assert_eq!(lines.join(" "), "one two three four five six seven eight");
    }

    #[test]
    fn letters_of_no_font_are_escaped_and_never_cut() {
        let ink = |text: &str| {
            let mut ink = Vec::new();
            rasterise(text, 0.0, 20.0, 16.0, &mut |x, y, coverage| ink.push((x, y, coverage)));
            ink
        };
        for (text, drawn) in [("肿瘤_01", "\\u80bf\\u7624_01"), ("a𠮷b", "a\\U00020bb7b")] {
            assert_eq!(ink(text), ink(drawn), "{text}");
            assert!((width(text, 14.0) - width(drawn, 14.0)).abs() < 1e-3, "{text}");
        }
        let name = "肿瘤组织切片扫描第一组_01";
        let room = width("\\u80bf\\u7624…1", 14.0);
        let short = fit(name, 14.0, room + 1.0);
        assert!(width(&short, 14.0) <= room + 1.0 && short.starts_with('肿'), "{short}");
    }

    #[test]
    fn letters_beyond_the_first_font_are_drawn() {
        let mut inked = 0;
        rasterise("µ × ± – … λ", 0.0, 20.0, 16.0, &mut |_, _, coverage| {
            inked += usize::from(coverage > 0.5);
        });
        assert!(inked > 30, "{inked}");
    }
}
