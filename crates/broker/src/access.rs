//! Who clients are and what they may do: the one way by which fronts ask.
//!
//! What is stored is the meta shard's. [`Broker::access`] is what follows from it, compiled once for each change; a
//! connection keeps a snapshot's [`Identity`] or [`Pass`](weir_access::Pass), and takes it over into the next.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Semaphore, watch};
use weir_access::{
    Access, AccessOptions, Denied, Identity, Logins, NEW_PASSWORD_FORMS, PasswordError, Peer,
    ScramCredential, ScramHash, Unacceptable, check_namespace, check_permission, check_topic_permission,
    check_user, hash_password,
};
use weir_model::access::{AccessChange, AccessRecords, PasswordHash};
use weir_model::command::{Command, Outcome, Refusal};
use weir_model::queue::split_name;
use weir_shard::Accounts;

use crate::broker::Broker;
use crate::errors::{AdminError, Unavailable, refused};

/// Passwords that are checked at the same time, so that a storm of log-ins leaves processors to the others.
const CHECKS_AT_ONCE: usize = 2;

/// What the broker keeps to know clients by.
#[derive(Debug)]
pub(crate) struct Gate {
    compiled: RwLock<(Option<Arc<Accounts>>, Access)>,
    logins: Mutex<Logins>,
    checks: Semaphore,
    /// Of this process alone.
    secret: [u8; 32],
    changed: watch::Sender<()>,
}

/// Why something about users was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// It may not be stored as it is.
    #[error(transparent)]
    Unacceptable(#[from] Unacceptable),
    /// What is there does not allow it: a name is taken or is not there, or is in use.
    #[error("{0}")]
    Refused(Refusal),
    /// It was not done for another reason.
    #[error(transparent)]
    Admin(#[from] AdminError),
}

impl From<Unavailable> for AccessError {
    fn from(unavailable: Unavailable) -> AccessError {
        AccessError::Admin(unavailable.into())
    }
}

impl Gate {
    pub(crate) fn new(options: AccessOptions, secret: [u8; 32]) -> Gate {
        // Nobody is known before the meta shard was asked.
        let nobody = Access::new(&AccessRecords::default(), options);
        Gate {
            compiled: RwLock::new((None, nobody)),
            logins: Mutex::new(Logins::new(secret)),
            checks: Semaphore::new(CHECKS_AT_ONCE),
            secret,
            changed: watch::Sender::new(()),
        }
    }

    fn access(&self, accounts: Arc<Accounts>) -> Access {
        let is_current =
            |known: &Option<Arc<Accounts>>| known.as_ref().is_some_and(|k| Arc::ptr_eq(k, &accounts));
        let compiled = self.compiled.read();
        if is_current(&compiled.0) {
            return compiled.1.clone();
        }
        drop(compiled);
        let mut compiled = self.compiled.write();
        if !is_current(&compiled.0) {
            *compiled = (Some(Arc::clone(&accounts)), compiled.1.updated(&accounts.records()));
        }
        compiled.1.clone()
    }
}

impl Broker {
    /// Users, namespaces and permissions as they are now.
    pub fn access(&self) -> Access {
        match self.meta() {
            Ok(meta) => self.gate.access(meta.view().accounts()),
            Err(_) => self.gate.compiled.read().1.clone(),
        }
    }

    /// Everything that is stored about users.
    pub fn access_records(&self) -> Result<AccessRecords, Unavailable> {
        Ok(self.meta()?.view().accounts().records())
    }

    /// Resolves when something about users was changed through this node.
    pub fn on_access_change(&self) -> watch::Receiver<()> {
        self.gate.changed.subscribe()
    }

    /// Who a client is that sends a name and a password. Passwords are checked where that blocks nobody, a few at a
    /// time.
    pub async fn authenticate(&self, user: &str, password: Bytes, peer: Peer) -> Result<Identity, Denied> {
        let access = self.access();
        if self.gate.logins.lock().knows(&access, user, &password) {
            return access.identify(user, peer);
        }
        // The semaphore is never closed.
        let _turn = self.gate.checks.acquire().await;
        let (name, secret) = (user.to_owned(), password.clone());
        let checked = self.blocking().run(move || access.authenticate(&name, &secret, peer)).await;
        let Ok(checked) = checked else { return Err(Denied::Unchecked(user.to_owned())) };
        let identity = checked?;
        self.gate.logins.lock().note(&identity, &password);
        Ok(identity)
    }

    /// What a client's proof is checked against in SCRAM; of a user who has no such password, one that no proof fits.
    pub fn scram_credential(&self, user: &str, hash: ScramHash) -> ScramCredential {
        let access = self.access();
        let forms = access.user(user).map(|user| user.passwords.clone()).unwrap_or_default();
        let credential = forms.iter().filter_map(ScramCredential::of).find(|found| found.hash == hash);
        credential.unwrap_or_else(|| ScramCredential::decoy(hash, user, &self.gate.secret))
    }

    /// A new password in the forms in which it is stored.
    pub async fn hash_password(&self, password: Bytes) -> Result<Vec<PasswordHash>, AccessError> {
        let salts = NEW_PASSWORD_FORMS.map(|algorithm| (algorithm, self.random_bytes()));
        let hashing = move || {
            let each = salts.iter().map(|(algorithm, salt)| hash_password(*algorithm, &password, salt));
            each.collect::<Result<Vec<_>, PasswordError>>()
        };
        let _turn = self.gate.checks.acquire().await;
        match self.blocking().run(hashing).await {
            Ok(hashed) => Ok(hashed.map_err(Unacceptable::from)?),
            Err(_) => Err(Unavailable::ShuttingDown.into()),
        }
    }

    /// Changes users, namespaces or permissions.
    pub async fn change_access(&self, change: AccessChange) -> Result<(), AccessError> {
        match &change {
            AccessChange::PutNamespace { namespace, .. } => check_namespace(namespace)?,
            AccessChange::PutUser { user, .. } => check_user(user)?,
            AccessChange::PutPermission { permission } => check_permission(permission)?,
            AccessChange::PutTopicPermission { permission } => check_topic_permission(permission)?,
            AccessChange::DeleteNamespace { .. }
            | AccessChange::DeleteUser { .. }
            | AccessChange::DeletePermission { .. }
            | AccessChange::DeleteTopicPermission { .. } => {}
        }
        match self.propose_meta(Command::ChangeAccess { change }).await? {
            Outcome::Done => {
                self.gate.changed.send_replace(());
                Ok(())
            }
            Outcome::Refused(
                refusal @ (Refusal::UnknownUser(_)
                | Refusal::UserExists(_)
                | Refusal::LastAdministrator(_)
                | Refusal::UnknownNamespace(_)
                | Refusal::NamespaceExists(_)
                | Refusal::NamespaceInUse(_)),
            ) => Err(AccessError::Refused(refusal)),
            other => Err(refused(other).into()),
        }
    }

    /// Deletes a namespace with its queues, exchanges, bindings and permissions.
    pub async fn delete_namespace(&self, name: &str) -> Result<(), AccessError> {
        if name == weir_model::access::DEFAULT_NAMESPACE {
            return Err(AccessError::Refused(Refusal::NamespaceInUse(name.to_owned())));
        }
        let topics = self.current_meta().await?.view().catalog().topics();
        for topic in topics.iter().filter(|topic| split_name(&topic.name).0 == name) {
            match self.delete_topic(topic.id).await {
                // Somebody else was faster.
                Ok(()) | Err(AdminError::UnknownTopic(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.change_access(AccessChange::DeleteNamespace { name: name.to_owned() }).await
    }
}
