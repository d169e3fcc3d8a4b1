//! The journal and the partition log on disk. No network, no async runtime, no threads.
//!
//! * [`disk`]: the seam to files, with a real and a simulated file system behind it.

pub mod disk;
