//! The time at which a scene begins, in the name of its file. Makers write it in UTC:
//! `20230612T102020Z`, `20250423_134021`, `20230502102837`.

/// The first time in a name, such as `2023-06-12T10:20:20Z`; `None` if there is none.
pub(super) fn in_name(name: &str) -> Option<String> {
    // AVIRIS-3 and -5 write their own number before the date.
    let is_aviris =
        |start: &str| ["AV3", "AV5"].iter().any(|sensor| start.eq_ignore_ascii_case(sensor));
    let name = match name.split_at_checked(3) {
        Some((start, remaining)) if is_aviris(start) => remaining,
        _ => name,
    };
    let bytes = name.as_bytes();
    let mut start = 0;
    while start < bytes.len() {
        if !bytes[start].is_ascii_digit() {
            start += 1;
            continue;
        }
        let len =
            |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let date = len(start);
        let time = match date {
            14 => Some(start + 8),
            8 if bytes.get(start + 8).is_some_and(|byte| b"Tt_".contains(byte)) => {
                Some(start + 9).filter(|time| len(*time) == 6)
            }
            _ => None,
        };
        let found = time.and_then(|time| of_digits(&name[start..start + 8], &name[time..time + 6]));
        if found.is_some() {
            return found;
        }
        start += date;
    }
    None
}

/// The time of eight digits and six digits, if these can be a date since 1980 and a time.
fn of_digits(date: &str, time: &str) -> Option<String> {
    let number = |text: &str| text.parse::<u32>().ok();
    let (year, month, day) = (number(&date[..4])?, number(&date[4..6])?, number(&date[6..])?);
    let (hour, minute, second) = (number(&time[..2])?, number(&time[2..4])?, number(&time[4..])?);
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + u32::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    let fits = (1980..2100).contains(&year) && (1..=days).contains(&day);
    (fits && hour < 24 && minute < 60 && second < 60)
        .then(|| format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"))
}

#[cfg(test)]
mod tests {
    use super::in_name;

    #[test]
    fn names_of_deliveries_have_the_time() {
        for (name, time) in [
            (
                "ENMAP01-____L2A-DT0000009901_20230612T102020Z_001_V010400_20240215T121314Z-SPECTRAL_IMAGE.TIF",
                "2023-06-12T10:20:20Z",
            ),
            (
                "DESIS-HSI-L2A-DT0456789012_004-20200601T234520-V0210-SPECTRAL_IMAGE.tif",
                "2020-06-01T23:45:20Z",
            ),
            ("wyvern_dragonette-001_20240808T073501_51b92993.tiff", "2024-08-08T07:35:01Z"),
            ("ang20160910t185702_2rdn_img", "2016-09-10T18:57:02Z"),
            ("AV320250308t200738_rdn.img", "2025-03-08T20:07:38Z"),
            ("av320250308t200738_rdn.img", "2025-03-08T20:07:38Z"),
            ("AV520250308t200738_RFL.nc", "2025-03-08T20:07:38Z"),
            ("PRS_L2D_STD_20230502102837_20230502102842_0001.he5", "2023-05-02T10:28:37Z"),
            ("EMIT_L1B_RAD_001_20250324T221005_2508314_013.nc", "2025-03-24T22:10:05Z"),
            ("20250423_134021_00_4001_ortho_sr_hdf5.h5", "2025-04-23T13:40:21Z"),
            ("PACE_OCI.20240601T174521.L1B.V3.nc", "2024-06-01T17:45:21Z"),
            ("NEON_D01_HARV_DP1_20190826_164553_reflectance.h5", "2019-08-26T16:45:53Z"),
        ] {
            assert_eq!(in_name(name).as_deref(), Some(time), "{name}");
        }
        for name in [
            "f201013t01p00r10rdn_e_sc01_ort_img",
            "METADATA.XML",
            "NEON_D02_SERC_DP3_368000_4306000_reflectance.h5",
            "scene_20231301T102020",
            "scene_20230229T102020",
            "scene_20230228T240000",
            "20230612",
            "20230612T10",
            "20230612T1020201",
            "",
            "Ä20230612é102020",
        ] {
            assert_eq!(in_name(name), None, "{name}");
        }
    }
}
