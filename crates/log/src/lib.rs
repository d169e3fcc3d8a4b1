//! The journal and the partition log on disk. No network, no async runtime, no threads.
//!
//! * [`disk`]: the seam to files, with a real and a simulated file system behind it.
//! * [`journal`]: the node's one stream of records, durable by one sync for all shards.
//! * [`partition`]: the records of one partition, in files of Kafka's own format.
//! * [`inspect`]: reading a data directory that nobody has open.
//!
//! Every byte on disk is drawn in `docs/formats.md`.

pub mod disk;
pub mod inspect;
pub mod journal;
pub mod partition;
