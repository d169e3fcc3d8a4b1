//! The sending side, whose cost counts for nothing.

use std::io::{self, Write};
use std::net::TcpStream;

use crate::Amount;

/// Bytes that do not repeat within a chunk, the same in every chunk.
pub(crate) fn chunk(length: u32) -> Vec<u8> {
    (0..length).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// Sends as fast as they are taken.
pub(crate) fn send(to: &str, amount: Amount) -> io::Result<()> {
    let mut connection = TcpStream::connect(to)?;
    let chunk = chunk(amount.chunk);
    for _ in 0..amount.bytes / u64::from(amount.chunk) {
        connection.write_all(&chunk)?;
    }
    Ok(())
}
