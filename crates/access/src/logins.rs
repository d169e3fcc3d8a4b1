//! Log-ins that were checked before, for protocols that send the password with every request.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use weir_model::access::UserMeta;

use crate::access::Access;
use crate::identity::Identity;

/// Log-ins that are remembered; the oldest give way.
const LOGINS_MAX: usize = 1_024;

/// Name and password, under a key of this process: neither can be had back from it.
type Fingerprint = [u8; 32];

/// Remembers which name and password opened for which stored user. One whose user was changed since is forgotten.
pub struct Logins {
    key: [u8; 32],
    checked: BTreeMap<Fingerprint, Arc<UserMeta>>,
    /// The oldest first.
    order: VecDeque<Fingerprint>,
}

impl Logins {
    /// None yet. The key is drawn by the caller, and is nobody else's.
    pub fn new(key: [u8; 32]) -> Logins {
        Logins { key, checked: BTreeMap::new(), order: VecDeque::new() }
    }

    /// Whether this name and password opened before, and the user is the same still.
    pub fn knows(&self, access: &Access, user: &str, password: &[u8]) -> bool {
        let known = self.checked.get(&self.fingerprint(user, password));
        matches!((known, access.user(user)), (Some(known), Some(stored)) if Arc::ptr_eq(known, stored))
    }

    /// Remembers a log-in that was just checked.
    pub fn note(&mut self, identity: &Identity, password: &[u8]) {
        let fingerprint = self.fingerprint(identity.name(), password);
        if self.checked.insert(fingerprint, Arc::clone(identity.meta())).is_none() {
            self.order.push_back(fingerprint);
        }
        while self.order.len() > LOGINS_MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.checked.remove(&oldest);
            }
        }
    }

    fn fingerprint(&self, user: &str, password: &[u8]) -> Fingerprint {
        let mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("HMAC takes keys of any length");
        let length = (user.len() as u64).to_le_bytes();
        mac.chain_update(length).chain_update(user).chain_update(password).finalize().into_bytes().into()
    }
}

impl std::fmt::Debug for Logins {
    /// Leaves out the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Logins").field("checked", &self.checked.len()).finish_non_exhaustive()
    }
}
