//! Writes the page of figures, `README.md`, from what the benchmarks noted in `figures`: a table for each program, and a plot
//! for what was measured at several loads or sizes. Programs that were not run again keep the figures that are there.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use evidence_benches::{Noted, Point, Result};
use plotters::prelude::*;

/// The programs, in the order of the page, and what they measure.
const PROGRAMS: [(&str, &str); 8] = [
    ("bench_http", "Writes (P1, P2), reads (P3) and reports (P5), each against its probe"),
    ("bench_loads", "From 1 to 1,024 connections, and reads at a fixed rate"),
    ("bench_growth", "Reads as the store grows (P4)"),
    ("bench_records", "Reads of what is recorded about changes, as the store grows (P4)"),
    ("bench_environments", "A year of an environment (P6)"),
    ("bench_audit_pdf", "The trail as PDF (P7)"),
    ("bench_standalone_server", "The server's start, memory and size (P8 to P10)"),
    ("bench_mounts", "What a host costs"),
];

/// What is not reached yet, and why: from profiles (`perf`), not from these runs.
const NOT_REACHED: &str = "
## What is not reached yet, and where the time goes

- **Writes on SQLite (P1, and 1,024 connections).** One thread writes, and it is what is waited for: of its time 40 % is the commit
  (frames of the log 26 %, the checkpoint 10 %), 21 % the inserts, 18 % the prefetch, 9 % the plan with its hashes. The rest of a write's
  CPU is spread: 16 % is the allocator, no function has more than 6 %.
- **Writes on PostgreSQL (P2).** One group is in flight at a time, so few clients leave a core idle: a group takes two statements and a
  flush, one after the other. With one client a group cost PostgreSQL 287 µs for the prefetch, of which 193 went to make ready a dozen
  parts with empty lists (groups of attestations leave them out since), and 260 µs for the write. Two groups in flight, with hash chains
  computed ahead, are not built.
- **Uncached reads.** An artifact takes seven queries and a page of trails five, of which one is left out where its trails are
  cached. Of a page of trails two thirds were the writing of its JSON, half of that one loop; since it went, and trails that nothing
  is reported to are cached, such a page takes half the CPU that it took on SQLite, and a third on PostgreSQL. What is left of an artifact is half SQL,
  a seventh of that locks and unlocks the file for each query. Asked about an organization whose ledger did not grow, the answer is
  cached and takes one query.
- **Statistics of builds (P4)** grow with the builds of the time that is asked about, of which they are percentiles. The store of
  100,000 has ten times as many in that time.
- **Memory (P9).** Uploads do not add up: after the third of 10 MB nearly nothing comes to it. SQLite takes 8 MiB more than PostgreSQL,
  which is the page cache of its writer (`cache_size`), filled once. The 7 MiB of both are not explained yet: chunks of 256 KiB on their
  way, and what the allocator keeps of them, are what is likely.
- **The size of the program (P10).** Of 54 MB 42 are code: each of 118 operations has its own copy of what decodes, runs and answers it, and
  4.5 MB are destructors. `lto` would make each build of the benchmarks some minutes longer, and was not measured.
- **10 million records** were not measured: to fill a store with a million trails and artifacts takes a quarter of an hour, and 10
  million attestations take more disk than the machine has.
";

const SIZE: (u32, u32) = (720, 420);

/// The points of a plot, by line.
type Lines = BTreeMap<String, Vec<(f64, f64)>>;

fn main() -> Result {
    let benches = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let figures = benches.join("figures");
    let machine = std::fs::read_to_string(figures.join("machine.txt")).unwrap_or_default();
    let mut page = String::from(
        "# Figures\n\nHow fast the service is, by `cargo xtask bench --page`, which writes this page. Client, server and \
        database share one machine, so that the ratio to a probe of the same run says more than the figure. \
        CPU is a request's: the server's, `+` that of PostgreSQL's processes. A row with a target that is not met says **no**.\n",
    );
    write!(page, "\n{machine}\n")?;
    for (program, heading) in PROGRAMS {
        let rows = rows(&figures.join(format!("{program}.jsonl")))?;
        if rows.is_empty() {
            continue;
        }
        write!(page, "\n## {heading}\n\n")?;
        for (name, lines) in plots(&rows) {
            let file = format!("{}.svg", name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-"));
            draw(&figures.join(&file), &name, &lines)?;
            write!(page, "![{name}](figures/{file})\n\n")?;
        }
        page.push_str(
            "| measured | figure | ratio | to reach | reached |\n| --- | --- | ---: | --- | --- |\n",
        );
        for row in &rows {
            page.push_str(&line(row));
        }
    }
    page.push_str(NOT_REACHED);
    std::fs::write(benches.join("README.md"), page)?;
    Ok(())
}

/// What a program noted; nothing where it was never run.
fn rows(file: &Path) -> Result<Vec<Noted>> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    Ok(text.lines().map(serde_json::from_str).collect::<std::result::Result<_, _>>()?)
}

fn line(Noted { measured, figure, ratio, target, met, .. }: &Noted) -> String {
    let ratio = ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"));
    let met = match met {
        Some(true) => "yes",
        Some(false) => "**no**",
        None => "",
    };
    format!("| {measured} | {figure} | {ratio} | {} | {met} |\n", target.as_deref().unwrap_or_default())
}

fn plots(rows: &[Noted]) -> BTreeMap<String, Lines> {
    let mut plots: BTreeMap<String, Lines> = BTreeMap::new();
    for Point { plot, line, x, y } in rows.iter().filter_map(|row| row.point.as_ref()) {
        plots.entry(plot.clone()).or_default().entry(line.clone()).or_default().push((*x, *y));
    }
    plots
}

/// Requests a second by connections, both by powers.
fn draw(file: &Path, name: &str, lines: &Lines) -> Result {
    let all = || lines.values().flatten();
    let most = |of: fn(&(f64, f64)) -> f64| all().map(of).fold(1.0, f64::max);
    let least = all().map(|(_, y)| *y).fold(f64::MAX, f64::min).max(1.0);
    let area = SVGBackend::new(file, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("{name}: requests a second by connections"), ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(
            (1.0..most(|(x, _)| *x)).log_scale(),
            (least / 2.0..most(|(_, y)| *y) * 2.0).log_scale(),
        )?;
    let number = |number: &f64| format!("{number:.0}");
    chart
        .configure_mesh()
        .x_label_formatter(&number)
        .y_label_formatter(&number)
        .light_line_style(WHITE)
        .draw()?;
    for (place, (line, points)) in lines.iter().enumerate() {
        let color = Palette99::pick(place).to_rgba();
        let series = LineSeries::new(points.iter().copied(), color.stroke_width(2)).point_size(3);
        let drawn = chart.draw_series(series)?.label(line.as_str());
        drawn.legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], color.stroke_width(2)));
    }
    chart.configure_series_labels().background_style(WHITE).border_style(BLACK).draw()?;
    area.present()?;
    Ok(())
}
