//! Ids that nobody else has: drawn from a generator whose seed is handed in, so that a simulated
//! cluster draws the same ones again.

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use weir_model::TopicId;

/// Draws topic ids and member ids.
pub(crate) struct IdSource {
    random: Mutex<StdRng>,
}

impl IdSource {
    pub(crate) fn new(seed: [u8; 32]) -> IdSource {
        IdSource { random: Mutex::new(StdRng::from_seed(seed)) }
    }

    fn uuid(&self) -> uuid::Uuid {
        uuid::Builder::from_random_bytes(self.bytes()).into_uuid()
    }

    /// Random bytes.
    pub(crate) fn bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        self.random.lock().fill_bytes(&mut bytes);
        bytes
    }

    /// A random number.
    pub(crate) fn number(&self) -> u64 {
        self.random.lock().next_u64()
    }

    /// A secret of this process.
    pub(crate) fn secret(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        self.random.lock().fill_bytes(&mut bytes);
        bytes
    }

    /// A topic's identity: a version 4 UUID.
    pub(crate) fn topic_id(&self) -> TopicId {
        TopicId(self.uuid().into_bytes())
    }

    /// A group member's id, which begins with what the client calls itself, as people expect who
    /// look for a client in a listing.
    pub(crate) fn member_id(&self, client_id: &str) -> String {
        format!("{client_id}-{}", self.uuid())
    }
}
