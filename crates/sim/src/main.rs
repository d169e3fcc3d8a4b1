//! `weir-sim`: runs seeds, each in a process of its own, and says which of them failed.
//!
//! One process per seed, because some libraries seed themselves from a counter of the process: only a
//! process that does nothing else replays exactly.

use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use clap::Parser;
use weir_sim::{Options, Report, Wrong, run};

/// Whole clusters under a simulated network, disk and clock, replayable by seed.
#[derive(Parser, Debug)]
struct Arguments {
    /// Run this one seed in this process and print what happened.
    #[arg(long)]
    seed: Option<u64>,
    /// Run seeds for about this many seconds of real time.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Run at least this many seeds, however long they take.
    #[arg(long, default_value_t = 1)]
    at_least: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Seeds under way at once.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Simulated seconds in which faults strike.
    #[arg(long, default_value_t = 20)]
    faults_for: u64,
    /// Print everything that happens, with its simulated time.
    #[arg(long)]
    log: bool,
    /// Let the cluster do this wrong, to see that it is found.
    #[arg(long, hide = true)]
    wrong: Option<Wrong>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.seed {
        Some(seed) => one(seed, &arguments),
        None => many(&arguments),
    }
}

fn one(seed: u64, arguments: &Arguments) -> ExitCode {
    if arguments.log {
        tracing_subscriber::fmt()
            .with_env_filter(std::env::var("WEIR_LOG").unwrap_or_else(|_| "info,openraft=warn".into()))
            .with_timer(SimulatedTime)
            .with_ansi(false)
            .with_writer(std::io::stdout)
            .init();
    }
    let faults_for = Duration::from_secs(arguments.faults_for);
    match run(Options { seed, faults_for, wrong: arguments.wrong }) {
        Ok(report) => {
            show(seed, &report);
            match report.damage.is_empty() && report.queue_damage.is_empty() {
                true => ExitCode::SUCCESS,
                false => ExitCode::FAILURE,
            }
        }
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn show(seed: u64, report: &Report) {
    let Report { acknowledged, attempted, seen, faults, simulated, queues, user_changes, .. } = report;
    let simulated = simulated.as_secs_f64();
    println!(
        "seed {seed}: {acknowledged} of {attempted} batches acknowledged, {seen} records seen on the way, {faults} \
         faults, {simulated:.3} s simulated"
    );
    println!(
        "seed {seed}: queues: {} published, {} parked of which {} taken back; {} handed out in {} sessions, {} of them \
         again, {} counted; {} accepted, {} released, {} rejected",
        queues.published,
        queues.parked,
        queues.cancelled,
        queues.handed,
        queues.sessions,
        queues.redelivered,
        queues.counted,
        queues.accepted,
        queues.released,
        queues.rejected,
    );
    let (trims, rewrites) = report.trims_and_rewrites;
    println!("seed {seed}: {trims} trims and {rewrites} rewrites seen, {user_changes} changes of users");
    tell(seed, &report.damage);
    tell(seed, &report.queue_damage);
}

/// Damage that is told of streams, and of queues: what one fault comes to may be thousands of lines.
const DAMAGE_TOLD_MAX: usize = 50;

fn tell(seed: u64, damage: &[impl std::fmt::Display]) {
    damage.iter().take(DAMAGE_TOLD_MAX).for_each(|damage| println!("seed {seed}: DAMAGE {damage}"));
    if damage.len() > DAMAGE_TOLD_MAX {
        println!("seed {seed}: and {} more", damage.len() - DAMAGE_TOLD_MAX);
    }
}

/// The simulated time of the host that logs, so that two runs of a seed log the same bytes.
struct SimulatedTime;

impl tracing_subscriber::fmt::time::FormatTime for SimulatedTime {
    fn format_time(&self, w: &mut tracing_subscriber::fmt::format::Writer<'_>) -> std::fmt::Result {
        match turmoil::sim_elapsed() {
            Some(elapsed) => write!(w, "{:>10.3}", elapsed.as_secs_f64()),
            None => write!(w, "         -"),
        }
    }
}

fn many(arguments: &Arguments) -> ExitCode {
    #[allow(clippy::disallowed_methods)] // Real time decides how many seeds are run, never what one does.
    let start = std::time::Instant::now();
    let limit = Duration::from_secs(arguments.seconds);
    let (mut next, mut passed, mut failed) = (arguments.from, 0u64, Vec::new());
    let mut running = Vec::new();
    loop {
        let begun = next - arguments.from;
        let more = start.elapsed() < limit || begun < arguments.at_least;
        if more && running.len() < arguments.jobs.max(1) {
            match start_seed(next, arguments) {
                Ok(child) => running.push((next, child)),
                Err(error) => {
                    eprintln!("cannot start a process for seed {next}: {error}");
                    return ExitCode::FAILURE;
                }
            }
            next += 1;
            continue;
        }
        if running.is_empty() {
            break;
        }
        let (seed, child) = running.remove(0);
        match child.wait_with_output() {
            Ok(output) if output.status.success() => passed += 1,
            Ok(output) => {
                print!(
                    "{}{}",
                    String::from_utf8_lossy(&output.stdout),
                    String::from_utf8_lossy(&output.stderr)
                );
                println!("seed {seed} failed; again with: make simulate SEED={seed}");
                failed.push(seed);
            }
            Err(error) => {
                println!("seed {seed}: {error}");
                failed.push(seed);
            }
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "simulated {} seeds in {seconds:.1} s ({:.0} an hour)",
        passed + failed.len() as u64,
        (passed + failed.len() as u64) as f64 / seconds * 3600.0
    );
    println!("{passed} passed, {} failed", failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn start_seed(seed: u64, arguments: &Arguments) -> std::io::Result<std::process::Child> {
    Command::new(std::env::current_exe()?)
        .args(["--seed", &seed.to_string(), "--faults-for", &arguments.faults_for.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}
