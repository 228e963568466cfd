//! Notes about single cubes, one line for all cubes that have the same note.

use std::collections::HashMap;

/// The notes about cubes so far.
#[derive(Default)]
pub(super) struct CubeNotes {
    lines: HashMap<String, Line>,
}

/// A note in the plan.
struct Line {
    index: usize,
    first: String,
    others: usize,
}

impl CubeNotes {
    /// Adds `note` about `cube` to `notes`. If another cube had the same note, its line counts this
    /// cube.
    pub fn add(&mut self, cube: &str, note: &str, notes: &mut Vec<String>) {
        if let Some(line) = self.lines.get_mut(note) {
            line.others += 1;
            let cubes = if line.others == 1 { "cube" } else { "cubes" };
            if let Some(stored) = notes.get_mut(line.index) {
                *stored = format!("{} and {} other {cubes}: {note}", line.first, line.others);
            }
            return;
        }
        let line = Line { index: notes.len(), first: cube.to_owned(), others: 0 };
        notes.push(format!("{cube}: {note}"));
        self.lines.insert(note.to_owned(), line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cubes_with_the_same_note_share_a_line() {
        let (mut all, mut notes) = (CubeNotes::default(), vec!["first".to_owned()]);
        for (cube, note) in [("a", "x"), ("a", "y"), ("b", "x"), ("c", "x")] {
            all.add(cube, note, &mut notes);
        }
        assert_eq!(notes, ["first", "a and 2 other cubes: x", "a: y"]);
        all.add("d", "y", &mut notes);
        assert_eq!(notes[2], "a and 1 other cube: y");
    }
}
