//! The library's errors in the words of the command line.

use std::path::Path;

use hsipack_format::Error;

/// What the library calls it, and what the command line does.
const WORDS: [(&str, &str); 20] = [
    (
        "give every sample a class, leave out",
        "give every cube a label with `hsipack convert --table`, leave out",
    ),
    (
        "give every sample a group, leave out",
        "give every cube a group with `hsipack convert --table`, leave out",
    ),
    ("skip damaged samples", "pass --skip-damaged"),
    ("check the split and the other filters", "choose another --split"),
    (
        "choose smaller batches, or pad the last ones or leave them short",
        "choose a smaller --batch-size, or --last pad or --last short",
    ),
    ("ask for fewer slots or smaller batches", "choose fewer --slots or a smaller --batch-size"),
    ("ask for smaller batches", "choose a smaller --batch-size"),
    ("choose a smaller batch size", "choose a smaller --batch-size"),
    ("ask for fewer threads", "choose fewer --threads"),
    ("or drop the labelled share", "or leave out --min-labelled"),
    (
        "name the mask that holds the labels, or ask for no labelled share",
        "name one with --mask, or leave out --min-labelled",
    ),
    ("give a share from 0 to 1", "give --min-labelled from 0 to 1"),
    (
        "choose smaller crops, or leave that sample out",
        "choose smaller crops, or a --split without it",
    ),
    ("give a step from", "give a --grid-step from"),
    ("number the ranks from 0", "number --rank from 0 to --world-size less 1"),
    ("count the processes that train together, from 1", "give a --world-size of at least 1"),
    ("or choose another order", "or another --order"),
    (
        "take larger steps, fewer crops per sample or a shorter epoch",
        "choose a larger --grid-step, fewer --crops-per-cube or a shorter --epoch-length",
    ),
    ("choose the mmap or the pread store", "choose --store mmap or --store pread"),
    ("or choose the pread store", "or choose --store pread"),
];

/// An error whose remedy names options.
pub fn options(error: Error) -> Error {
    let Some(remedy) = error.remedy() else { return error };
    let mut words = remedy.to_owned();
    for (library, ours) in WORDS {
        words = words.replace(library, ours);
    }
    error.with_remedy(words)
}

/// An error about the state in a file.
pub fn state(error: Error, path: &Path) -> Error {
    let shown = path.display();
    let remedy = match error.remedy() {
        Some(remedy) if remedy.starts_with("pass seed ") => {
            let seed: String = remedy.chars().filter(char::is_ascii_digit).collect();
            format!("pass --seed {seed}, or delete {shown} to start anew")
        }
        Some(remedy) if remedy.starts_with("resume with the options") => {
            format!("{remedy}, or delete {shown} to start anew")
        }
        Some(remedy) if remedy.starts_with("use the version") => remedy.to_owned(),
        _ => format!("name another --state, or delete {shown} to start anew"),
    };
    error.at(path).with_remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedies_name_options() {
        let library = "run `hsipack validate`, then `hsipack repair`; or skip damaged samples";
        let error = options(Error::damaged("a chunk").with_remedy(library));
        assert!(error.remedy().unwrap().ends_with("or pass --skip-damaged"));
        assert!(options(Error::damaged("a chunk")).remedy().is_none());
    }

    #[test]
    fn a_seed_is_named() {
        let error = Error::conflict("x").with_remedy("pass seed 17, or start without the state");
        let error = state(error, Path::new("s.json")).to_string();
        assert_eq!(error, "s.json: x (pass --seed 17, or delete s.json to start anew)");
    }
}
