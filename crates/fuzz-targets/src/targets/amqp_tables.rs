//! An AMQP field table without its length. What was read can be written, and reads the same again, in bytes.

use bytes::Bytes;
use weir_amqp_wire::{Source, Table};

pub fn run(data: &[u8]) {
    let Ok(table) = Table::decode(Bytes::copy_from_slice(data)) else { return };
    let written = table.encode();
    // Nothing is normalised but truth values, so not a byte is added or lost.
    assert_eq!(written.len(), data.len());
    let again = Table::decode(written.clone()).expect("what was written can be read");
    assert_eq!(again.encode(), written);
    for (name, _) in &table {
        assert!(table.get(name).is_some());
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut source = Source::new(70);
    (0..100).map(|_| source.table().encode().to_vec()).collect()
}
