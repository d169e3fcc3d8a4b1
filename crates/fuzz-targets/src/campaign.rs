//! Runs one target on its seeds and on what mutation makes of them, until told to stop or a promise breaks.

use crate::mutation::Mutator;
use crate::targets::Target;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Bytes of a failing input that are printed; a longer one is to be had by running the same seed again.
const PRINTED_BYTES_MAX: usize = 4 * 1024;

/// One target, its seeds and the stream of inputs made of them.
#[derive(Debug)]
pub struct Campaign {
    target: Target,
    seeds: Vec<Vec<u8>>,
    mutator: Mutator,
    seed: u64,
    inputs: u64,
}

/// An input on which a target broke a promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Name of the target.
    pub target: &'static str,
    /// Seed number of the campaign.
    pub seed: u64,
    /// How many inputs ran before this one.
    pub number: u64,
    /// The input.
    pub input: Vec<u8>,
    /// What the panic said.
    pub what: String,
}

impl Campaign {
    /// A campaign against `target`; the same seed number gives the same inputs.
    pub fn new(target: Target, seed: u64) -> Self {
        Self { target, seeds: (target.seeds)(), mutator: Mutator::new(seed), seed, inputs: 0 }
    }

    /// How many inputs ran.
    pub fn inputs(&self) -> u64 {
        self.inputs
    }

    /// The inputs that mutation starts from.
    pub fn seeds(&self) -> &[Vec<u8>] {
        &self.seeds
    }

    /// Runs `count` more inputs: first every seed as it is, then mutations.
    pub fn run(&mut self, count: u64) -> Result<(), Failure> {
        for _ in 0..count {
            let input = match self.seeds.get(self.inputs as usize) {
                Some(seed) => seed.clone(),
                None => self.mutator.input(&self.seeds),
            };
            let outcome = catch_unwind(AssertUnwindSafe(|| (self.target.run)(&input)));
            if let Err(panic) = outcome {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let what = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words");
                return Err(Failure {
                    target: self.target.name,
                    seed: self.seed,
                    number: self.inputs,
                    what: what.to_owned(),
                    input,
                });
            }
            self.inputs += 1;
        }
        Ok(())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: input {} of seed {}: {}", self.target, self.number, self.seed, self.what)?;
        write!(f, "the input, {} bytes: ", self.input.len())?;
        for byte in self.input.iter().take(PRINTED_BYTES_MAX) {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}
