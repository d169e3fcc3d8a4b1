//! The journal and the partition log on disk. No network, no async runtime.
