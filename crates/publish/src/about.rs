//! The author's words about a dataset: one TOML file.

use std::path::Path;

use hsipack_format::{Error, Result};
use hsipack_store::bounded_read;
use serde::{Deserialize, Deserializer};
use toml::value::{Date, Datetime, Offset};
use toml::{Table, Value};

/// The largest file that is read.
const MAX_BYTES: u64 = 1 << 20;

/// A file to fill in. Every key of [`About`] is in it.
pub const TEMPLATE: &str = include_str!("about.toml");

/// The keys of the file, as in [`TEMPLATE`].
const KEYS: [&str; 17] = [
    "title",
    "description",
    "license",
    "license_url",
    "authors",
    "citation",
    "doi",
    "homepage",
    "location",
    "version",
    "published",
    "languages",
    "tasks",
    "tags",
    "sensors",
    "start",
    "end",
];

/// The author's words. Whatever is missing is left out of the card.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct About {
    /// Name of the dataset for people.
    pub title: Option<String>,
    /// Description: contents, and how they were measured. Markdown.
    pub description: Option<String>,
    /// The licence: an SPDX identifier such as `CC-BY-4.0`, or a name.
    pub license: Option<String>,
    /// Address of the licence's text.
    pub license_url: Option<String>,
    /// Who made it.
    pub authors: Vec<Author>,
    /// How to cite it: BibTeX or text.
    pub citation: Option<String>,
    /// Its DOI, without `https://doi.org/`.
    pub doi: Option<String>,
    /// Address of a page about it.
    pub homepage: Option<String>,
    /// The path or URL that hsipack opens once it is published.
    pub location: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// The day of its publication.
    #[serde(deserialize_with = "time")]
    pub published: Option<String>,
    /// Languages of names and labels, such as `en`.
    pub languages: Vec<String>,
    /// Task categories of the Hub. If there are none, they follow from masks and labels.
    pub tasks: Vec<String>,
    /// Further tags.
    pub tags: Vec<String>,
    /// Cameras or instruments. If there are none, they are those of the column `sensor`.
    pub sensors: Vec<String>,
    /// When the first cube was measured, for cubes without a column `time`.
    #[serde(deserialize_with = "time")]
    pub start: Option<String>,
    /// When the last cube was measured.
    #[serde(deserialize_with = "time")]
    pub end: Option<String>,
}

/// A person or an organisation.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Spelling")]
pub struct Author {
    /// The name.
    pub name: String,
    /// An address, such as that of an ORCID.
    pub url: Option<String>,
}

/// An author as it is written: a name, or a table.
#[derive(Deserialize)]
#[serde(untagged, expecting = "give a name, or { name = \"…\", url = \"…\" }")]
enum Spelling {
    Name(String),
    Table(AuthorTable),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AuthorTable {
    name: String,
    url: Option<String>,
}

impl From<Spelling> for Author {
    fn from(spelling: Spelling) -> Self {
        match spelling {
            Spelling::Name(name) => Self { name, url: None },
            Spelling::Table(AuthorTable { name, url }) => Self { name, url },
        }
    }
}

/// A date or a time, as TOML writes it or as a string of the same form.
fn time<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Option<String>, D::Error> {
    let text = match Value::deserialize(deserializer)? {
        Value::Datetime(time) => time.to_string(),
        Value::String(text) => text,
        other => {
            let kind = other.type_str();
            return Err(serde::de::Error::custom(format!(
                "a date such as 2026-05-31 is needed, not {kind}"
            )));
        }
    };
    match rfc3339(&text) {
        Some(_) => Ok(Some(text)),
        None => Err(serde::de::Error::custom(format!("{text} is not a date such as 2026-05-31"))),
    }
}

/// A date or a time as RFC 3339 writes times in UTC; `None` if it is neither. A date is its
/// midnight; a time without an offset is in UTC.
pub(crate) fn rfc3339(text: &str) -> Option<String> {
    const DAY: i32 = 24 * 60;
    let time: Datetime = text.trim().parse().ok()?;
    let mut date = time.date?;
    let Some(mut clock) = time.time else { return Some(format!("{date}T00:00:00Z")) };
    if let Some(Offset::Custom { minutes }) = time.offset {
        let in_utc = i32::from(clock.hour) * 60 + i32::from(clock.minute) - i32::from(minutes);
        // No offset is as long as a day.
        date = match in_utc {
            ..0 => day_before(date)?,
            DAY.. => day_after(date)?,
            _ => date,
        };
        let minute = in_utc.rem_euclid(DAY);
        (clock.hour, clock.minute) = ((minute / 60) as u8, (minute % 60) as u8);
    }
    clock.second = clock.second.or(Some(0));
    Some(format!("{date}T{clock}Z"))
}

/// A time of [`rfc3339`] whose order as text is that of times: without the Z, which is greater than
/// the point of a fraction.
pub(crate) fn in_order(time: &str) -> &str {
    time.trim_end_matches('Z')
}

fn day_before(date: Date) -> Option<Date> {
    Some(match date {
        Date { day: 2.., .. } => Date { day: date.day - 1, ..date },
        Date { year, month: 1, .. } => Date { year: year.checked_sub(1)?, month: 12, day: 31 },
        Date { year, month, .. } => {
            Date { month: month - 1, day: days_of(year, month - 1), ..date }
        }
    })
}

fn day_after(date: Date) -> Option<Date> {
    Some(match date {
        Date { year, month, day } if day < days_of(year, month) => Date { day: day + 1, ..date },
        Date { year: 9999, month: 12, .. } => return None,
        Date { year, month: 12, .. } => Date { year: year + 1, month: 1, day: 1 },
        Date { month, .. } => Date { month: month + 1, day: 1, ..date },
    })
}

fn days_of(year: u16, month: u8) -> u8 {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 => 28 + u8::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

impl About {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, is not TOML, has a key that is not one of these, or a value of another
    /// type.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = bounded_read::read(path, MAX_BYTES)?;
        let text = String::from_utf8(bytes).map_err(|_| {
            Error::malformed("the file is not UTF-8 text").at(path).with_remedy(TEMPLATE_REMEDY)
        })?;
        Self::parse(&text).map_err(|error| error.at(path))
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// Those of [`read`](Self::read), without a path.
    pub fn parse(text: &str) -> Result<Self> {
        let refused = |error: &toml::de::Error| {
            let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
            Error::malformed(format!("line {line}: {}", error.message().trim()))
                .with_remedy(TEMPLATE_REMEDY)
        };
        let table: Table = text.parse().map_err(|error| refused(&error))?;
        if let Some(key) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(unknown(key));
        }
        let mut about: Self = toml::from_str(text).map_err(|error| refused(&error))?;
        about.tidy();
        let [start, end] = [&about.start, &about.end].map(|time| time.as_deref().and_then(rfc3339));
        match (start, end) {
            (None, None) => Ok(about),
            (Some(start), Some(end)) if in_order(&start) <= in_order(&end) => Ok(about),
            _ => Err(Error::conflict("start and end must both be there, in this order")
                .with_remedy("give both, as dates such as 2026-05-31")),
        }
    }

    /// Removes what is empty: a template that is only partly filled in says nothing there.
    fn tidy(&mut self) {
        for text in [
            &mut self.title,
            &mut self.description,
            &mut self.license,
            &mut self.license_url,
            &mut self.citation,
            &mut self.doi,
            &mut self.homepage,
            &mut self.location,
            &mut self.version,
        ] {
            *text = text.take().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        }
        for list in [&mut self.languages, &mut self.tasks, &mut self.tags, &mut self.sensors] {
            list.retain(|text| !text.trim().is_empty());
        }
        self.authors.retain(|author| !author.name.trim().is_empty());
        if let Some(doi) = &mut self.doi {
            let bare = ["https://doi.org/", "http://doi.org/", "doi:"]
                .iter()
                .find_map(|prefix| doi.strip_prefix(prefix));
            *doi = bare.unwrap_or(doi).to_owned();
        }
    }
}

/// The remedy of errors in the file.
const TEMPLATE_REMEDY: &str = "`hsipack card --template` prints a file with every key";

/// The error for a key that is not one of [`KEYS`].
fn unknown(key: &str) -> Error {
    let similarity = |name: &&&str| strsim::jaro_winkler(key, name);
    let nearest = KEYS.iter().max_by(|a, b| similarity(a).total_cmp(&similarity(b)));
    let nearest = nearest.filter(|name| similarity(name) > 0.75);
    Error::conflict(format!("there is no key {key}")).with_remedy(match nearest {
        Some(name) => format!("did you mean {name}? {TEMPLATE_REMEDY}"),
        None => format!("the keys are {}", KEYS.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_of_the_template_is_known() {
        let filled: String = TEMPLATE
            .lines()
            .map(|line| line.strip_prefix("#: ").unwrap_or(line))
            .fold(String::new(), |text, line| text + line + "\n");
        let table: Table = filled.parse().unwrap();
        let mut keys: Vec<&str> = table.keys().map(String::as_str).collect();
        let mut all = KEYS;
        keys.sort_unstable();
        all.sort_unstable();
        assert_eq!(keys, all);
        assert_eq!(About::parse(TEMPLATE).unwrap(), About::default());
        assert_ne!(About::parse(&filled).unwrap(), About::default());
    }

    #[test]
    fn errors_name_the_line_or_the_similar_key() {
        for (text, what) in [
            ("titel = \"a\"", "there is no key titel (did you mean title?"),
            ("licence = \"MIT\"", "did you mean license?"),
            ("zzz = 1", "the keys are title, description"),
            ("title = 1", "line 1: invalid type"),
            ("title = \"a\"\n\nauthors = 3", "line 3"),
            ("authors = [{ nam = \"a\" }]", "give a name, or"),
            ("start = \"May\"", "May is not a date"),
            ("start = 2026-05-01", "start and end"),
            ("start = 2026-05-02\nend = 2026-05-01", "in this order"),
            ("title", "line 1"),
        ] {
            let error = About::parse(text).unwrap_err().to_string();
            assert!(error.contains(what), "{text}: {error}");
        }
    }

    #[test]
    fn words_are_taken_as_they_are() {
        let about = About::parse(
            "title = \" Soils \"\nauthors = [\"Ada\", { name = \"Bo\", url = \"https://orcid.org/0\" }]\n\
             doi = \"https://doi.org/10.1/x\"\nstart = 2026-05-01\nend = \"2026-05-02T10:00:00\"\nhomepage = \"\"",
        )
        .unwrap();
        assert_eq!(about.title.as_deref(), Some("Soils"));
        assert_eq!(about.authors[1].url.as_deref(), Some("https://orcid.org/0"));
        assert_eq!(about.doi.as_deref(), Some("10.1/x"));
        assert_eq!(about.homepage, None);
        assert_eq!(rfc3339(&about.start.unwrap()).unwrap(), "2026-05-01T00:00:00Z");
        assert_eq!(rfc3339(&about.end.unwrap()).unwrap(), "2026-05-02T10:00:00Z");
        assert_eq!(rfc3339("10:00:00"), None);
    }

    #[test]
    fn times_within_a_second_are_in_order() {
        let times = ["00", "00.2", "00.25", "00.5", "01"];
        let times = times.map(|second| rfc3339(&format!("2024-05-01T12:00:{second}Z")).unwrap());
        assert!(times.is_sorted_by_key(|time| in_order(time)), "{times:?}");
        for pair in times.windows(2) {
            let about = |[start, end]: [&String; 2]| {
                About::parse(&format!("start = \"{start}\"\nend = \"{end}\""))
            };
            about([&pair[0], &pair[1]]).unwrap();
            about([&pair[1], &pair[0]]).unwrap_err();
        }
    }

    #[test]
    fn times_with_an_offset_become_utc() {
        for (text, expected) in [
            ("2024-05-01T12:00:00+02:00", "2024-05-01T10:00:00Z"),
            ("2024-05-01 12:00:00.25-00:30", "2024-05-01T12:30:00.25Z"),
            ("2024-03-01T01:00:00+02:00", "2024-02-29T23:00:00Z"),
            ("2024-01-01T00:00:00+00:01", "2023-12-31T23:59:00Z"),
            ("2023-02-28T23:00:00-02:00", "2023-03-01T01:00:00Z"),
            ("2023-12-31T23:30:15-05:45", "2024-01-01T05:15:15Z"),
            ("2024-05-01T12:00:00Z", "2024-05-01T12:00:00Z"),
            ("2024-05-01T12:00:00", "2024-05-01T12:00:00Z"),
            ("2024-05-01T12:00", "2024-05-01T12:00:00Z"),
        ] {
            assert_eq!(rfc3339(text).as_deref(), Some(expected), "{text}");
        }
        for text in ["0000-01-01T00:00:00+01:00", "9999-12-31T23:30:00-01:00"] {
            assert_eq!(rfc3339(text), None);
        }
    }
}
