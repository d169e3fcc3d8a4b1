//! What one node asks another about queues, and what is answered. What was read can be written, and reads the same again.

use bytes::Bytes;
use weir_broker::peers::{examples, written_again};

pub fn run(data: &[u8]) {
    let Some(written) = written_again(&Bytes::copy_from_slice(data)) else { return };
    assert_eq!(written_again(&written), Some(written.clone()));
}

pub fn seeds() -> Vec<Vec<u8>> {
    examples().into_iter().map(|bytes| bytes.to_vec()).collect()
}
