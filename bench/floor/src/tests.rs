use std::net::TcpListener;

use crate::receive::{Files, receive};
use crate::{Amount, send};

/// Both files hold what was sent: a floor that left a write out would make every broker look dear.
#[test]
fn every_byte_is_written_twice() {
    let directory = tempfile::tempdir().unwrap();
    let amount = Amount { bytes: 5 * 4096, chunk: 4096 };
    let files = Files::prepare(directory.path(), amount).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let sender = std::thread::spawn(move || send::send(&address, amount));
    let cost = receive(&listener, &files, amount).unwrap();
    sender.join().unwrap().unwrap();

    let sent = send::chunk(amount.chunk).repeat(5);
    let growing = std::fs::read(directory.path().join("growing")).unwrap();
    let ring = std::fs::read(directory.path().join("ring")).unwrap();
    assert_eq!(growing, sent);
    assert_eq!(ring[..sent.len()], sent);
    assert_eq!((cost.bytes, cost.crc32c), (amount.bytes, crc32c::crc32c(&sent)));
}

/// A sender that ends early is an error and not a cheaper measurement.
#[test]
fn a_short_stream_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let amount = Amount { bytes: 2 * 4096, chunk: 4096 };
    let files = Files::prepare(directory.path(), amount).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let sender = std::thread::spawn(move || send::send(&address, Amount { bytes: 4096, chunk: 4096 }));
    let refused = receive(&listener, &files, amount).unwrap_err();
    sender.join().unwrap().unwrap();
    assert_eq!(refused.kind(), std::io::ErrorKind::UnexpectedEof);
}
