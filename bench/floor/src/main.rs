//! What the hardware asks for the least that a broker with a journal and segments does with bytes: take
//! them from a socket, check them, and write them twice into the page cache.
//!
//! `receive` says `listening ADDRESS`, serves one `send`, and prints what that cost. Only the receiving
//! thread's CPU time counts, which is what a broker's would be; what the kernel does later to bring pages
//! to the disk is in neither.

use std::net::TcpListener;
use std::path::PathBuf;

use anyhow::Context;
use clap::Parser;

mod receive;
mod send;

#[cfg(test)]
mod tests;

/// How many bytes, and in pieces of what size.
#[derive(Clone, Copy, Debug, clap::Args)]
struct Amount {
    /// Bytes in all; a multiple of the chunk.
    #[arg(long, value_name = "BYTES")]
    bytes: u64,
    /// Bytes that are received, checked and written at a time: a batch of records.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=64 << 20))]
    chunk: u32,
}

#[derive(Debug, clap::Parser)]
#[command(about = "The least that a broker with a journal and segments does with bytes")]
enum Command {
    /// Receive the bytes, compute their CRC-32C, write them twice.
    Receive {
        #[command(flatten)]
        amount: Amount,
        /// Where the two files go.
        #[arg(long, value_name = "DIR")]
        directory: PathBuf,
    },
    /// Send the bytes.
    Send {
        #[command(flatten)]
        amount: Amount,
        /// Where `receive` listens.
        #[arg(long, value_name = "ADDRESS")]
        to: String,
    },
}

fn main() -> anyhow::Result<()> {
    match Command::parse() {
        Command::Receive { amount, directory } => {
            let files = receive::Files::prepare(&directory, amount).context("preparing the files")?;
            let listener = TcpListener::bind("127.0.0.1:0").context("listening on 127.0.0.1")?;
            println!("listening {}", listener.local_addr()?);
            let cost = receive::receive(&listener, &files, amount)?;
            println!("bytes {}", cost.bytes);
            println!("seconds {:.6}", cost.seconds);
            println!("cpu_seconds {:.6}", cost.cpu_seconds);
            println!("crc32c {:08x}", cost.crc32c);
            Ok(())
        }
        Command::Send { amount, to } => send::send(&to, amount).with_context(|| format!("sending to {to}")),
    }
}
