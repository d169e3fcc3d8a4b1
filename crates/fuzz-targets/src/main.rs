//! Runs the fuzz targets on the stable toolchain, for a time or a number of inputs, and says how many ran.

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use weir_fuzz_targets::{Campaign, TARGETS, Target};

/// Inputs between two looks at the clock.
const INPUTS_AT_ONCE: u64 = 64;
/// Status of a command line that cannot be followed.
const USAGE: u8 = 64;

/// Runs every parser on mutated inputs; a target stops at its first broken promise.
#[derive(Debug, Parser)]
#[command(name = "weir-fuzz-targets")]
struct Arguments {
    /// Seconds in all, shared out evenly among the targets.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Inputs per target instead of a time; with the same seed the run is the same.
    #[arg(long)]
    inputs: Option<u64>,
    /// Seed number of the inputs.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Only the target of this name; may be given several times.
    #[arg(long)]
    target: Vec<String>,
    /// Name the targets and stop.
    #[arg(long)]
    list: bool,
    /// Run one input from a file on the targets chosen, and stop.
    #[arg(long, value_name = "FILE")]
    reproduce: Option<PathBuf>,
    /// Write the seeds as files into DIR/<target>/ for libFuzzer, and stop.
    #[arg(long, value_name = "DIR")]
    write_seeds: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let targets = match chosen(&arguments.target) {
        Ok(targets) => targets,
        Err(unknown) => {
            eprintln!("there is no fuzz target named {unknown}; --list names them");
            return USAGE.into();
        }
    };
    if arguments.list {
        targets.iter().for_each(|target| println!("{}", target.name));
        return ExitCode::SUCCESS;
    }
    let outcome = match (&arguments.reproduce, &arguments.write_seeds) {
        (Some(file), _) => reproduce(file, &targets).map_err(|error| format!("{}: {error}", file.display())),
        (None, Some(directory)) => {
            write_seeds(directory, &targets).map_err(|error| format!("{}: {error}", directory.display()))
        }
        (None, None) => run(&arguments, &targets),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(words) => {
            eprintln!("{words}");
            ExitCode::FAILURE
        }
    }
}

fn chosen(names: &[String]) -> Result<Vec<Target>, &String> {
    if names.is_empty() {
        return Ok(TARGETS.to_vec());
    }
    names.iter().map(|name| find(name).ok_or(name)).collect()
}

fn find(name: &str) -> Option<Target> {
    TARGETS.iter().find(|target| target.name == name).copied()
}

fn run(arguments: &Arguments, targets: &[Target]) -> Result<(), String> {
    let seconds = arguments.seconds.max(0.0) / targets.len() as f64;
    let share = Duration::try_from_secs_f64(seconds).map_err(|error| format!("--seconds: {error}"))?;
    let mut broken = 0;
    for &target in targets {
        let mut campaign = Campaign::new(target, arguments.seed);
        let outcome = match arguments.inputs {
            Some(inputs) => campaign.run(inputs),
            None => run_for(&mut campaign, share),
        };
        if let Err(failure) = outcome {
            eprintln!("{failure}");
            broken += 1;
        }
        println!("{:<28} {:>10} inputs, {} seeds", target.name, campaign.inputs(), campaign.seeds().len());
    }
    // The form in which the stages of `make test` read a count.
    println!("{} passed, {broken} failed", targets.len() - broken);
    if broken > 0 { Err(format!("{broken} targets broke a promise")) } else { Ok(()) }
}

/// At least every seed and as many mutations, however short the time.
fn run_for(campaign: &mut Campaign, share: Duration) -> Result<(), weir_fuzz_targets::Failure> {
    let started = now();
    campaign.run(2 * campaign.seeds().len() as u64)?;
    while started.elapsed() < share {
        campaign.run(INPUTS_AT_ONCE)?;
    }
    Ok(())
}

/// The one clock here: it decides when to stop, and nothing about any input.
#[allow(clippy::disallowed_methods)]
fn now() -> Instant {
    Instant::now()
}

fn reproduce(file: &PathBuf, targets: &[Target]) -> std::io::Result<()> {
    let input = std::fs::read(file)?;
    for target in targets {
        println!("{} on {} bytes", target.name, input.len());
        (target.run)(&input);
    }
    Ok(())
}

fn write_seeds(directory: &std::path::Path, targets: &[Target]) -> std::io::Result<()> {
    for target in targets {
        let directory = directory.join(target.name);
        std::fs::create_dir_all(&directory)?;
        let seeds = (target.seeds)();
        for (number, seed) in seeds.iter().enumerate() {
            std::fs::write(directory.join(format!("seed-{number:04}")), seed)?;
        }
        println!("{:<28} {} seeds", target.name, seeds.len());
    }
    Ok(())
}
