//! Deliberate mistakes, by which it is shown that a run would find such mistakes. They are made around the broker, which
//! knows nothing of them.

use clap::ValueEnum;

/// What a cluster does wrong. Never anything but in a run that is to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Wrong {
    /// Consumers are told that records are settled which the dispatcher was never told of.
    ForgetsAccepts,
    /// Publishers are told that messages are durable which were never appended.
    LosesMessages,
    /// Failed deliveries are given back without being counted.
    CountsNoFailures,
    /// The queue whose returns have turns puts them in their original places.
    KeepsNoTurns,
    /// Business keys are not looked at.
    ForgetsKeys,
    /// Parked records are released before their time.
    ReleasesEarly,
    /// Parked records are released at once and once more when it is time.
    ReleasesTwice,
    /// Logs of queues are trimmed up to their ends.
    TrimsUnsettled,
    /// The replicas of a shard are told a digest that is not theirs.
    DigestsDiffer,
    /// Users are deleted by one who was told that they are there.
    LosesUsers,
}
