//! The codec against transcripts written by hand, an independent implementation, and garbage.

mod commands;
mod differential;
mod frames;
mod round_trip;
mod tables;
mod totality;
mod transcripts;

use bytes::Bytes;

/// The bytes of a transcript: hexadecimal digits, with spaces wherever they help the reader.
fn hex(digits: &str) -> Bytes {
    let digits: Vec<u8> = digits.bytes().filter(|digit| !digit.is_ascii_whitespace()).collect();
    let octet = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(octet).collect()
}

/// The payload of a method frame.
fn payload(method: impl Into<crate::Method>) -> Bytes {
    let mut writer = crate::Writer::new(0);
    writer.method(1, method).unwrap();
    frame_payload(writer.into_contiguous())
}

/// The payload of the one frame that there is.
fn frame_payload(frame: Bytes) -> Bytes {
    frame.slice(7..frame.len() - 1)
}
