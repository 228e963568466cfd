//! Georeferencing that several formats share: names of datums, and texts of coordinate reference
//! systems.

use hsipack_format::geo::{Datum, MAX_CRS, Unit, Utm};
use proj4rs::Proj;

/// The datum with this name, as ENVI, ESRI, EPSG and GDAL write it.
pub(crate) fn datum(name: &str) -> Option<Datum> {
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    let name: String = letters.map(|letter| letter.to_ascii_lowercase()).collect();
    match name.as_str() {
        "wgs84" | "wgs1984" | "dwgs1984" | "worldgeodeticsystem1984" => Some(Datum::Wgs84),
        "nad27"
        | "northamerica1927"
        | "northamerican1927"
        | "dnorthamerican1927"
        | "northamericandatum1927" => Some(Datum::Nad27),
        "nad83"
        | "northamerica1983"
        | "northamerican1983"
        | "dnorthamerican1983"
        | "northamericandatum1983" => Some(Datum::Nad83),
        "etrs89" | "etrs1989" | "detrs1989" | "europeanterrestrialreferencesystem1989" => {
            Some(Datum::Etrs89)
        }
        _ => None,
    }
}

/// A coordinate reference system in the form in which it is stored, `EPSG:` and a code or WKT in
/// one line, and its unit. `None` if the text is neither.
pub(crate) fn crs(text: &str) -> Option<(String, Option<Unit>)> {
    let wkt = wkt(text);
    let unit = wkt.as_ref().and_then(|wkt| wkt.unit);
    match code_of(text) {
        Some(code) => Some((format!("EPSG:{code}"), unit.or_else(|| unit_of(code)))),
        None => wkt.map(|wkt| (wkt.text, unit)),
    }
}

/// The EPSG code in a text: `EPSG:32632`, or WKT that states its own code.
pub(crate) fn code_of(text: &str) -> Option<u16> {
    let plain = text.trim().to_uppercase();
    let code = match plain.strip_prefix("EPSG:") {
        Some(code) => code.parse().ok(),
        None => wkt(text)?.epsg?.strip_prefix("EPSG:")?.parse().ok(),
    };
    code.filter(|code| *code != 0)
}

/// National systems in metres by ESRI's names of the system and its datum, in small letters and
/// digits, with their EPSG codes.
const NATIONAL: [(&str, &str, u16); 8] = [
    ("etrs1989laea", "detrs1989", 3035),
    ("dhdn3degreegausszone2", "ddeutscheshauptdreiecksnetz", 31466),
    ("dhdn3degreegausszone3", "ddeutscheshauptdreiecksnetz", 31467),
    ("dhdn3degreegausszone4", "ddeutscheshauptdreiecksnetz", 31468),
    ("dhdn3degreegausszone5", "ddeutscheshauptdreiecksnetz", 31469),
    ("ch1903lv95", "dch1903", 2056),
    ("ch1903lv03", "dch1903", 21781),
    ("rgf1993lambert93", "drgf1993", 2154),
];

/// The EPSG code of WKT that states no code, as ESRI's programs write it: longitude and latitude in
/// degrees, UTM zones and some national systems in metres, and the projection of web maps.
pub(crate) fn code_by_name(text: &str) -> Option<u16> {
    let wkt = wkt(text)?;
    let upper = wkt.text.to_ascii_uppercase();
    let letters = |text: &str| -> String {
        text.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
    };
    let name = letters(wkt.text.split('"').nth(1)?);
    if upper.matches("GEOGCS[").count() + upper.matches("GEOGCRS[").count() > 1 {
        return None;
    }
    if upper.starts_with("GEOGCS[") {
        let is_plain = upper.contains("UNIT[\"DEGREE\",0.0174532925")
            && upper.contains("PRIMEM[\"GREENWICH\",0");
        return datum(&wkt.datum?).filter(|_| is_plain).map(Datum::geographic_epsg);
    }
    if name == "wgs1984webmercatorauxiliarysphere" {
        return Some(3857);
    }
    let of_name = |(system, datum, _): &&(&str, &str, u16)| {
        *system == name && wkt.datum.as_deref().is_some_and(|other| letters(other) == *datum)
    };
    if let Some((.., code)) = NATIONAL.iter().find(of_name).filter(|_| has_metres(&upper)) {
        return Some(*code);
    }
    let (_, zone) = name.split_once("utmzone")?;
    let south = zone.ends_with('s');
    let zone = zone.strip_suffix(['n', 's'])?.parse().ok()?;
    let datum =
        datum(&wkt.datum?).filter(|_| has_metres(&upper) && upper.starts_with("PROJCS["))?;
    Utm { datum, zone, south }.epsg()
}

/// The unit of the reference system with this EPSG code, if the code is known here.
pub(crate) fn unit_of(code: u16) -> Option<Unit> {
    if Datum::of_geographic_epsg(code).is_some() {
        return Some(Unit::Degree);
    }
    let system = Proj::from_epsg_code(code).ok()?;
    let is_metre = !system.is_latlong() && !system.is_geocent() && system.to_meter() == 1.0;
    is_metre.then_some(Unit::Metre)
}

/// A coordinate reference system as WKT.
#[derive(Debug, PartialEq)]
pub(crate) struct Wkt {
    /// The text in one line, without spaces between its parts.
    pub text: String,
    /// `EPSG:` and the code that the text states for itself.
    pub epsg: Option<String>,
    /// Name of its datum.
    pub datum: Option<String>,
    /// The unit of coordinates, if it is known.
    pub unit: Option<Unit>,
}

/// Parses WKT of version 1 (also ESRI's) or 2. `None` if the text is not WKT.
pub(crate) fn wkt(text: &str) -> Option<Wkt> {
    const GEOGRAPHIC: [&str; 4] = ["GEOGCS[", "GEOGCRS[", "GEODCRS[", "GEOGRAPHICCRS["];
    const OTHER: [&str; 8] = [
        "PROJCS[",
        "PROJCRS[",
        "PROJECTEDCRS[",
        "LOCAL_CS[",
        "ENGCRS[",
        "COMPD_CS[",
        "COMPOUNDCRS[",
        "BOUNDCRS[",
    ];
    if text.len() > MAX_CRS {
        return None;
    }
    let text = in_one_line(text)?;
    let upper = text.to_ascii_uppercase();
    let starts = |names: &[&str]| names.iter().any(|name| upper.starts_with(name));
    let geographic = starts(&GEOGRAPHIC);
    if !geographic && !starts(&OTHER) {
        return None;
    }
    let unit = match geographic {
        true => (!upper.contains("UNIT[\"GRAD\"")).then_some(Unit::Degree),
        false => (starts(&["PROJCS["]) && has_metres(&upper)).then_some(Unit::Metre),
    };
    Some(Wkt { epsg: own_epsg(&upper), datum: quoted(&text, &upper, "DATUM["), unit, text })
}

/// Whether WKT in capitals states metres.
fn has_metres(upper: &str) -> bool {
    ["UNIT[\"METER\",1", "UNIT[\"METRE\",1"].iter().any(|unit| upper.contains(unit))
}

/// The text without spaces outside quotes. `None` if quotes or brackets do not close, or if it
/// contains control characters.
fn in_one_line(text: &str) -> Option<String> {
    let (mut line, mut open, mut is_quoted) = (String::with_capacity(text.len()), 0usize, false);
    for letter in text.trim().chars() {
        match letter {
            '"' => is_quoted = !is_quoted,
            '[' if !is_quoted => open += 1,
            ']' if !is_quoted => open = open.checked_sub(1)?,
            _ if letter.is_whitespace() && !is_quoted => continue,
            _ if hsipack_format::text::is_control(letter) => return None,
            _ => {}
        }
        line.push(letter);
    }
    (open == 0 && !is_quoted && line.ends_with(']')).then_some(line)
}

/// The EPSG code at the end of the whole text: `…,AUTHORITY["EPSG","32632"]]` or
/// `…,ID["EPSG",32632]]`.
fn own_epsg(upper: &str) -> Option<String> {
    let (_, last) =
        upper.strip_suffix("]]")?.rsplit_once([',', '[']).and_then(|(before_code, code)| {
            let name = before_code.strip_suffix("\"EPSG\"")?;
            (name.ends_with(",AUTHORITY[") || name.ends_with(",ID[")).then_some((before_code, code))
        })?;
    let code: u16 = last.trim_matches('"').parse().ok()?;
    Some(format!("EPSG:{code}"))
}

/// The text in quotes after a keyword.
fn quoted(text: &str, upper: &str, key: &str) -> Option<String> {
    let start = upper.find(key)? + key.len();
    let inside = text.get(start..)?.strip_prefix('"')?;
    Some(inside.split('"').next()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn datums_are_known_by_all_their_names() {
        for (name, expected) in [
            ("WGS-84", Some(Datum::Wgs84)),
            ("WGS_1984", Some(Datum::Wgs84)),
            ("D_WGS_1984", Some(Datum::Wgs84)),
            ("North America 1927", Some(Datum::Nad27)),
            ("D_North_American_1983", Some(Datum::Nad83)),
            ("European_Terrestrial_Reference_System_1989", Some(Datum::Etrs89)),
            ("NAD_1983_2011", None),
            ("", None),
        ] {
            assert_eq!(datum(name), expected, "{name}");
        }
    }

    #[test]
    fn texts_are_brought_into_one_line_and_looked_into() {
        let text = "PROJCS[\"a  name\" ,\n GEOGCS[\"x\",DATUM[\"D_WGS_1984\",SPHEROID[\"s\",1,2]]],\
                    UNIT[\"Meter\",1.0] , AUTHORITY[\"EPSG\",\"32611\"]]\n";
        let read = wkt(text).unwrap();
        assert!(read.text.starts_with("PROJCS[\"a  name\",GEOGCS[\"x\",DATUM["), "{}", read.text);
        assert_eq!(read.epsg.as_deref(), Some("EPSG:32611"));
        assert_eq!(read.datum.as_deref(), Some("D_WGS_1984"));
        assert_eq!(read.unit, Some(Unit::Metre));
        let second = wkt("GEOGCRS[\"WGS 84\",DATUM[\"x\"],ID[\"EPSG\",4326]]").unwrap();
        assert_eq!(second.epsg.as_deref(), Some("EPSG:4326"));
        assert_eq!(second.unit, Some(Unit::Degree));
        // The code of a part is not the code of the whole.
        let part = wkt("PROJCS[\"x\",GEOGCS[\"y\",AUTHORITY[\"EPSG\",\"4326\"]]]").unwrap();
        assert_eq!(part.epsg, None);
    }

    #[test]
    fn systems_are_kept_by_their_code_if_they_have_one() {
        let of = |text: &str| crs(text).unwrap();
        assert_eq!(of(" epsg:32632\n"), ("EPSG:32632".into(), Some(Unit::Metre)));
        assert_eq!(of("EPSG:2154"), ("EPSG:2154".into(), Some(Unit::Metre)));
        assert_eq!(of("EPSG:2229"), ("EPSG:2229".into(), None), "feet");
        assert_eq!(of("EPSG:4807"), ("EPSG:4807".into(), None), "grads");
        let grads = "GEOGCS[\"NTF\",UNIT[\"grad\",0.015707963]]";
        assert_eq!(of(grads).1, None);
        let metres = "PROJCS[\"x\",GEOGCS[\"y\",UNIT[\"Degree\",0.0174]],UNIT[\"Meter\",1.0]]";
        assert_eq!(of(metres).1, Some(Unit::Metre));
        let geographic = "GEOGCRS[\"a\", DATUM[\"b\"], ID[\"EPSG\", 4490]]";
        assert_eq!(of(geographic), ("EPSG:4490".into(), Some(Unit::Degree)));
        assert_eq!(of("LOCAL_CS[\"a\"\n]"), ("LOCAL_CS[\"a\"]".into(), None));
        for text in ["", "32632", "EPSG:", "EPSG:0", "EPSG:65536", "EPSG:1,2", "+proj=utm +zone=32"]
        {
            assert_eq!(crs(text), None, "{text}");
        }
    }

    #[test]
    fn texts_of_esri_have_the_codes_of_their_names() {
        let geographic = |datum: &str| {
            format!(
                "GEOGCS[\"GCS\",DATUM[\"{datum}\",SPHEROID[\"s\",6378137.0,298.2]],PRIMEM[\"Greenwich\",0.0],UNIT[\"Degree\",0.0174532925199433]]"
            )
        };
        let projected = |name: &str, datum: &str, unit: &str| {
            format!("PROJCS[\"{name}\",{},PROJECTION[\"p\"],UNIT[\"{unit}\"]]", geographic(datum))
        };
        let wgs = "D_WGS_1984";
        for (text, code) in [
            (geographic(wgs), Some(4326)),
            (geographic("D_Tokyo"), None),
            (
                projected("WGS_1984_UTM_Zone_31N", wgs, "Meter\",1.0\"").replace("\"\"]", "]"),
                Some(32631),
            ),
            (
                projected("WGS_1984_UTM_Zone_7S", wgs, "Meter\",1.0\"").replace("\"\"]", "]"),
                Some(32707),
            ),
            (projected("WGS_1984_UTM_Zone_61N", wgs, "Meter\",1.0\"").replace("\"\"]", "]"), None),
            (
                projected("WGS_1984_UTM_Zone_31N", wgs, "Foot_US\",0.3\"").replace("\"\"]", "]"),
                None,
            ),
            (
                projected("ETRS_1989_LAEA", "D_ETRS_1989", "Meter\",1.0\"").replace("\"\"]", "]"),
                Some(3035),
            ),
            (projected("RGF_1993_Lambert_93", wgs, "Meter\",1.0\"").replace("\"\"]", "]"), None),
        ] {
            assert_eq!(code_by_name(&text), code, "{text}");
        }
    }

    #[test]
    fn other_texts_are_none() {
        for text in ["", "EPSG:4326", "PROJCS[\"x\"", "PROJCS[\"x]", "PROJCS]\"x\"[", "x PROJCS[]"]
        {
            assert_eq!(wkt(text), None, "{text}");
        }
        assert_eq!(wkt(&format!("PROJCS[\"{}\"]", "x".repeat(MAX_CRS))), None);
        assert_eq!(wkt("PROJCS[\"\u{1b}[31m\"]"), None);
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "(PROJCS|GEOGCS)?[\\[\\]\",A-Za-z0-9 µ\n]{0,60}") {
            let _ = wkt(&text);
        }
    }
}
