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
    ("bench_records", "Reads of what is recorded about changes, without caches, as the store grows (P4)"),
    ("bench_environments", "A year of an environment (P6)"),
    ("bench_audit_pdf", "The trail as PDF (P7)"),
    ("bench_standalone_server", "The server's start, memory and size (P8 to P10)"),
    ("bench_mounts", "What a host costs"),
];

/// What is not reached yet, and why: from profiles (`perf`), not from these runs.
const NOT_REACHED: &str = "
## What is not reached yet, and where the time goes

- **Cached reads at 16 connections (P3)** take 27 and 29 µs of the server's CPU on another machine than the one of the profiles below,
  where bare hyper takes 7 to 8 with a faster client: the ratio to it is 0.39 and 0.30, where it was 0.48 and 0.33. Of the
  server's CPU on SQLite 45 % are the kernel's (sockets and changes of threads), 9 hyper's, 8 tokio's, 8 the allocator's, 6 copies of
  memory, 9 the service's own and 2 SQLite's: no function of the program has more than 3 %.
- **Writes on SQLite (P1, and 1,024 connections).** One thread writes, and it is what is waited for: of its time 40 % is the commit
  (frames of the log 26 %, the checkpoint 10 %), 21 % the inserts, 18 % the prefetch, 9 % the plan with its hashes. The rest of a write's
  CPU is spread: 16 % is the allocator, no function has more than 6 %. Tried before: checkpoints after 4,000 and 16,000 pages (6 % and
  1 % more writes, and waits of up to 47 and 124 ms in place of 29), a cache of 64 MiB and pages of other sizes (nothing).
- **Writes on PostgreSQL (P2).** One group is in flight at a time, so few clients leave a core idle: a group takes two statements and a
  flush, one after the other. With one client a group cost PostgreSQL 287 µs for the prefetch, of which 193 went to make ready a dozen
  parts with empty lists (groups of attestations leave them out since), and 260 µs for the write. Both cores in full would give 8
  clients 6,300 writes a second at the CPU that one takes. Tried: to let requests that are ready join a group before it begins
  (2,972 and 2,727/s without, 2,851 and 2,979/s with it, 2,363 and 2,546/s if until none came): dropped. Two groups in flight, with
  hash chains computed ahead, are not built: the second is sent before it is known whether the first was written, so that a lost
  race or a cut connection of the one would put the other in doubt, too.
- **Uncached reads.** An artifact takes seven queries and a page of trails five, of which one is left out where its trails are
  cached. Of a page of trails two thirds were the writing of its JSON, half of that one loop; since it went, and trails that nothing
  is reported to are cached, such a page takes half the CPU that it took on SQLite, and a third on PostgreSQL. What is left of an artifact is half SQL,
  a seventh of that locks and unlocks the file for each query. Asked about an organization whose ledger did not grow, the answer is
  cached and takes one query, which those who ask at the same time share. Tried on SQLite: `mmap_size` of 1 GiB (by id 15,578 and 18,121/s in
  place of 14,650 and 15,527/s, lists of artifacts faster once and slower once): dropped, for an error of the disk would then
  end the process and not the request. A page cache of 64 MiB for each reader (13,622 and 14,183/s): slower.
- **`ETag` and 304** are not built. A tag made of the ledger's head would say 304 after a rebuild that mends rows, for as
  long as nobody writes; one made of the answer takes the whole answer, and saves only its way.
- **Beside writes** each answer about the organization is made anew after each of them, by one of those that ask for it: the others
  wait for that. Measured with and without that, where 50 writes a second changed other trails than those that are read, 64 clients had
  42,064 and 1,500 answers of the newest 50 artifacts a second on SQLite, 29,220 and 784 on PostgreSQL, and of the newest 50
  trails 52,837 and 5,691, 33,028 and 987.
- **Statistics of builds (P4)** grow with the builds of the time that is asked about, of which they are percentiles, as far as 100,000:
  more are not read.
- **Filter options and the last page of repos (P4)** grow with the repos, of which 10 thousand, 1 and 10 million attestations are from
  1, 100 and 1,000. Options are the different values of a list, and each page tells how long it is.
- **Medians that stay, and a 99th percentile that does not (P4):** a second's attestations of a flow on SQLite, a control on
  PostgreSQL, each in one run: what else the machine did.
- **Memory (P9).** Uploads do not add up: after the third of 10 MB nearly nothing comes to it. What stays is what a chunk of 256 KiB
  takes on its way: itself, the copies that SQLite makes of it or PostgreSQL's arguments and the connection's buffer; pages of SQLite's
  writer, which empties its cache after each chunk (6.6 to 5.1 MiB; after each megabyte before, when it kept 8 it was 15); and buffers of
  64 KiB, of the connection, the form and the temporary file. By page faults on PostgreSQL, 1.7 of 4 MB were arguments that grew by
  doubling, and 1.2 the chunk: both take their room at once now (4.7 to 4.3 MiB, medians of nine; a run may come to a megabyte
  more). A third of the rest is freed memory that the allocator keeps for the next: with `MIMALLOC_PURGE_DELAY=0`, which gives it
  back at once, 2.9 MiB come to it on SQLite and 3.4 on PostgreSQL.
- **The size of the program (P10).** Each of 118 operations has its own copy of what decodes, runs and answers it. The
  profile `dist` takes 18 % off (`lto`, one unit: 54.3 to 44.8 MB, of which 35 are code: 6.5 the operations, 6 routing, OpenAPI and
  JSON schemas, 2.3 destructors). Tried: `opt-level = \"s\"` comes to 30.8 MB, and costs 6 to 20 % of CPU a request (SQLite, medians
  of three runs in turn: a write 104 to 118 µs, 50 uncached trails 633 to 756, an uncached flow 35 to 42; PostgreSQL 108 to 115,
  574 to 670, 43 to 46). `opt-level = 2` takes 2 % off and costs nothing that can be measured. Schemas, PDF and the command line alone
  are 4 MB, so `\"s\"` for them would take off less than 3 %. Who wants the smaller program builds it with
  `--config 'profile.dist.opt-level=\"s\"'`.
- **How 10 million were filled.** Of more than 100,000 attestations one trail in a hundred comes in over the API, and the others are
  recorded as that left those, 165 to a write: twelve minutes on SQLite and 17 on PostgreSQL beside other work, 26 and 27 GB. PostgreSQL is vacuumed
  before it is read, as it does by itself a minute later: an artifact by its fingerprint, which is read first, took up to four times
  as long in the larger store while it was still at that.
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
