//! Colours of classes as text: `#rrggbb`, as in HTML.

/// Red, green and blue.
pub type Color = [u8; 3];

/// The colour as `#rrggbb`.
///
/// ```
/// use hsipack_format::colors;
///
/// assert_eq!(colors::hex([255, 0, 16]), "#ff0010");
/// assert_eq!(colors::parse_hex("#FF0010"), Some([255, 0, 16]));
/// ```
pub fn hex([red, green, blue]: Color) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Reads `#rrggbb`, with or without `#`. `None` if the text is something else.
pub fn parse_hex(text: &str) -> Option<Color> {
    let digits = text.trim();
    let digits = digits.strip_prefix('#').unwrap_or(digits);
    if digits.len() != 6 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let number = u32::from_str_radix(digits, 16).ok()?;
    let [_, red, green, blue] = number.to_be_bytes();
    Some([red, green, blue])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_texts_are_no_colours() {
        for text in ["", "#", "#12345", "#1234567", "red", "#12345g", "#+12345", "#ä1234"] {
            assert_eq!(parse_hex(text), None, "{text}");
        }
        assert_eq!(parse_hex(" a0B1c2 "), Some([0xa0, 0xb1, 0xc2]));
    }
}
