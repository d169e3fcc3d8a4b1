//! Bounded compression and decompression of record batches, for clients and tools.
