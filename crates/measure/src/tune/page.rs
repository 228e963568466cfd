//! The report as a page. Every number on it is also in the page's data.

use super::advice::Case;
use super::figures::{Measured, Rate};
use super::gpu::{GpuCandidate, GpuDecoding};
use super::precision::Spectrum;
use super::report::Report;
use super::windows::{Layout, Windows};
use crate::page::chart::{Bar, Chart};
use crate::page::{Page, escape, table};

/// The page of a report.
pub fn page(report: &Report) -> String {
    let title = format!("Tuning for {}", report.paths.join(", "));
    let page = Page::new(&title)
        .lead(&lead(report))
        .section("In short", &summary(report))
        .section("What limits", &limits(report))
        .section("Ratio and speed", &codecs(report));
    let page = match &report.windows {
        Some(found) => page.section("What windows cost", &windows(found)),
        None => page,
    };
    let page = match &report.device {
        Some(gpu) => page.section(&format!("Decoding on {}", gpu.device), &on_device(gpu)),
        None => page,
    };
    page.section("What the mantissa bits hold", &information(report))
        .section("What fewer bits gain and cost", &bits(report))
        .section("Spectra before and after", &spectra(report))
        .section("How it was measured", &method(report))
        .style(STYLE)
        .data(report)
        .render()
}

const STYLE: &str = ".charts { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 32rem), 1fr)); } \
    .charts > div { min-width: 0; }\n";
/// Height of charts on narrow pages.
const PHONE: f64 = 300.0;
/// Size of charts over the full width of a page.
const WIDE: [f64; 2] = [760.0, 400.0];
/// Size of charts side by side.
const HALF: [f64; 2] = [520.0, 320.0];

fn lead(report: &Report) -> String {
    let sample = &report.sample;
    format!(
        "Codecs, chunk sizes and mantissa bits, measured on {} of {} cubes ({}) with {} of {} cores.",
        sample.cubes,
        sample.all_cubes,
        sample.shapes.join(", "),
        report.threads.last().copied().unwrap_or(1),
        report.machine_cores
    )
}

fn windows(windows: &Windows) -> String {
    let row = |layout: &Layout| {
        vec![
            layout.chunk.clone().unwrap_or_else(|| "default".to_owned()),
            format!("{} kB", layout.chunk_bytes / 1000),
            format!("{:.2}", layout.chunks_per_window),
            format!("{:.0}", layout.windows_per_s),
            layout.auto.words(),
        ]
    };
    let rows: Vec<_> = windows.layouts.iter().map(row).collect();
    let head = ["chunks", "size", "chunks/window", "windows/s, no cache", "a loader"];
    let chosen = windows.layouts[windows.choice].chunk.as_deref().unwrap_or("default");
    format!(
        "<p>Windows of {}x{} pixels. All cubes take {:.2} GB decoded; <code>cache=\"auto\"</code> would use {:.2} GB of this machine's memory. \
         Chosen: {}.</p>{}",
        windows.rows,
        windows.columns,
        windows.all_bytes as f64 / 1e9,
        windows.memory_bytes as f64 / 1e9,
        escape(chosen),
        table(&head, &rows)
    )
}

fn on_device(gpu: &GpuDecoding) -> String {
    let row = |candidate: &GpuCandidate| {
        vec![
            candidate.name.clone(),
            format!("{} kB", candidate.block_bytes / 1000),
            format!("{:.2}", candidate.ratio),
            format!("{:.2}", candidate.decode.gb_per_s),
            format!("{:.2}", candidate.bytes_per_s / 1e9),
        ]
    };
    let rows: Vec<_> = gpu.candidates.iter().map(row).collect();
    let head = ["codec", "blocks", "ratio", "decode GB/s", "with the copies GB/s"];
    let chosen = gpu.chosen();
    format!(
        "<p>A batch of {:.0} MB; stored bytes are copied to the GPU at {:.2} GB/s. Chosen: {} with blocks of {} bytes.</p>{}",
        gpu.batch_bytes as f64 / 1e6,
        gpu.link.gb_per_s,
        escape(&chosen.name),
        chosen.block_bytes,
        table(&head, &rows)
    )
}

fn drawn(chart: Chart, size: [f64; 2]) -> String {
    chart.size(size[0], size[1]).for_page(PHONE)
}

fn figure(name: &str, value: &str) -> String {
    format!("<div><dt>{}</dt><dd>{}</dd></div>", escape(name), escape(value))
}

/// `2048 kB`, the format for `chunk_bytes`.
pub(super) fn chunk(bytes: usize) -> String {
    if bytes >= 1 << 20 { format!("{} MiB", bytes >> 20) } else { format!("{} KiB", bytes >> 10) }
}

/// `1 thread`, `2 threads`.
fn threads(count: usize) -> String {
    if count == 1 { "1 thread".to_owned() } else { format!("{count} threads") }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn disk(rate: Option<f64>) -> String {
    rate.map_or_else(|| "unlimited".to_owned(), |rate| format!("{:.0} MB/s", rate / 1e6))
}

fn summary(report: &Report) -> String {
    let chosen = report.chosen();
    let mut figures = vec![
        figure("codec", &chosen.name),
        figure("chunks near", &chunk(chosen.candidate.chunk_bytes)),
        figure("ratio", &format!("{:.2}", chosen.ratio)),
        figure("decodes", &format!("{:.2} GB/s", chosen.decode_at(report.cores))),
        figure("packs", &format!("{:.2} GB/s", chosen.write.gb_per_s)),
    ];
    let mut text = String::new();
    if let Some(gpu) = &report.device {
        figures.push(figure(&format!("codec for {}", gpu.device), &gpu.chosen().name));
    }
    if let Some(integers) = &report.integers {
        figures.push(figure(
            integers.dtype,
            &format!("{:.2}x smaller than float16", integers.smaller),
        ));
        text += &format!("<p>{}.</p>", escape(&integers.sentence()));
    }
    if let Some(gain) = report.precision.gain() {
        figures.push(figure("bits that hold 99 %", &format!("{} of 10", gain.keep_bits)));
        figures.push(figure("their greatest error", &format!("{:.3} %", 100.0 * gain.bound_rel)));
        text += &format!("<p>{}.</p>", escape(&report.precision.sentence(gain)));
    }
    let case = &report.cases[report.choice.case];
    format!(
        "<dl class=\"figures\">{}</dl><p>Chosen for a disk of {} and {} decoding cores; with these, the {} is the limit. Packing {} takes {} here.</p>{text}",
        figures.concat(),
        disk(case.disk_rate),
        report.cores,
        case.limit.name(),
        match report.sample.all_cubes {
            1 => "the cube".to_owned(),
            many => format!("all {many} cubes"),
        },
        match report.choice.write_s {
            short if short < 1.0 => "less than a second".to_owned(),
            long => format!("about {long:.0} s"),
        }
    )
}

fn limits(report: &Report) -> String {
    let row = |case: &Case| {
        let measured = &report.candidates[case.candidate];
        let part = |at: usize| {
            case.parts[at].map_or_else(|| "–".to_owned(), |rate| format!("{:.2}", rate / 1e9))
        };
        let mut cells = vec![
            disk(case.disk_rate),
            measured.name.clone(),
            chunk(measured.candidate.chunk_bytes),
            format!("{:.2}", case.bytes_per_s / 1e9),
            format!("{:.1}", case.cubes_per_s),
            format!("{:.2}", case.epoch_s),
            case.limit.name().to_owned(),
        ];
        cells.extend((0..4).map(part));
        cells
    };
    let rows: Vec<_> = report.cases.iter().map(row).collect();
    let head = [
        "disk",
        "best codec",
        "chunks",
        "GB/s",
        "cubes/s",
        "s/epoch",
        "limited by",
        "disk GB/s",
        "decode GB/s",
        "copy GB/s",
        "step GB/s",
    ];
    format!(
        "{}<p class=\"muted\">Uncompressed bytes. The last four columns show what each part alone could deliver with that codec; the smallest of them is the rate.</p>",
        table(&head, &rows)
    )
}

fn codecs(report: &Report) -> String {
    let point = |measured: &Measured| {
        ([measured.ratio, measured.decode_at_most()], label(report, measured))
    };
    let of = |front: bool| -> Vec<([f64; 2], String)> {
        report.candidates.iter().filter(|measured| measured.front == front).map(point).collect()
    };
    let (front, others) = (of(true), of(false));
    fn named(list: &[([f64; 2], String)]) -> Vec<([f64; 2], &str)> {
        list.iter().map(|(point, label)| (*point, label.as_str())).collect()
    }
    // Only points on the front are labelled, because the other labels would hide them.
    let bare: Vec<([f64; 2], &str)> = others.iter().map(|(point, _)| (*point, "")).collect();
    let chart = Chart::new(
        "Decoding speed against ratio",
        "Each point is a codec; codecs on the front are labelled.",
    )
    .x_label("ratio (uncompressed / stored)")
    .y_label(&format!("decoding, GB/s, {}", threads(report.threads.last().copied().unwrap_or(1))))
    .not_from_zero()
    .y_range(0.0, 0.0)
    .scatter("nothing is better in all", &named(&front))
    .scatter("others", &bare);
    let mut order: Vec<&Measured> = report.candidates.iter().collect();
    order.sort_by(|a, b| {
        b.front.cmp(&a.front).then(b.decode_at_most().total_cmp(&a.decode_at_most()))
    });
    let spread =
        |rate: &Rate| format!("{:.2} ({:.2}–{:.2})", rate.gb_per_s, rate.least, rate.greatest);
    let rows: Vec<Vec<String>> = order
        .into_iter()
        .map(|measured| {
            let mut cells = vec![
                measured.name.clone(),
                if measured.front { "yes".into() } else { String::new() },
                chunk(measured.candidate.chunk_bytes),
                format!("{:.3}", measured.ratio),
                spread(&measured.write),
            ];
            cells.extend(measured.decode.iter().map(spread));
            cells
        })
        .collect();
    let mut head: Vec<String> =
        ["codec, level, filter", "front", "chunks", "ratio", "write GB/s"].map(Into::into).into();
    head.extend(report.threads.iter().map(|n| format!("decode GB/s, {}", threads(*n))));
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let copy: Vec<String> =
        report.copy.iter().map(|rate| format!("{} with {}", spread(rate), rate.threads)).collect();
    format!(
        "{}<p>memcpy in the same rounds, GB/s: {}. Median of {} rounds, least and greatest in brackets.</p>{}",
        drawn(chart, WIDE),
        escape(&copy.join("; ")),
        report.rounds,
        table(&head, &rows)
    )
}

fn label(report: &Report, measured: &Measured) -> String {
    if measured.candidate.chunk_bytes == report.default_chunk_bytes {
        measured.name.clone()
    } else {
        format!("{} {}", measured.name, chunk(measured.candidate.chunk_bytes))
    }
}

fn information(report: &Report) -> String {
    let precision = &report.precision;
    let names: Vec<String> = (1..=10).map(|bit| bit.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let bars: Vec<Bar> =
        precision.information.mantissa().iter().map(|bits| Bar::new(*bits)).collect();
    let chart = Chart::new(
        "Real information of each mantissa bit",
        "Mutual information of the same bit of neighbouring pixels, for each mantissa bit.",
    )
    .x_label("mantissa bit, the most significant first")
    .y_label("information, bits")
    .categories(&names)
    .bars("", &bars);
    let rows: Vec<Vec<String>> = precision
        .shares
        .iter()
        .enumerate()
        .map(|(at, share)| {
            let bit = precision.information.mantissa()[at];
            vec![(at + 1).to_string(), format!("{bit:.4}"), format!("{:.2} %", 100.0 * share)]
        })
        .collect();
    format!(
        "<div class=\"charts\"><div>{}</div><div>{}</div></div><p>99 % of the information is in the first {} mantissa bits (with sign and exponent), \
         99.9 % in the first {}. A bit holds information to the extent that it predicts the same bit of the neighbouring pixel in the same band (Klöwer et al. 2021); {} pairs were compared, and {:.1e} bits, which chance alone gives, count as none.</p>",
        drawn(chart, HALF),
        table(&["bits kept", "information of the last", "share kept"], &rows),
        precision.keep_99,
        precision.keep_99_9,
        precision.information.pairs,
        precision.information.chance
    )
}

fn bits(report: &Report) -> String {
    let precision = &report.precision;
    let rows: Vec<Vec<String>> = precision
        .variants
        .iter()
        .map(|variant| {
            vec![
                format!("{}, {}", variant.keep_bits, variant.codec),
                percent(variant.share),
                format!("{:.2}", variant.ratio),
                format!("{:.2}x", variant.smaller),
                format!("{:.2}", variant.decode.last().map_or(0.0, |rate| rate.gb_per_s)),
                format!("{:.2}x", variant.faster),
                format!("{:.2e}", variant.mean_rel),
                format!("{:.2e}", variant.bound_rel),
                format!("{:.2e}", variant.max_abs),
            ]
        })
        .collect();
    let head = [
        "bits kept, codec",
        "information",
        "ratio",
        "smaller",
        "decode GB/s",
        "faster",
        "mean rel. error",
        "max rel. error",
        "max abs. error",
    ];
    let bands = &precision.bands;
    let x = |band: usize| bands.wavelength.as_ref().map_or(band as f64, |nm| nm[band]);
    let line = |list: &[Option<f64>]| -> Vec<[f64; 2]> {
        // Drawn along the wavelength, whatever the order of the bands, with gaps where bands have no value.
        let numbers = list.iter().map(|value| value.unwrap_or(f64::NAN)).enumerate();
        let mut points: Vec<_> = numbers.map(|(band, value)| [x(band), value]).collect();
        points.sort_by(|a, b| a[0].total_cmp(&b[0]));
        points
    };
    let axis = if bands.wavelength.is_some() { "wavelength, nm" } else { "band" };
    let chart = Chart::new(
        &format!("Error of each band, {}", bands.shape),
        "Mean relative error against wavelength, with fewer bits and with all.",
    )
    .x_label(axis)
    .y_label("mean relative error")
    .line(&format!("{} bits kept", bands.keep_bits), &line(&bands.mean_rel))
    .line("all of float16", &line(&bands.plain_mean_rel));
    format!(
        "<p>“Smaller” and “faster” are relative to all bits with the same codec, measured in the same rounds. The greatest relative error is over numbers of at least 6e-5.</p>{}{}{}",
        variants_chart(report),
        table(&head, &rows),
        drawn(chart, WIDE)
    )
}

/// Decoding speed against ratio: one colour per codec, one point per number of bits.
fn variants_chart(report: &Report) -> String {
    let variants = &report.precision.variants;
    let mut codecs: Vec<&str> = variants.iter().map(|variant| variant.codec.as_str()).collect();
    codecs.sort_unstable();
    codecs.dedup();
    let points = |codec: &&str| -> Vec<([f64; 2], String)> {
        let same = variants.iter().filter(|variant| variant.codec == **codec);
        same.map(|variant| {
            let decode = variant.decode.last().map_or(0.0, |rate| rate.gb_per_s);
            ([variant.ratio, decode], variant.keep_bits.to_string())
        })
        .collect()
    };
    let all: Vec<_> = codecs.iter().map(points).collect();
    let mut chart = Chart::new(
        "Speed and ratio with fewer bits",
        "Each point is a number of mantissa bits kept, each colour a codec.",
    )
    .not_from_zero()
    .y_range(0.0, 0.0)
    .x_label("ratio (uncompressed / stored)")
    .y_label(&format!("decoding, GB/s, {}", threads(report.threads.last().copied().unwrap_or(1))));
    for (codec, points) in codecs.iter().zip(&all) {
        let named: Vec<([f64; 2], &str)> =
            points.iter().map(|(point, label)| (*point, label.as_str())).collect();
        chart = chart.scatter(codec, &named);
    }
    drawn(chart, WIDE)
}

fn spectra(report: &Report) -> String {
    let charts: String = report
        .precision
        .spectra
        .iter()
        .map(|spectrum| {
            let chart = spectrum_chart(spectrum, report.precision.keep_99);
            format!("<div><p>{}</p>{}</div>", escape(&spectrum.cube), drawn(chart, HALF))
        })
        .collect();
    format!("<div class=\"charts\">{charts}</div>")
}

fn spectrum_chart(spectrum: &Spectrum, bits: u8) -> Chart {
    let line = |values: &[Option<f32>]| -> Vec<[f64; 2]> {
        let mut points: Vec<[f64; 2]> = values
            .iter()
            .enumerate()
            .map(|(band, value)| {
                let x = spectrum.wavelength.as_ref().map_or(band as f64, |nm| nm[band]);
                [x, value.map_or(f64::NAN, f64::from)]
            })
            .collect();
        points.sort_by(|a, b| a[0].total_cmp(&b[0]));
        points
    };
    let axis = if spectrum.wavelength.is_some() { "wavelength, nm" } else { "band" };
    Chart::new(
        // The cube's name, which may be long, is written above the picture.
        &format!("Row {}, column {}", spectrum.row, spectrum.column),
        &format!("The spectrum of one pixel of {} before and after dropping bits.", spectrum.cube),
    )
    .x_label(axis)
    .y_label("value")
    .not_from_zero()
    .line("before", &line(&spectrum.before))
    .line(&format!("{bits} mantissa bits"), &line(&spectrum.after))
}

fn method(report: &Report) -> String {
    let notes: String =
        report.notes.iter().map(|note| format!("<p>{}</p>", escape(note))).collect();
    format!(
        "<p>{:.1} MB of values in memory, cut into chunks as <code>convert</code> cuts them, encoded and decoded by the code that <code>convert</code> and the reader use, into memory that was touched before; checksums are not compared. Every candidate runs once per round: {} rounds, {:.0} s in all. The disk is not measured: you give its rate.</p>{notes}",
        report.sample.bytes as f64 / 1e6,
        report.rounds,
        report.seconds
    )
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::super::{TuneOptions, tune};
    use super::*;

    #[test]
    fn a_page_of_a_run_shows_only_what_it_holds() {
        let folder = tempfile::tempdir().unwrap();
        let header = folder.path().join("<cube>.hdr");
        let text = "ENVI\nsamples = 20\nlines = 16\nbands = 9\nheader offset = 0\ndata type = 4\ninterleave = bip\nbyte order = 0\n";
        std::fs::write(&header, text).unwrap();
        let values: Vec<u8> =
            (0..20 * 16 * 9).flat_map(|at| ((at % 331) as f32 / 331.0).to_le_bytes()).collect();
        std::fs::write(header.with_extension("img"), values).unwrap();
        let options = TuneOptions {
            paths: vec![header.display().to_string()],
            sample_size: Some(1 << 20),
            quick: true,
            cores: 2,
            batch_size: 2,
            patch: Some([3, 3]),
            ..TuneOptions::default()
        };
        let report = tune(&options, &AtomicBool::new(false), &|_| {}).unwrap();
        let html = page(&report);
        assert!(html.contains("id=\"data\"") && !html.contains("<cube>"));
        assert!(html.contains(&report.chosen().name));
        assert!(html.contains("Windows of 3x3 pixels"));
        assert!(html.contains("Packing the cube takes less than a second here."));
        if let Some(gain) = report.precision.gain() {
            let expected = format!("their greatest error</dt><dd>{:.3} %", 100.0 * gain.bound_rel);
            assert!(html.contains(&expected), "{expected}");
        }
        let spectrum = Spectrum {
            cube: "a".to_owned(),
            row: 0,
            column: 0,
            wavelength: None,
            before: vec![Some(1.0), Some(2.0), None, Some(2.0), Some(1.0)],
            after: vec![Some(1.0), Some(2.0), None, Some(2.0), Some(1.0)],
        };
        let svg = spectrum_chart(&spectrum, 3).render(crate::page::svg::SvgTarget::File);
        let drawn = svg.split("class=\"l0\" d=\"").nth(1).unwrap().split('"').next().unwrap();
        assert_eq!((drawn.matches('M').count(), drawn.matches('L').count()), (2, 2), "{drawn}");
        assert_eq!(report.cases.len(), 4);
        assert!(report.candidates.iter().any(|measured| measured.front));
        assert!(report.config().contains("codec = "));
    }
}
