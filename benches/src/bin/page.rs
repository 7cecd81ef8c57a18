//! Writes the page of figures, `README.md`, from the rows that the benchmarks wrote to `figures`: a table per
//! program, and a plot for measurements at several loads or sizes. Programs that did not run again keep their
//! figures.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use evidence_benches::{Noted, Point, Result};
use plotters::prelude::*;

/// The programs, in the order of the page, with headings.
const PROGRAMS: [(&str, &str); 8] = [
    ("bench_http", "Writes (P1, P2), reads (P3) and reports (P5), each against its probe"),
    ("bench_loads", "From 1 to 1,024 connections, and reads at a fixed rate"),
    ("bench_growth", "Reads without caches, as the store grows (P4)"),
    ("bench_records", "All reads of changes, without caches, as the store grows (P4)"),
    ("bench_environments", "A year of an environment (P6)"),
    ("bench_audit_pdf", "The trail as PDF (P7)"),
    ("bench_standalone_server", "The server's start, memory and size (P8 to P10)"),
    ("bench_mounts", "The cost of a host"),
];

/// The reasons for targets that are not reached: from profiles (`perf`), not from these runs.
const NOT_REACHED: &str = "
## Targets that are not reached, and where the time goes

- **Cached reads at 16 connections (P3)** take 27 and 29 µs of the server's CPU. hyper alone takes 7 to 8 µs and has a
  faster client, so the ratio is 0.39 and 0.30. The profiles below are from another machine, where it was 0.48 and
  0.33. On SQLite, the server's CPU time is distributed as follows: 45 % kernel (sockets and thread switches), 9 %
  hyper, 8 % tokio, 8 % allocator, 6 % copies of memory, 9 % the service, 2 % SQLite. No function of the program has
  more than 3 %.
- **Writes on SQLite (P1, and 1,024 connections).** One thread writes, and it is the bottleneck. It spends 40 % of its
  time on the commit (26 % on frames of the log, 10 % on the checkpoint), 21 % on inserts, 18 % on the prefetch, and 9
  % on the plan with its hashes. The rest of a write's CPU time is spread: 16 % is the allocator, and no function has
  more than 6 %. Tried: checkpoints after 4,000 and 16,000 pages (6 % and 1 % more writes, but pauses of up to 47 and
  124 ms instead of 29), a cache of 64 MiB, and other page sizes (no effect).
- **Writes on PostgreSQL (P2).** Only one group is in flight at a time, so few clients leave a core idle: a group
  takes two statements and a flush, one after another. With one client, a group cost PostgreSQL 287 µs for the
  prefetch and 260 µs for the write. Of the prefetch, 193 µs prepared a dozen parts with empty lists, which groups of
  attestations now omit. With both cores fully used, the CPU time of one client would allow 6,300 writes per second
  with 8 clients. Tried and dropped: letting ready requests join a group before it begins (2,972 and 2,727/s without;
  2,851 and 2,979/s with it; 2,363 and 2,546/s when waiting until none arrived). Not built: two groups in flight, with
  hash chains computed in advance. The second group would be sent before the outcome of the first is known. A lost
  race or a broken connection of one would then make the outcome of the other unknown too.
- **Uncached reads.** An artifact takes three queries: the ledger's head, the artifact with its flow, its runs and the
  version of its trail, and what its attestations say. Its trail's reports and template are cached. A page of trails
  takes five, or four if its trails are cached. Two thirds of the time of such a page were spent on its JSON, half of
  that in one loop. Without that loop, and with idle trails cached, a page takes half of its former CPU time on SQLite and a third on PostgreSQL. Half of the
  remaining time of an artifact is SQL, and a seventh of that locks and unlocks the file for each query. If an
  organization's ledger did not grow, a response comes from the cache and takes one query, which concurrent requests
  share. Tried on SQLite and dropped: `mmap_size` of 1 GiB (by id 15,578 and 18,121/s instead of 14,650 and 15,527/s;
  lists of artifacts once faster and once slower). A disk error would then end the process and not the request. A page
  cache of 64 MiB per reader was slower (13,622 and 14,183/s).
- **`ETag` and 304** are not built. A tag derived from the ledger's head would still match after a rebuild that
  repairs rows, until the next write. A tag derived from the response requires the whole response, and saves only its
  transfer.
- **Beside writes**, each write invalidates the organization's responses. One request computes the response again, and
  the others wait for it. This was measured with and without that sharing, with 50 writes per second to other trails
  than those that were read, and 64 clients. The newest 50 artifacts had 42,064 and 1,500 responses per second on
  SQLite, and 29,220 and 784 on PostgreSQL. The newest 50 trails had 52,837 and 5,691, and 33,028 and 987.
- **Statistics of builds (P4)** grow with the number of builds in the requested period, because they are percentiles.
  At most 100,000 builds are read.
- **Filter options and the last page of repos (P4)** grow with the number of repos. 10 thousand, 1 million and 10
  million attestations come from 1, 100 and 1,000 repos. The options are the distinct values of a list, and each page
  has the length of the list.
- **Constant medians with a growing 99th percentile (P4):** the attestations of a flow in one second on SQLite, and a
  control on PostgreSQL, each in one run. The cause was other work of the machine.
- **Memory (P9).** Uploads do not accumulate: after the third of 10 MB, memory hardly grows. The rest is what a chunk
  of 256 KiB takes on its way. There is the chunk itself, the copies of it that SQLite makes or PostgreSQL's
  arguments, and the connection's buffer. There are pages of SQLite's writer, which empties its cache after each chunk
  (6.6 to 5.1 MiB; after each megabyte before; with 8 MB of cache it was 15). And there are buffers of 64 KiB, of the
  connection, the form and the temporary file. By page faults on PostgreSQL, 1.7 of 4 MB were arguments that grew by
  doubling, and 1.2 the chunk. Both are now allocated at once (4.7 to 4.3 MiB, medians of nine; a run may have a
  megabyte more). A third of the rest is freed memory that the allocator retains. With `MIMALLOC_PURGE_DELAY=0`, which
  returns it at once, memory grows by 2.9 MiB on SQLite and 3.4 on PostgreSQL.
- **The size of the program (P10).** Each of 118 operations has its own copy of the code that decodes a request, runs
  it and builds the response. The profile `dist` saves 18 % (`lto`, one unit: 54.3 to 44.8 MB, of which 35 are code:
  6.5 the operations, 6 routing, OpenAPI and JSON schemas, 2.3 destructors). Tried: `opt-level = \"s\"` gives 30.8 MB,
  and costs 6 to 20 % of CPU per request (SQLite, medians of three runs in turn: a write 104 to 118 µs, 50 uncached
  trails 633 to 756, an uncached flow 35 to 42; PostgreSQL 108 to 115, 574 to 670, 43 to 46). `opt-level = 2` saves 2
  % at no measurable cost. Schemas, PDF and the command line have 4 MB together, so `\"s\"` for them would save less
  than 3 %. To build the smaller program, use `--config 'profile.dist.opt-level=\"s\"'`.
- **Filling with 10 million attestations.** Beyond 100,000, one trail in a hundred is sent to the API. The others are
  recorded as copies, 165 per write: twelve minutes on SQLite and 17 on PostgreSQL beside other work, 26 and 27 GB.
  PostgreSQL is vacuumed before it is read, as it would do a minute later by itself. Without that, the first read (an
  artifact by its fingerprint) took up to four times as long in the larger store.
";

const SIZE: (u32, u32) = (720, 420);

/// The points of a plot, by line.
type Lines = BTreeMap<String, Vec<(f64, f64)>>;

fn main() -> Result {
    let benches = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let figures = benches.join("figures");
    let machine = std::fs::read_to_string(figures.join("machine.txt")).unwrap_or_default();
    let mut page = String::from(
        "# Figures\n\nThe performance of the service. `cargo xtask bench --page` writes this page. Client, server and database \
        share one machine, so the ratio to a probe of the same run says more than the figure. CPU times are per request: \
        the server's, `+` those of PostgreSQL's processes. A row whose target is not reached has **no**.\n",
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

/// Returns the rows of a program; none if it never ran.
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

/// Draws requests per second by connections, on logarithmic axes.
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
    let legend = SeriesLabelPosition::LowerRight;
    chart.configure_series_labels().position(legend).background_style(WHITE).border_style(BLACK).draw()?;
    area.present()?;
    Ok(())
}
